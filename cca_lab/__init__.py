"""Long-context attention, from loops to models; `docs/use/names.md` explains the public names.

    from cca_lab import CCA, load_pretrained, swap_attention

Names are imported from their packages when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cca_lab.attention import causal_intervals, interval_attention, pool_groups
    from cca_lab.mechanisms import (
        CCA,
        DGA,
        H2O,
        MECHANISMS,
        AShape,
        BlockSparse,
        Full,
        KeptHeads,
        LMInfinite,
        LoCoCo,
        LongLoRA,
        MeanPooling,
        Mechanism,
        MInference,
        RandomTokens,
        StreamingLLM,
        VerticalSlash,
        mechanism_of,
    )
    from cca_lab.mechanisms.caches import (
        CACHES,
        CCACache,
        DGACache,
        H2OCache,
        KeptHeadsCache,
        LMInfiniteCache,
        LoCoCoCache,
        MeanPoolingCache,
        RandomTokensCache,
        StreamingLLMCache,
    )
    from cca_lab.models import (
        attention_maps,
        attention_of,
        disable_attention_dropout,
        load_pretrained,
        local_inputs,
        restore_attention,
        save_pretrained,
        swap_attention,
        swapped,
    )

__all__ = ["AShape", "BlockSparse", "CACHES", "CCA", "CCACache", "DGA", "DGACache", "Full", "H2O",
           "H2OCache", "KeptHeads", "KeptHeadsCache", "LMInfinite", "LMInfiniteCache", "LoCoCo",
           "LoCoCoCache", "LongLoRA", "MECHANISMS", "MInference", "MeanPooling", "MeanPoolingCache",
           "Mechanism", "RandomTokens", "RandomTokensCache", "StreamingLLM", "StreamingLLMCache",
           "VerticalSlash", "attention_maps", "attention_of", "causal_intervals",
           "disable_attention_dropout", "interval_attention", "load_pretrained", "local_inputs",
           "mechanism_of", "pool_groups", "restore_attention", "save_pretrained", "swap_attention",
           "swapped"]
# the last two load transformers
_PACKAGES = ("attention", "mechanisms", "mechanisms.caches", "models")


def __getattr__(name: str) -> Any:
    for package in _PACKAGES if name in __all__ else ():
        module = import_module(f"cca_lab.{package}")
        if name in module.__all__:
            return getattr(module, name)
    raise AttributeError(
        f"module 'cca_lab' has no attribute {name!r}; its public names are {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__
