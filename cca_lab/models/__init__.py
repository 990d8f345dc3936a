"""The lab's attention in models of transformers: swap it in, generate with its cache, save, load and inspect."""

from cca_lab.extras import need

need("accelerate", "safetensors", "tokenizers", "transformers")

from cca_lab.models.checkpoints import load_pretrained, save_pretrained
from cca_lab.models.context import local_inputs
from cca_lab.models.maps import attention_maps
from cca_lab.models.plugin import attention_of, disable_attention_dropout, restore_attention, swap_attention

__all__ = ["attention_maps", "attention_of", "disable_attention_dropout", "load_pretrained", "local_inputs",
           "restore_attention", "save_pretrained", "swap_attention"]
