"""What each column of a mechanism is: a token, a core, a group, a slot; the colours and words of the view follow it."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from cca_lab.mechanisms import DGA, Mechanism
from cca_lab.mechanisms.columns import Columns

# The option with the number of first tokens that stay visible.
FIRST = {"streaming_llm": "sinks", "a_shape": "sinks", "lm_infinite": "global_tokens"}
# What stands before the raw tokens.
BEFORE_RAW = {"cca": "core", "mean_pooling": "core", "random_tokens": "kept", "lococo": "slot"}


def kinds(mechanism: Mechanism, parts: Sequence[Columns], selection: Any) -> list[str]:
    """Return the kind of each column of all parts, in the order of the softmax.

    A mechanism that is not named here has cores where a column holds several tokens, and raw tokens otherwise.

    Args:
        mechanism: with its options.
        parts: what its `columns` returned.
        selection: the choice of tokens with which it was called.
    """
    near, *far = parts
    length, count = near.q.shape[2], near.keys.shape[2]
    if near.pooling is None:
        first = 0 if far or mechanism.name not in FIRST else min(getattr(mechanism, FIRST[mechanism.name]), count)
        own = ["sink"] * first + ["raw"] * (count - first)
    elif isinstance(mechanism, DGA):
        own = _divided(mechanism, selection, count)
    elif mechanism.name in BEFORE_RAW:
        own = [BEFORE_RAW[mechanism.name]] * (count - length) + ["raw"] * length
    else:
        several = ((near.pooling() != 0).sum(-1) > 1).flatten(0, 1).any(0)
        own = ["core" if pooled else "raw" for pooled in several.tolist()]
    return own + ["sink"] * sum(part.keys.shape[2] for part in far)


def _divided(mechanism: DGA, focal: Tensor, count: int) -> list[str]:
    """Return DGA's kinds: focal tokens, groups, raw tokens; all heads have equally many of each."""
    blocks, span = mechanism.spans(focal.shape[-1])
    kept = int(focal[0, 0, : blocks * span].sum())
    groups = (blocks * span - kept) // mechanism.group
    return ["focal"] * kept + ["group"] * groups + ["raw"] * (count - kept - groups)
