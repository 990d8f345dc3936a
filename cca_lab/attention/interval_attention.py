"""The one attention primitive of the lab: check the arguments, choose a backend, attend."""

from collections.abc import Callable, Sequence
from typing import Literal, overload

import torch
from torch import Tensor

from cca_lab.attention.arguments import scale_of
from cca_lab.attention.blocked import blocked_attention
from cca_lab.attention.dense import dense_attention
from cca_lab.attention.fused import fused, require_triton
from cca_lab.attention.intervals import check_intervals
from cca_lab.attention.native import native_attention, ready
from cca_lab.attention.sources import Source, check_sources, split_intervals, tensors_of

# up to this many rows the matrix of weights is small, and planning tiles would take longer
FEW_ROWS = 16


def _triton_attention(q: Tensor, k: Source, v: Source, intervals: Tensor,
                      scale: float) -> tuple[Tensor, Tensor]:
    """The Triton backend, imported when it is first used: triton exists for Linux only."""
    require_triton()
    from cca_lab.attention.kernels import decode, interval

    tables = split_intervals(intervals, [x.shape[2] for x in tensors_of(k)])
    if decode.decodes(q, k, v, tables):
        return decode.triton_decode(q, k, v, scale, spans=decode.spans_of(tables))
    return interval.triton_attention(q, k, v, tables, scale)


BACKENDS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "dense": dense_attention,
    "blocked": blocked_attention,
    "native": native_attention,
    "triton": _triton_attention,
}


@overload
def interval_attention(q: Tensor, k: Source, v: Source, intervals: Tensor, *,
                       scale: float | None = ..., backend: str = ...,
                       return_lse: Literal[False] = ...) -> Tensor:    ...
@overload
def interval_attention(q: Tensor, k: Source, v: Source, intervals: Tensor, *,
                       scale: float | None = ..., backend: str = ...,
                       return_lse: Literal[True]) -> tuple[Tensor, Tensor]:    ...
def interval_attention(
    q: Tensor, k: Source, v: Source, intervals: Tensor, *,
    scale: float | None = None, backend: str = "auto", return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Compute softmax attention in which each row sees one to four intervals of columns.

    out_i = sum_j A_ij v_j,  A_i = softmax over the columns j visible to row i of scale * q_i . k_j.

    A column is a raw token or a pooled one. Almost every mechanism of the lab is a way to pool plus
    a choice of intervals (CCA-Attention's Eq. 5 is one of them).

    Args:
        q: queries (B, H, L, D).
        k, v: keys and values (B, Hk, N, D), H a multiple of Hk; floating dtype and device as q. Or
            two such tensors each, N_1 and N_2 columns that follow each other, N = N_1 + N_2: they
            are read where they lie (pooled columns, then raw tokens).
        intervals: int64 (b, h, L, n, 2), b in {1, B}, h in {1, H}, n in 1..4, on the CPU or on q's
            device: half-open [start, end) columns of each row, disjoint within the row, never
            moving back from row to row. An interval may be empty, but each row sees a column.
        scale: factor on the dot products; D ** -0.5 by default.
        backend: "dense" (the reference, memory L * N), "blocked" (memory linear in L and N),
            "native" (the same in C++ on the CPU, built on first use), "triton" (fused kernels on a
            GPU), or "auto": triton on a GPU for dtypes and head dims that the kernels support; else
            dense for up to 16 rows, where it is faster, else native if it can be built, else
            blocked.
        return_lse: also return the log-sum-exp of each row, with which partial outputs merge.

    Returns:
        out (B, H, L, D) in q's dtype; with `return_lse` the pair (out, lse), lse (B, H, L), natural
        log, in at least float32. Both carry gradients. Softmax is taken in at least float32.

    Raises:
        ValueError: naming an argument that is invalid or does not fit the others, or a backend that
            cannot run here.
    """
    check_sources(q, k, v)
    out, lse = attend_checked(q, k, v, intervals, scale_of(scale, q.shape[-1]), backend)
    return (out, lse) if return_lse else out


def attend_checked(q: Tensor, k: Source, v: Source, intervals: Tensor, scale: float,
                   backend: str) -> tuple[Tensor, Tensor]:
    """Return out and lse of `interval_attention`, for q, k and v that a caller has checked."""
    batch, heads, rows, _ = q.shape
    check_intervals(intervals, batch, heads, rows, sum(x.shape[2] for x in tensors_of(k)))
    if intervals.device not in (q.device, torch.device("cpu")):
        raise ValueError(f"intervals: got it on {intervals.device}, wanted {q.device}, where q is, "
                         "or the CPU; move it")
    return _backend(backend, q)(q, k, v, intervals, scale)


def merge(outs: Sequence[Tensor], lses: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Merge the outputs of rows over disjoint sets of columns into the outputs over all of them.

        out = sum_p w_p out_p,   w = softmax over the sets of lse_p,   lse = log sum_p exp(lse_p)

    Args:
        outs: (B, H, L, D) of each set.
        lses: (B, H, L) of each set, natural log; -inf where a row sees none of its columns.

    Returns:
        out (B, H, L, D) in the dtype of the first output, and lse (B, H, L).
    """
    out, lse = outs[0].to(lses[0].dtype), lses[0]
    for part, part_lse in zip(outs[1:], lses[1:], strict=True):
        share = (part_lse - lse).sigmoid().unsqueeze(-1)    # (B, H, L, 1), of this set
        out, lse = torch.lerp(out, part.to(lse.dtype), share), torch.logaddexp(lse, part_lse)
    return out.to(outs[0].dtype), lse


def _backend(name: str, q: Tensor) -> Callable[..., tuple[Tensor, Tensor]]:
    if name == "auto":
        name = ("triton" if fused(q) else "dense" if q.shape[2] <= FEW_ROWS else
                "native" if ready(q) else "blocked")
    if not isinstance(name, str) or name not in BACKENDS:
        raise ValueError(
            f"backend: got {name!r}, wanted one of {', '.join(map(repr, BACKENDS))} or 'auto'")
    return BACKENDS[name]
