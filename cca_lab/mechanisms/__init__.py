"""Attention mechanisms: each is a frozen dataclass whose fields are its options.

`MECHANISMS` lists them by name.
"""

import json
import operator
from collections.abc import Mapping
from typing import Any

from cca_lab.mechanisms.base import Mechanism
from cca_lab.mechanisms.cca.baselines import MeanPooling, RandomTokens
from cca_lab.mechanisms.cca.mechanism import CCA
from cca_lab.mechanisms.dga import DGA
from cca_lab.mechanisms.full import Full
from cca_lab.mechanisms.h2o.mechanism import H2O
from cca_lab.mechanisms.kept_heads.mechanism import KeptHeads
from cca_lab.mechanisms.lococo import LoCoCo
from cca_lab.mechanisms.longlora import LongLoRA
from cca_lab.mechanisms.minference import AShape, BlockSparse, MInference, VerticalSlash
from cca_lab.mechanisms.streaming.lm_infinite import LMInfinite
from cca_lab.mechanisms.streaming.streaming_llm import StreamingLLM

__all__ = ["CCA", "DGA", "H2O", "MECHANISMS", "AShape", "BlockSparse", "Full", "KeptHeads",
           "LMInfinite", "LoCoCo", "LongLoRA", "MInference", "MeanPooling", "Mechanism",
           "RandomTokens", "StreamingLLM", "VerticalSlash", "mechanism_of"]

MECHANISMS: dict[str, type[Mechanism]] = {cls.name: cls for cls in (
    Full, CCA, DGA, LoCoCo, MInference, AShape, VerticalSlash, BlockSparse, H2O, LongLoRA,
    StreamingLLM, LMInfinite, MeanPooling, RandomTokens, KeptHeads)}


def mechanism_of(name: str, options: dict[str, Any]) -> Mechanism:
    """Return the mechanism of a name, with the given options and the defaults of all others.

    Raises:
        ValueError: for an unknown name or option, or a value that is not valid.
    """
    cls = class_of(name)
    if not isinstance(options, Mapping):
        raise ValueError(f"options: got {options!r}, wanted a dict of options, such as "
                         "{'group': 16}")
    unknown = [option for option in options if option not in cls.option_names()]
    if unknown:
        raise ValueError(f"{unknown[0]}: not an option of {name!r}, wanted "
                         f"{', '.join(cls.option_names())}")
    # a copy as config.json will hold it: no list is shared with the caller, NumPy integers become
    # int
    try:
        values = json.loads(json.dumps(options, default=operator.index))
    except (TypeError, ValueError) as error:
        raise ValueError(f"options: got {options!r}, wanted JSON values: numbers, text, lists "
                         f"({error})") from error
    return cls(**values)


def class_of(name: str, what: str = "name") -> type[Mechanism]:
    """Return the class of the mechanism of a name; a ValueError names `what` if there is none."""
    if not isinstance(name, str) or name not in MECHANISMS:
        raise ValueError(f"{what}: got {name!r}, wanted one of {', '.join(MECHANISMS)}")
    return MECHANISMS[name]
