"""A-shape heads of MInference: the first tokens of the text and a local window.

Jiang et al., "MInference 1.0: Accelerating Pre-filling for Long-Context LLMs via Dynamic Sparse
Attention", NeurIPS 2024 (Section 3). Rows and tokens count from 0; row i reads token t if

    t <= i   and   (t < sinks   or   i - t < window)

The window holds the row's own token, and a first token inside the window is read once. Nothing is
chosen: the mask is the same for every text. Positions are the original ones. With them, it is StreamingLLM's
mask with recent = window - 1, and LM-Infinite's with local = window.
"""

from typing import Any

import torch
from torch import Tensor

from cca_lab.attention import effective_attention, interval_attention, visible_mask
from cca_lab.mechanisms.inputs import check_counts, check_positive, check_qkv
from cca_lab.mechanisms.masked import attend_loops
from cca_lab.mechanisms.mechanism import Mechanism, every_row
from cca_lab.mechanisms.rotary import Rotation
from cca_lab.mechanisms.sinks import intervals


def loops(q: Tensor, k: Tensor, v: Tensor, *, sinks: int, window: int, scale: float | None = None,
          rotation: Rotation | None = None) -> Tensor:
    """A-shape attention, row by row. The specification.

    Args:
        q: queries, (B, H, L, D).
        k, v: keys and values, (B, Hk, L, D); H is a multiple of Hk.
        sinks: tokens at the start of the text that every row reads, 0 or more.
        window: nearest tokens that a row reads, its own included, 1 or more.
        scale: factor on the dot products; None means D**-0.5.
        rotation: not used; keys keep the positions they were rotated to.

    Returns:
        (B, H, L, D), in the dtype of q.

    Raises:
        ValueError: if an option or a shape does not fit.
    """
    check_inputs(q, k, v, sinks, window)

    def seen(b: int, h: int, i: int) -> list[int]:
        return [t for t in range(i + 1) if t < sinks or i - t < window]

    return attend_loops(q, k, v, seen, scale)


def attention(q: Tensor, k: Tensor, v: Tensor, *, sinks: int, window: int, scale: float | None = None,
              rotation: Rotation | None = None, backend: str = "auto") -> Tensor:
    """A-shape attention, vectorised: two intervals a row.

    Args:
        q, k, v, sinks, window, scale, rotation: as in `loops`.
        backend: of `interval_attention`.

    Returns, Raises: those of `loops`.
    """
    check_inputs(q, k, v, sinks, window)
    visible = row_intervals(q.shape[2], sinks, window, q.device)
    return interval_attention(q, k, v, visible, scale=scale, backend=backend)


def effective(q: Tensor, k: Tensor, *, sinks: int, window: int, scale: float | None = None,
              rotation: Rotation | None = None) -> Tensor:
    """Return the attention matrix E with attention(q, k, v) = E v.

    Args:
        q, k, sinks, window, scale, rotation: as in `loops`.

    Returns:
        (B, H, L, L): rows sum to 1, exactly 0 on the tokens that a row does not read.
    """
    check_inputs(q, k, k, sinks, window)
    length = q.shape[2]
    raw = torch.eye(length, dtype=q.dtype, device=q.device)[None, None]
    visible = row_intervals(length, sinks, window, q.device)
    return effective_attention(q, k, visible, raw, scale=scale)


def represented(q: Tensor, k: Tensor, *, sinks: int, window: int, **_: Any) -> Tensor:
    """Return which tokens each row reads, bool (B, H, L, L)."""
    check_inputs(q, k, k, sinks, window)
    length = q.shape[2]
    visible = visible_mask(row_intervals(length, sinks, window, q.device), length)
    return visible.expand(*q.shape[:2], length, length)


def row_intervals(length: int, sinks: int, window: int, device: torch.device | str | None = None) -> Tensor:
    """Return int64 (1, 1, L, 2, 2): row i reads [0, min(sinks, w)) and [w, i + 1), w = max(0, i + 1 - window)."""
    return intervals(torch.arange(length, device=device), sinks, window)


def check_inputs(q: Tensor, k: Tensor, v: Tensor, sinks: int, window: int) -> None:
    """Raise ValueError naming the first argument that A-shape attention cannot take."""
    check_qkv(q, k, v)
    check_counts(sinks=sinks)
    check_positive(window=window)


def exact_when(length: int, *, sinks: int, window: int, **_: Any) -> bool:
    """The window of the last row reaches back to the first tokens."""
    return length <= sinks + window


MECHANISM = Mechanism(
    name="a_shape",
    title="MInference, A-shape",
    paper="Jiang et al., MInference 1.0: Accelerating Pre-filling for Long-Context LLMs via Dynamic Sparse "
          "Attention, NeurIPS 2024, Section 3",
    loops=loops,
    attention=attention,
    effective=effective,
    represented=represented,
    defaults={"sinks": 16, "window": 80},
    paper_presets={
        "default of the public code": {"sinks": 128, "window": 3968},
        "candidate of its search": {"sinks": 100, "window": 800},
    },
    causal_scope=every_row,
    needs_training=False,
    exact_when=exact_when,
)
