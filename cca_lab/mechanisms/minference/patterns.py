"""The three patterns of a head in MInference, each a mechanism of its own.

Jiang et al., "MInference 1.0: Accelerating Pre-filling for Long-Context LLMs via Dynamic Sparse
Attention", NeurIPS 2024 (Section 3). Rows and tokens count from 0, positions are the original ones.
A-shape is the same for every text; vertical-slash (Algorithm 2) and block-sparse (Algorithm 3)
heads choose, from the prompt, what their rows read.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Unpack

import torch
from torch import Tensor

from cca_lab.attention.arguments import check_tensors
from cca_lab.attention.dense import accumulation_dtype, expand_heads, masked_matrix
from cca_lab.attention.fused import fused, needs_gradient, require_triton
from cca_lab.mechanisms.base import OWN_BLOCK, WHOLE_PROMPT, Call, Keywords, Mechanism
from cca_lab.mechanisms.columns import Columns, attend
from cca_lab.mechanisms.streaming.streaming_llm import intervals
from cca_lab.mechanisms.tokens import attend_loops, best, causal_mask
from cca_lab.settings import check_integers

PAPER = ("Jiang et al., MInference 1.0: Accelerating Pre-filling for Long-Context LLMs via Dynamic "
         "Sparse Attention, NeurIPS 2024, Section 3")


@dataclass(frozen=True, kw_only=True)
class AShape(Mechanism):
    """A-shape: each row reads the first tokens of the text and a local window.

    Row i reads token t if

        t <= i   and   (t < sinks   or   i - t < window)

    The window includes the row's own token, and a first token inside the window is read once. The
    mask equals StreamingLLM's with recent = window - 1 and LM-Infinite's with local = window.

    Attributes:
        sinks: tokens at the start of the text that every row reads, 0 or more.
        window: nearest tokens that a row reads, its own included, 1 or more.
        backend: how attention is computed, as in `interval_attention`; the result is the same.
    """

    sinks: int = 16
    window: int = 80

    name: ClassVar[str] = "a_shape"
    title: ClassVar[str] = "MInference, A-shape"
    paper: ClassVar[str] = PAPER
    sizes: ClassVar[tuple[str, ...]] = ("sinks", "window")
    paper_presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default of the public code": {"sinks": 128, "window": 3968},
        "candidate of its search": {"sinks": 100, "window": 800},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(0, sinks=self.sinks)
        check_integers(1, window=self.window)

    def row_by_row(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        """Compute A-shape attention row by row: the specification."""
        def seen(b: int, h: int, i: int) -> list[int]:
            return [t for t in range(i + 1) if t < self.sinks or i - t < self.window]

        return attend_loops(q, k, v, seen, call.scale)

    def columns(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> list[Columns]:
        """Return one part: [0, min(sinks, w)) and [w, i + 1), w = max(0, i + 1 - window)."""
        row = torch.arange(q.shape[2], device=q.device)
        return [Columns(q, k, v, intervals(row, self.sinks, self.window))]

    def exact_when(self, length: int) -> bool:
        """Return True if the window of the last row leaves no gap after the first tokens."""
        return length <= self.sinks + self.window


@dataclass(frozen=True, kw_only=True)
class BlockSparse(Mechanism):
    """Block-sparse: a block of rows reads the blocks of keys with the best means (Algorithm 3).

    With the mean query and the mean key of each block of B tokens,

        score_mn = scale * mean(q in block m) . mean(k in block n),   n <= m

    block m of rows reads the `top_k` blocks of keys with the highest scores; inside its own block
    each row reads only up to itself. The means of a row's own block include later rows, so rows
    see only their past once the choice is given (`select`, `selection`).

    Differs from the paper and the public code:
      * A block always chooses itself as one of its `top_k` blocks (`force_diagonal`). There the
        score decides, so a row may not read itself; force_diagonal=False does so.
      * The last block may be short; its mean is over the tokens in it. The code fills it with
        zeros, and adds a whole block of zeros if B divides L.
      * Each query head makes its own choice, as in the code, where KV heads are repeated.

    Attributes:
        block: tokens in a block.
        top_k: blocks of keys that a block of rows reads, 1 or more.
        force_diagonal: whether a block of rows always reads its own block.
        backend: how attention is computed, as in `interval_attention`; the result is the same.
    """

    block: int = 16
    top_k: int = 6
    force_diagonal: bool = True

    name: ClassVar[str] = "block_sparse"
    title: ClassVar[str] = "MInference, block-sparse"
    paper: ClassVar[str] = PAPER + ", Algorithm 3"
    sizes: ClassVar[tuple[str, ...]] = ("block", "top_k")
    paper_presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default of the public code": {"block": 64, "top_k": 100, "force_diagonal": False}}
    backends: ClassVar[tuple[str, ...]] = ("dense",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(1, block=self.block, top_k=self.top_k)

    def row_by_row(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        """Compute block-sparse attention block by block (Algorithm 3): the specification."""
        heads, length, block = *q.shape[1:3], self.block
        # no gradient flows through the choice
        queries, keys = q.detach(), expand_heads(k, heads).detach()

        def chosen(b: int, h: int, m: int) -> list[int]:
            if call.selection is not None:
                return call.selection[b, h, m].nonzero().flatten().tolist()
            mean_query = queries[b, h, m * block:m * block + block].mean(0)  # (D,)
            score = [float(keys[b, h, n * block : n * block + block].mean(0) @ mean_query)
                     for n in range(m + 1)]
            best_first = sorted(range(m + 1),
                                key=lambda n: (self.force_diagonal and n < m, -score[n]))
            return best_first[: self.top_k]

        blocks = {(b, h, m): set(chosen(b, h, m)) for b in range(q.shape[0]) for h in range(heads)
                  for m in range(-(-length // block))}

        def seen(b: int, h: int, i: int) -> list[int]:
            return [t for t in range(i + 1) if t // block in blocks[b, h, i // block]]

        return attend_loops(q, k, v, seen, call.scale)

    def columns(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> list[Columns]:
        """Return one part: the tokens, under the mask of the chosen blocks."""
        chosen = self._choose(q, k) if call.selection is None else call.selection  # (B, H, M, M)
        block_of = torch.arange(q.shape[2], device=q.device) // self.block  # of each token
        visible = chosen[:, :, block_of[:, None], block_of] & causal_mask(q.shape[2], q.device)
        return [Columns(q, k, v, visible)]

    def select(self, q: Tensor, k: Tensor, *, scale: float | None = None) -> Tensor:
        """Choose the blocks of keys that each block of rows reads (Algorithm 3, lines 1-4).

        The scale of the logits has no influence: it is the same for all blocks, and positive.

        Returns:
            bool (B, H, M, M), M = ceil(L / block): True where block m of rows reads block n of
            keys.
        """
        self.call(q, k, k, scale=scale)
        return self._choose(q, k)

    @torch.no_grad()
    def _choose(self, q: Tensor, k: Tensor) -> Tensor:
        queries = block_means(q, self.block)  # (B, H, M, D)
        keys, count = expand_heads(block_means(k, self.block), q.shape[1]), queries.shape[2]
        m = torch.arange(count, device=q.device)
        rank = torch.where(m == m[:, None], 0 if self.force_diagonal else 1,
                           1).masked_fill(m > m[:, None], 2)
        chosen = best(queries @ keys.mT, min(self.top_k, count), rank)  # (B, H, M, top_k)
        return torch.zeros(*q.shape[:2], count, count, dtype=torch.bool,
                           device=q.device).scatter(-1, chosen, True) & (m <= m[:, None])

    def check_choice(self, selection: Any, q: Tensor, k: Tensor) -> None:
        """Raise ValueError unless a selection chooses blocks of a text as long as q or longer."""
        check_tensors(selection=selection)
        blocks = -(-q.shape[2] // self.block)
        if selection.dtype != torch.bool or selection.dim() != 4 or min(
                selection.shape[-2:]) < blocks:
            raise ValueError(f"selection: got {selection.dtype} {tuple(selection.shape)}, wanted "
                             f"bool (B, H, M, M) with M at least {blocks}; pass what `select` "
                             "returned for this text or a longer one")

    @property
    def causal_scope(self) -> str:
        """OWN_BLOCK: the mean query of a block includes its later rows."""
        return OWN_BLOCK

    def exact_when(self, length: int) -> bool:
        """Return True if every block is chosen."""
        return length <= self.block * self.top_k


def block_means(x: Tensor, block: int) -> Tensor:
    """Return the mean of each block, the last one short, (B, h, ceil(L/block), D)."""
    length = x.shape[2]
    block = min(block, length)  # memory goes with the text, whatever the option
    missing = -length % block
    sums = torch.nn.functional.pad(x.to(accumulation_dtype(x.dtype)), (0, 0, 0, missing))
    sums = sums.unflatten(2, (-1, block)).sum(3)
    tokens = torch.full((sums.shape[2], 1), block, dtype=sums.dtype, device=x.device)
    tokens[-1] -= missing
    return sums / tokens


class Choice(NamedTuple):
    """The columns, int64 (B, H, vertical), and diagonals, (B, H, slash), of a prompt, ascending."""

    columns: Tensor
    offsets: Tensor


@dataclass(frozen=True, kw_only=True)
class VerticalSlash(Mechanism):
    """Vertical-slash: rows read the columns and diagonals that the last rows choose (Algorithm 2).

    With A the causal attention of the last rows of the prompt, a column's score is the accumulated
    attention on its token, and a diagonal's score the accumulated attention at its distance:

        column_t = sum_i A_it        diagonal_o = sum_i A_i,i-o        i in [L - last, L)

    All rows read the `vertical` columns and `slash` diagonals with the highest scores. A kernel
    reads a diagonal in blocks of B: row i of block m = floor(i / B) reads token t if

        t <= i   and   (t is a chosen column   or   mB - o <= t < mB + B - o for a chosen o)

    The choice uses queries that are later than most rows, so rows see only their past once the
    choice is given (`select`, `selection`). With `block` = 1 each diagonal is one token wide.

    Differs from the paper and the public code:
      * The public index builder widens further: the range of a diagonal that leaves the text
        becomes [0, B), and a range that overlaps the one before extends it by a whole B. Here
        ranges are cut and merged exactly.
      * Diagonal 0 is always chosen, so that a row reads itself (in the public code only if `slash`
        is at least the 100 forced diagonals). A column is never dropped (there it is, if it lies
        behind the last range).
      * Forced columns and diagonals count in the budget, as there; sizes have no lower bound (there
        30 and 50).
      * Each query head makes its own choice, as there, where KV heads are repeated.

    Attributes:
        vertical: columns that are read, forced ones included; 0 for none.
        slash: diagonals that are read, forced ones included; 1 or more.
        last: rows at the end of the prompt that make the choice.
        forced_vertical: first tokens of the text, chosen before all other columns.
        forced_slash: nearest diagonals, chosen before all others.
        block: B, rows of a block, and width of a diagonal for them.
        backend: "dense" (with the mask, memory L * L), "triton" (one kernel, forward only), or
            "auto": the kernel on a GPU if no gradient is needed.
    """

    vertical: int = 24
    slash: int = 24
    last: int = 32
    forced_vertical: int = 4
    forced_slash: int = 16
    block: int = 16

    name: ClassVar[str] = "vertical_slash"
    title: ClassVar[str] = "MInference, vertical-slash"
    paper: ClassVar[str] = PAPER + ", Algorithm 2"
    sizes: ClassVar[tuple[str, ...]] = ("vertical", "slash", "last", "forced_vertical",
                                        "forced_slash", "block")
    paper_presets: ClassVar[dict[str, dict[str, Any]]] = {
        "public code where a head has no configuration": {"vertical": 1000, "slash": 6096,
                                                          "last": 64, "forced_vertical": 30,
                                                          "forced_slash": 100, "block": 64}}
    backends: ClassVar[tuple[str, ...]] = ("dense", "triton")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(0, vertical=self.vertical, forced_vertical=self.forced_vertical,
                       forced_slash=self.forced_slash)
        check_integers(1, slash=self.slash, last=self.last, block=self.block)

    def row_by_row(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        """Compute vertical-slash attention token by token (Algorithm 2): the specification."""
        batch, heads, length, _ = q.shape
        keys, chosen = expand_heads(k, heads), {}
        for b in range(batch):
            for h in range(heads):
                if call.selection is not None:
                    columns, offsets = (x[b, h].tolist() for x in call.selection)
                    chosen[b, h] = columns, offsets
                    continue
                by_column, by_offset = scores_loops(q[b, h], keys[b, h], self.last, call.scale)
                columns = sorted(
                    (t >= self.forced_vertical, -score, t) for t, score in enumerate(by_column))
                offsets = sorted(
                    (o > 0, o >= self.forced_slash, -score, o) for o, score in enumerate(by_offset))
                chosen[b, h] = [t for *_, t in columns[:self.vertical]], [o for *_,
                                                                          o in offsets[:self.slash]]

        def seen(b: int, h: int, i: int) -> list[int]:
            return [t for t in range(i + 1) if reads(i, t, *chosen[b, h], self.block)]

        return attend_loops(q, k, v, seen, call.scale)

    def columns(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> list[Columns]:
        """Return one part: the tokens, under the mask of the chosen columns and diagonals."""
        columns, offsets = call.selection or self._choose(q, k, call.scale)
        length, device = q.shape[2], q.device
        token = torch.arange(length, device=device)
        on_column = (columns[..., None] == token).any(-2)  # (B, H, L)
        reach = int(offsets.max()) + 1  # no diagonal lies farther
        # offsets below 0 .. reach
        count = (offsets[..., None] < torch.arange(reach + 1, device=device)).sum(-2)
        # (M, L) first row - t
        behind = torch.arange(0, length, self.block, device=device)[:, None] - token
        nearest, farthest = ((behind + width).clamp(0, reach) for width in (0, self.block))
        # (B, H, L, L)
        near = (count[..., farthest] > count[..., nearest])[:, :, token // self.block]
        return [Columns(q, k, v, (near | on_column[:, :, None]) & causal_mask(length, device))]

    def attention(self, q: Tensor, k: Tensor, v: Tensor, **keywords: Unpack[Keywords]) -> Tensor:
        """Attend with all rows at once; ValueError also if "triton" cannot run."""
        call = self.call(q, k, v, **keywords)
        recorded = needs_gradient(q, k, v)
        if self.backend == "dense" or (self.backend == "auto" and (recorded or not fused(q))):
            return attend(self.columns(q, k, v, call), call.scale, "dense")
        if recorded:
            raise ValueError("backend: got 'triton' for a gradient, wanted 'dense' or 'auto'; this "
                             "kernel has no backward")
        require_triton()
        # triton exists for Linux only
        from cca_lab.attention.kernels.vertical_slash import triton_vertical_slash

        columns, offsets = call.selection or self._choose(q, k, call.scale)
        return triton_vertical_slash(q, k, v, columns, offsets, self.block, call.scale)

    def select(self, q: Tensor, k: Tensor, *, scale: float | None = None) -> Choice:
        """Choose columns and diagonals by the last rows (Algorithm 2, lines 1-3)."""
        return self._choose(q, k, self.call(q, k, k, scale=scale).scale)

    @torch.no_grad()
    def _choose(self, q: Tensor, k: Tensor, scale: float) -> Choice:
        length, token = q.shape[2], torch.arange(q.shape[2], device=q.device)
        row = token[-self.last :, None]                                                   # (R, 1)
        # (B, H, R, L)
        weights, _ = masked_matrix(q[:, :, -self.last:], k, (token <= row)[None, None], scale)
        behind = row - token  # (R, L) row - offset
        on_diagonals = weights.gather(-1, behind.clamp(min=0).expand_as(weights)) * (behind >= 0)
        columns = best(weights.sum(-2), min(self.vertical, length),
                       (token >= self.forced_vertical).long())
        nearest = (token > 0).long() + (token >= self.forced_slash)  # 0, 1 ... 1, 2 ... 2
        return Choice(columns, best(on_diagonals.sum(-2), min(self.slash, length), nearest))

    def check_choice(self, selection: Any, q: Tensor, k: Tensor) -> None:
        """Raise ValueError unless a selection is a `Choice` for the heads of q."""
        tensors = selection if isinstance(selection, tuple) and len(selection) == 2 else ()
        shapes = [tuple(getattr(x, "shape", ())) for x in tensors]
        if len(shapes) != 2 or any(x.dtype != torch.int64 or x.shape[:2] != q.shape[:2]
                                   for x in tensors if isinstance(x, Tensor)) or () in shapes:
            raise ValueError(f"selection: got {shapes or type(selection).__name__}, wanted a "
                             "Choice of two int64 tensors (B, H, n) with (B, H) = "
                             f"{tuple(q.shape[:2])}; pass what `select` returns")

    @property
    def causal_scope(self) -> str:
        """WHOLE_PROMPT: the last rows of the prompt choose for all rows."""
        return WHOLE_PROMPT

    def exact_when(self, length: int) -> bool:
        """Return True if all columns or diagonals are read, or the forced ones leave no gap."""
        last_block = (length - 1) // self.block * self.block
        first_columns = self.forced_vertical if self.vertical >= self.forced_vertical else 0
        near_diagonals = max(1, self.forced_slash) if self.slash >= self.forced_slash else 1
        return (self.vertical >= length or self.slash >= length
                or last_block + 1 - near_diagonals <= first_columns)


def scores_loops(queries: Tensor, keys: Tensor, last: int,
                 scale: float) -> tuple[list[float], list[float]]:
    """Add up the attention of the last rows on each column and diagonal; queries, keys (L, D)."""
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
