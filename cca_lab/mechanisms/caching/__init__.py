"""What all decode-time caches share; `cca_lab.mechanisms.caches` lists the caches."""

from cca_lab.extras import need

need("transformers")
