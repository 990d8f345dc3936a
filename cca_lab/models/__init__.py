"""The lab's attention in models of transformers: swap, generate, save, load and inspect.

A name is imported when it is first asked for: the settings of a training are read without
transformers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cca_lab.extras import need

if TYPE_CHECKING:
    from cca_lab.models.checkpoints import load_pretrained, save_pretrained
    from cca_lab.models.context import local_inputs
    from cca_lab.models.plugin import (
        attention_maps,
        attention_of,
        disable_attention_dropout,
        restore_attention,
        swap_attention,
        swapped,
    )

__all__ = ["attention_maps", "attention_of", "disable_attention_dropout", "load_pretrained",
           "local_inputs", "restore_attention", "save_pretrained", "swap_attention", "swapped"]
_MODULES = {"load_pretrained": "checkpoints", "save_pretrained": "checkpoints",
            "local_inputs": "context"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'cca_lab.models' has no attribute {name!r}")
    need("accelerate", "peft", "safetensors", "tokenizers", "transformers")
    return getattr(import_module(f"cca_lab.models.{_MODULES.get(name, 'plugin')}"), name)
