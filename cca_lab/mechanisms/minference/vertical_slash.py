"""Vertical-slash heads of MInference: a few columns and diagonals, chosen by the last rows of the prompt.

Jiang et al., "MInference 1.0", NeurIPS 2024 (Section 3, Algorithm 2). Rows and tokens count from 0.
With A the causal attention of the last rows of the prompt, a column's score is the accumulated
attention on its token, and a diagonal's score the accumulated attention at its distance:

    column_t = sum_i A_it        diagonal_o = sum_i A_i,i-o        i in [L - last, L)

All rows read the `vertical` columns and `slash` diagonals with the highest scores. A kernel reads a
diagonal in blocks: for the rows [mB, mB + B) diagonal o means the B keys [mB - o, mB + B - o), so that a
row reads more than its own token of the diagonal. Row i of block m = floor(i / B) reads token t if

    t <= i   and   (t is a chosen column   or   mB - o <= t < mB + B - o for a chosen o)

The choice uses queries that are later than most rows, so rows see only their past once the choice is given
(`select`, `selection`). With `block` = 1 each diagonal is exactly one token wide.

Differs from the paper and the public code:
  * The public index builder widens further: the range of a diagonal that leaves the text becomes [0, B),
    and a range that overlaps the one before extends it by a whole B. Here ranges are cut and merged exactly.
  * Diagonal 0 is always chosen, so that a row reads itself (in the public code only if `slash` is at least
    the 100 forced diagonals). A column is never dropped (there it is, if it lies behind the last range).
  * Forced columns and diagonals count in the budget, as there; sizes have no lower bound (there 30 and 50).
  * Each query head makes its own choice, as there, where KV heads are repeated.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from cca_lab.attention.dense import masked_matrix
from cca_lab.attention.derivatives import needs_gradient
from cca_lab.attention.fused import fused, require_triton
from cca_lab.attention.rotary import Rotation
from cca_lab.mechanisms import masked
from cca_lab.mechanisms.base import WHOLE_PROMPT, Call, Mechanism
from cca_lab.mechanisms.columns import Columns
from cca_lab.mechanisms.inputs import check_counts, check_positive, expand_heads


class Choice(NamedTuple):
    """The choice of a prompt: columns, int64 (B, H, vertical), and diagonals, int64 (B, H, slash), ascending."""

    columns: Tensor
    offsets: Tensor


@dataclass(frozen=True, kw_only=True)
class VerticalSlash(Mechanism):
    """A few columns and diagonals, chosen by the last rows of the prompt.

    Attributes:
        vertical: columns that are read, forced ones included; 0 for none.
        slash: diagonals that are read, forced ones included; 1 or more.
        last: rows at the end of the prompt that make the choice.
        forced_vertical: first tokens of the text, chosen before all other columns.
        forced_slash: nearest diagonals, chosen before all others.
        block: B, rows of a block, and width of a diagonal for them.
        backend: "dense" (with the mask, memory L * L), "triton" (one kernel, forward only), or "auto": the
            kernel on a GPU if no gradient is needed.
    """

    vertical: int = 24
    slash: int = 24
    last: int = 32
    forced_vertical: int = 4
    forced_slash: int = 16
    block: int = 16

    name: ClassVar[str] = "vertical_slash"
    title: ClassVar[str] = "MInference, vertical-slash"
    paper: ClassVar[str] = ("Jiang et al., MInference 1.0: Accelerating Pre-filling for Long-Context LLMs via Dynamic "
                            "Sparse Attention, NeurIPS 2024, Section 3, Algorithm 2")
    sizes: ClassVar[tuple[str, ...]] = ("vertical", "slash", "last", "forced_vertical", "forced_slash", "block")
    paper_presets: ClassVar[dict[str, dict[str, Any]]] = {
        "public code where a head has no configuration": {
            "vertical": 1000, "slash": 6096, "last": 64, "forced_vertical": 30, "forced_slash": 100, "block": 64},
    }
    backends: ClassVar[tuple[str, ...]] = ("dense", "triton")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(vertical=self.vertical, forced_vertical=self.forced_vertical, forced_slash=self.forced_slash)
        check_positive(slash=self.slash, last=self.last, block=self.block)

    def row_by_row(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        """Compute vertical-slash attention token by token (Algorithm 2): the specification."""
        batch, heads, length, _ = q.shape
        keys, chosen = expand_heads(k, heads), {}
        for b in range(batch):
            for h in range(heads):
                if call.selection is not None:
                    chosen[b, h] = call.selection.columns[b, h].tolist(), call.selection.offsets[b, h].tolist()
                    continue
                by_column, by_offset = scores_loops(q[b, h], keys[b, h], self.last, call.scale)
                columns = sorted((t >= self.forced_vertical, -score, t) for t, score in enumerate(by_column))
                offsets = sorted((o > 0, o >= self.forced_slash, -score, o) for o, score in enumerate(by_offset))
                chosen[b, h] = [t for *_, t in columns[: self.vertical]], [o for *_, o in offsets[: self.slash]]

        def seen(b: int, h: int, i: int) -> list[int]:
            return [t for t in range(i + 1) if reads(i, t, *chosen[b, h], self.block)]

        return masked.attend_loops(q, k, v, seen, call.scale)

    def columns(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> list[Columns]:
        """Return one part: the tokens, under the mask of the chosen columns and diagonals."""
        columns, offsets = call.selection or self.select(q, k, scale=call.scale)
        length, device = q.shape[2], q.device
        token = torch.arange(length, device=device)
        on_column = (columns[..., None] == token).any(-2)                                 # (B, H, L)
        reach = int(offsets.max()) + 1                                                    # no diagonal lies farther
        count = (offsets[..., None] < torch.arange(reach + 1, device=device)).sum(-2)     # offsets below 0 .. reach
        behind = torch.arange(0, length, self.block, device=device)[:, None] - token      # (M, L) first row - t
        nearest, farthest = ((behind + width).clamp(0, reach) for width in (0, self.block))
        near = (count[..., farthest] > count[..., nearest])[:, :, token // self.block]    # (B, H, L, L)
        return [Columns(q, k, v, (near | on_column[:, :, None]) & masked.causal_mask(length, device))]

    def attention(self, q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None,
                  rotation: Rotation | None = None, selection: Choice | None = None,
                  module: nn.Module | None = None) -> Tensor:
        """Attend with all rows at once, see `Mechanism.attention`; ValueError also if "triton" cannot run."""
        call = self.call(q, k, v, scale, rotation, selection, module)
        recorded = needs_gradient(q, k, v)
        if self.backend == "dense" or (self.backend == "auto" and (recorded or not fused(q))):
            return super().attention(q, k, v, **call._asdict())
        if recorded:
            raise ValueError("backend: got 'triton' for a gradient, wanted 'dense' or 'auto'; this kernel has no "
                             "backward")
        require_triton()
        from cca_lab.attention.kernels.vertical_slash import triton_vertical_slash  # triton exists for Linux only

        columns, offsets = call.selection or self.select(q, k, scale=call.scale)
        return triton_vertical_slash(q, k, v, columns, offsets, self.block, call.scale)

    @torch.no_grad()
    def select(self, q: Tensor, k: Tensor, *, scale: float | None = None) -> Choice:
        """Choose columns and diagonals from the last rows (Algorithm 2, lines 1-3).

        Returns:
            The choice, for `selection`. It can be used for a text of another length too.
        """
        scale = self.call(q, k, k, scale).scale
        length, token = q.shape[2], torch.arange(q.shape[2], device=q.device)
        row = token[-self.last :, None]                                                   # (R, 1)
        weights, _ = masked_matrix(q[:, :, -self.last :], k, (token <= row)[None, None], scale)  # (B, H, R, L)
        behind = row - token                                                              # (R, L) row - offset
        on_diagonals = weights.gather(-1, behind.clamp(min=0).expand_as(weights)) * (behind >= 0)
        columns = masked.best(weights.sum(-2), min(self.vertical, length), (token >= self.forced_vertical).long())
        nearest = (token > 0).long() + (token >= self.forced_slash)                       # 0, 1 ... 1, 2 ... 2
        return Choice(columns, masked.best(on_diagonals.sum(-2), min(self.slash, length), nearest))

    def check_choice(self, selection: Any, q: Tensor, k: Tensor) -> None:
        """Raise ValueError unless a selection is a `Choice` for the heads of q."""
        tensors = selection if isinstance(selection, tuple) and len(selection) == 2 else ()
        shapes = [tuple(getattr(x, "shape", ())) for x in tensors]
        if len(shapes) != 2 or any(x.dtype != torch.int64 or x.shape[:2] != q.shape[:2] for x in tensors
                                   if isinstance(x, Tensor)) or () in shapes:
            raise ValueError(f"selection: got {shapes or type(selection).__name__}, wanted a Choice of two int64 "
                             f"tensors (B, H, n) with (B, H) = {tuple(q.shape[:2])}; pass what `select` returns")

    @property
    def causal_scope(self) -> str:
        """WHOLE_PROMPT: the last rows of the prompt choose for all rows."""
        return WHOLE_PROMPT

    def exact_when(self, length: int) -> bool:
        """Return True if all columns or all diagonals are read, or if forced ones and the block leave no gap."""
        last_block = (length - 1) // self.block * self.block
        first_columns = self.forced_vertical if self.vertical >= self.forced_vertical else 0
        near_diagonals = max(1, self.forced_slash) if self.slash >= self.forced_slash else 1
        return (self.vertical >= length or self.slash >= length
                or last_block + 1 - near_diagonals <= first_columns)


def scores_loops(queries: Tensor, keys: Tensor, last: int, scale: float) -> tuple[list[float], list[float]]:
    """Add up the attention of the last rows on each column and each diagonal; queries and keys are (L, D)."""
    length = len(keys)
    by_column, by_offset = [0.0] * length, [0.0] * length
    for i in range(max(0, length - last), length):
        weights = torch.softmax(scale * (keys[: i + 1] @ queries[i]), dim=0)  # (i+1,)
        for t, weight in enumerate(weights.tolist()):
            by_column[t] += weight
            by_offset[i - t] += weight
    return by_column, by_offset


def reads(i: int, t: int, columns: list[int], offsets: list[int], block: int) -> bool:
    """Return whether row i reads token t: one entry of the mask."""
    first_row = i // block * block
    near = any(first_row - o <= t < first_row + block - o for o in offsets)
    return t <= i and (t in columns or near)


def block_index(columns: list[int], offsets: list[int], block: int,
                m: int) -> tuple[list[tuple[int, int]], list[int]]:
    """Return what a kernel loads for row block m: ranges of keys, and single keys to gather.

    Args:
        columns, offsets: the choice of one head; diagonal 0 is among the offsets.
        block: B.
        m: block of rows.

    Returns:
        Half-open ranges, ascending and disjoint, and the columns before the block that are in no range. A
        kernel still has to test keys inside ranges for causality.
    """
    first_row = m * block
    ranges: list[tuple[int, int]] = []
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
