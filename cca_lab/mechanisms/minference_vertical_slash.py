"""Vertical-slash heads of MInference: a few columns and a few diagonals, chosen by the end of the prompt.

Jiang et al., "MInference 1.0", NeurIPS 2024 (Section 3, Algorithm 2). Rows and tokens count from 0.
With A the causal attention of the last rows of the prompt, a column's score is the attention its
token receives, and a diagonal's score the attention at its distance:

    column_t = sum_i A_it        diagonal_o = sum_i A_i,i-o        i in [L - last, L)

The best `vertical` columns and `slash` diagonals are read by all rows. A kernel reads a diagonal in
blocks: for the rows [mB, mB + B) diagonal o stands for the keys [mB - o, mB + B - o), B wide, so that
a row reads more than its own place on the diagonal. Row i of block m = floor(i / B) reads token t if

    t <= i   and   (t is a chosen column   or   mB - o <= t < mB + B - o for a chosen o)

The choice uses queries that are later than most rows: rows see their past only once it is given
(`select`, `selection`). `block` = 1 is the bare pattern, with each diagonal one token wide.

Differs from the paper and the public code:
  * The public index builder widens further: the range of a diagonal that leaves the text becomes [0, B),
    and a range that overlaps the one before extends it by a whole B. Here ranges are cut and merged exactly.
  * Diagonal 0 is always chosen, so that a row reads itself (in the public code only if `slash` is at least
    the 100 forced diagonals), and a column is never dropped (there, if it lies behind the last range).
  * Forced columns and diagonals take part of the budget, as there; sizes have no lower bound (there 30 and 50).
  * Each query head chooses for itself, as there, where KV heads are repeated.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from cca_lab.attention.dense import masked_matrix
from cca_lab.attention.derivatives import needs_gradient
from cca_lab.attention.fused import fused, require_triton
from cca_lab.mechanisms import masked
from cca_lab.mechanisms.inputs import check_counts, check_positive, check_qkv, expand_heads
from cca_lab.mechanisms.mechanism import WHOLE_PROMPT, Mechanism
from cca_lab.mechanisms.rotary import Rotation


class Choice(NamedTuple):
    """What a prompt chose: columns and diagonals, int64 (B, H, vertical) and (B, H, slash), ascending."""

    columns: Tensor
    offsets: Tensor


def loops(q: Tensor, k: Tensor, v: Tensor, *, vertical: int, slash: int, last: int = 64,
          forced_vertical: int = 4, forced_slash: int = 16, block: int = 16, scale: float | None = None,
          rotation: Rotation | None = None, selection: Choice | None = None) -> Tensor:
    """Vertical-slash attention, token by token (Algorithm 2). The specification.

    Args:
        q: queries, (B, H, L, D).
        k, v: keys and values, (B, Hk, L, D); H is a multiple of Hk.
        vertical: columns that are read, forced ones included; 0 for none.
        slash: diagonals that are read, forced ones included; 1 or more.
        last: rows at the end of the prompt that choose.
        forced_vertical: first tokens of the text that go before all other columns.
        forced_slash: nearest diagonals that go before all others.
        block: B, rows of a block, and width of a diagonal for them.
        scale: factor on the dot products, those of the choice included; None means D**-0.5.
        rotation: not used; keys keep the positions they were rotated to.
        selection: what `select` returned, to repeat that choice.

    Returns:
        (B, H, L, D), in the dtype of q.

    Raises:
        ValueError: if an option or a shape does not fit.
    """
    check_inputs(q, k, v, vertical, slash, last, forced_vertical, forced_slash, block)
    batch, heads, length, head_dim = q.shape
    scale = head_dim**-0.5 if scale is None else scale
    keys, chosen = expand_heads(k, heads), {}
    for b in range(batch):
        for h in range(heads):
            if selection is not None:
                chosen[b, h] = selection.columns[b, h].tolist(), selection.offsets[b, h].tolist()
                continue
            by_column, by_offset = scores_loops(q[b, h], keys[b, h], last, scale)
            columns = sorted(range(length), key=lambda t, score=by_column: (t >= forced_vertical, -score[t]))
            offsets = sorted(range(length), key=lambda o, score=by_offset: (o > 0, o >= forced_slash, -score[o]))
            chosen[b, h] = columns[:vertical], offsets[:slash]

    def seen(b: int, h: int, i: int) -> list[int]:
        return [t for t in range(i + 1) if reads(i, t, *chosen[b, h], block)]

    return masked.attend_loops(q, k, v, seen, scale)


def scores_loops(queries: Tensor, keys: Tensor, last: int, scale: float) -> tuple[list[float], list[float]]:
    """Add up what the last rows give to each column and to each diagonal; queries and keys are (L, D)."""
    length = len(keys)
    by_column, by_offset = [0.0] * length, [0.0] * length
    for i in range(max(0, length - last), length):
        weights = torch.softmax(scale * (keys[: i + 1] @ queries[i]), dim=0)  # (i+1,)
        for t, weight in enumerate(weights.tolist()):
            by_column[t] += weight
            by_offset[i - t] += weight
    return by_column, by_offset


def reads(i: int, t: int, columns: list[int], offsets: list[int], block: int) -> bool:
    """Tell whether row i reads token t: the mask, one entry at a time."""
    first_row = i // block * block
    near = any(first_row - o <= t < first_row + block - o for o in offsets)
    return t <= i and (t in columns or near)


def block_index(columns: list[int], offsets: list[int], block: int,
                m: int) -> tuple[list[tuple[int, int]], list[int]]:
    """List what a kernel loads for row block m: ranges of keys, and single keys to gather.

    Args:
        columns, offsets: the choice of one head; diagonal 0 is among the offsets.
        block: B.
        m: block of rows.

    Returns:
        Half-open ranges, ascending and apart, and the columns of no range that some row of the block may
        read. A kernel still has to test keys inside ranges for causality; gathered columns lie before them.
    """
    first_row, ranges = m * block, []
    for o in sorted(offsets, reverse=True):  # the farthest first, so that ranges ascend
        start, end = max(0, first_row - o), first_row + block - o
        if end <= 0:
            continue
        if ranges and start <= ranges[-1][1]:
            ranges[-1] = ranges[-1][0], end
        else:
            ranges.append((start, end))
    single = [t for t in sorted(columns) if t < first_row and not any(s <= t < e for s, e in ranges)]
    return ranges, single


@torch.no_grad()
def select(q: Tensor, k: Tensor, *, vertical: int, slash: int, last: int = 64, forced_vertical: int = 4,
           forced_slash: int = 16, block: int = 16, scale: float | None = None, **_: Any) -> Choice:
    """Choose columns and diagonals from the last rows (Algorithm 2, lines 1-3).

    Args:
        q, k and options: as in `loops`.

    Returns:
        The choice, for `selection`. A text of another length can take it too.
    """
    check_inputs(q, k, k, vertical, slash, last, forced_vertical, forced_slash, block)
    length, token = q.shape[2], torch.arange(q.shape[2], device=q.device)
    row = token[-last:, None]                                                         # (R, 1)
    weights, _ = masked_matrix(q[:, :, -last:], k, (token <= row)[None, None],
                               q.shape[-1] ** -0.5 if scale is None else scale)       # (B, H, R, L)
    behind = row - token                                                              # (R, L) row - offset
    on_diagonals = weights.gather(-1, behind.clamp(min=0).expand_as(weights)) * (behind >= 0)
    columns = masked.best(weights.sum(-2), (token >= forced_vertical).long(), min(vertical, length))
    nearest = (token > 0).long() + (token >= forced_slash)                            # 0, 1 ... 1, 2 ... 2
    return Choice(columns, masked.best(on_diagonals.sum(-2), nearest, min(slash, length)))


def represented(q: Tensor, k: Tensor, *, block: int = 16, selection: Choice | None = None,
                **options: Any) -> Tensor:
    """Return which tokens each row reads, bool (B, H, L, L); the options are those of `loops`."""
    columns, offsets = select(q, k, block=block, **options) if selection is None else selection
    length, reach, device = q.shape[2], q.shape[2] + block, q.device                  # no row's block reaches farther
    token = torch.arange(length, device=device)
    on_column = (columns[..., None] == token).any(-2)                                 # (B, H, L)
    count = (offsets[..., None] < torch.arange(reach + 1, device=device)).sum(-2)     # offsets below 0 .. L + B
    first_row = torch.arange(0, length, block, device=device)[:, None]                # (M, 1)
    nearest, farthest = ((first_row + width - token).clamp(0, reach) for width in (0, block))  # (M, L) each
    near = count[..., farthest] > count[..., nearest]                                 # (B, H, M, L)
    near = near.repeat_interleave(block, dim=2)[:, :, :length]
    return (near | on_column[:, :, None]) & masked.causal_mask(length, device)


def attention(q: Tensor, k: Tensor, v: Tensor, *, vertical: int, slash: int, last: int = 64,
              forced_vertical: int = 4, forced_slash: int = 16, block: int = 16, scale: float | None = None,
              rotation: Rotation | None = None, selection: Choice | None = None,
              backend: str = "auto") -> Tensor:
    """Vertical-slash attention, all rows at once.

    Args:
        q, k, v, vertical, slash, last, forced_vertical, forced_slash, block, scale, rotation, selection: as in
            `loops`.
        backend: "dense" (under the mask, memory L * L), "triton" (one kernel, forward only), or "auto": the
            kernel on a GPU where no gradient is asked for.

    Returns, Raises: those of `loops`; ValueError also for a backend that does not serve.
    """
    check_inputs(q, k, v, vertical, slash, last, forced_vertical, forced_slash, block)
    if backend not in ("auto", "dense", "triton"):
        raise ValueError(f"backend: got {backend!r}, wanted 'dense', 'triton' or 'auto'; its rows see no intervals")
    chosen = selection or select(q, k, vertical=vertical, slash=slash, last=last, forced_vertical=forced_vertical,
                                 forced_slash=forced_slash, scale=scale)
    if backend == "triton" or (backend == "auto" and fused(q) and not needs_gradient(q, k, v)):
        return _on_the_kernel(q, k, v, chosen, block, scale)
    return masked.attend(q, k, v, represented(q, k, block=block, selection=chosen), scale=scale)


def _on_the_kernel(q: Tensor, k: Tensor, v: Tensor, chosen: Choice, block: int, scale: float | None) -> Tensor:
    """The Triton rung, imported when first used: triton exists for Linux only."""
    if needs_gradient(q, k, v):
        raise ValueError("backend: got 'triton' for a gradient, wanted 'dense' or 'auto'; this kernel has no backward")
    require_triton()
    from cca_lab.attention.kernels.vertical_slash import triton_vertical_slash

    return triton_vertical_slash(q, k, v, *chosen, block, q.shape[-1] ** -0.5 if scale is None else scale)


def effective(q: Tensor, k: Tensor, *, scale: float | None = None, **options: Any) -> Tensor:
    """Return the attention matrix E, (B, H, L, L), with attention(q, k, v) = E v; options of `loops`."""
    return masked.matrix(q, k, represented(q, k, scale=scale, **options), scale=scale)


def check_inputs(q: Tensor, k: Tensor, v: Tensor, vertical: int, slash: int, last: int, forced_vertical: int,
                 forced_slash: int, block: int) -> None:
    """Raise ValueError naming the first argument that vertical-slash attention cannot take."""
    check_qkv(q, k, v)
    check_counts(vertical=vertical, forced_vertical=forced_vertical, forced_slash=forced_slash)
    check_positive(slash=slash, last=last, block=block)


def exact_when(length: int, *, vertical: int, slash: int, forced_vertical: int = 4, forced_slash: int = 16,
               block: int = 16, **_: Any) -> bool:
    """All columns or all diagonals are read, or no gap is left by the blocks' width and the forced ones, if all fit."""
    last_block = (length - 1) // block * block
    first_columns = forced_vertical if vertical >= forced_vertical else 0
    near_diagonals = max(1, forced_slash) if slash >= forced_slash else 1
    return vertical >= length or slash >= length or last_block + 1 - near_diagonals <= first_columns


MECHANISM = Mechanism(
    name="vertical_slash",
    title="MInference, vertical-slash",
    paper="Jiang et al., MInference 1.0: Accelerating Pre-filling for Long-Context LLMs via Dynamic Sparse "
          "Attention, NeurIPS 2024, Section 3, Algorithm 2",
    loops=loops,
    attention=attention,
    effective=effective,
    represented=represented,
    select=select,
    defaults={"vertical": 24, "slash": 24, "last": 32, "forced_vertical": 4, "forced_slash": 16, "block": 16},
    paper_presets={
        "public code where a head has no configuration": {
            "vertical": 1000, "slash": 6096, "last": 64, "forced_vertical": 30, "forced_slash": 100, "block": 64},
    },
    causal_scope=lambda **_: WHOLE_PROMPT,
    needs_training=False,
    exact_when=exact_when,
    rungs=("dense", "triton"),
)
