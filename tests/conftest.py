"""Settings of the whole suite; they stand before any import of torch, transformers or matplotlib."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["MPLBACKEND"] = "Agg"
os.environ["CCA_LAB_NATIVE"] = "0"  # "auto" means the same on every machine, built op or not

from hypothesis import settings

# The same examples every time, and no deadline: how fast a machine is does not decide a test.
settings.register_profile("lab", deadline=None, derandomize=True)
settings.load_profile("lab")
