"""Block-sparse heads of MInference: each block of rows reads the blocks of keys whose means score highest.

Jiang et al., "MInference 1.0", NeurIPS 2024 (Section 3, Algorithm 3). Rows and tokens count from 0,
B is the block size. With the mean query and the mean key of each block,

    score_mn = scale * mean(q in block m) . mean(k in block n),   n <= m

block m of rows reads the `top_k` blocks of keys with the highest scores; inside its own block each row reads
only up to itself. The mean query of a block and the mean key of the row's own block include later rows, so
rows see only their past once the choice is given (`select`, `selection`).

Differs from the paper and the public code:
  * A block always chooses itself as one of its `top_k` blocks (`force_diagonal`). The paper and the code
    leave that to the score, so a row may not read itself; force_diagonal=False does the same.
  * The last block may be short; its mean is over the tokens in it. The code fills it with zeros, and adds
    a whole block of zeros if B divides L.
  * Each query head makes its own choice, as in the code, where KV heads are repeated.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from cca_lab.attention.arguments import check_tensors
from cca_lab.attention.dense import accumulation_dtype
from cca_lab.mechanisms import masked
from cca_lab.mechanisms.base import OWN_BLOCK, Call, Mechanism
from cca_lab.mechanisms.columns import Columns
from cca_lab.mechanisms.inputs import check_positive, expand_heads


@dataclass(frozen=True, kw_only=True)
class BlockSparse(Mechanism):
    """Each block of rows reads the blocks of keys whose means score highest.

    Attributes:
        block: tokens in a block.
        top_k: blocks of keys that a block of rows reads, 1 or more.
        force_diagonal: whether a block of rows always reads its own block.
    """

    block: int = 16
    top_k: int = 6
    force_diagonal: bool = True

    name: ClassVar[str] = "block_sparse"
    title: ClassVar[str] = "MInference, block-sparse"
    paper: ClassVar[str] = ("Jiang et al., MInference 1.0: Accelerating Pre-filling for Long-Context LLMs via Dynamic "
                            "Sparse Attention, NeurIPS 2024, Section 3, Algorithm 3")
    sizes: ClassVar[tuple[str, ...]] = ("block", "top_k")
    paper_presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default of the public code": {"block": 64, "top_k": 100, "force_diagonal": False}}
    backends: ClassVar[tuple[str, ...]] = ("dense",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(block=self.block, top_k=self.top_k)

    def row_by_row(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        """Compute block-sparse attention block by block and row by row (Algorithm 3): the specification."""
        heads, length, block = *q.shape[1:3], self.block
        queries, keys = q.detach(), expand_heads(k, heads).detach()  # no gradient flows through the choice

        def chosen(b: int, h: int, m: int) -> list[int]:
            if call.selection is not None:
                return call.selection[b, h, m].nonzero().flatten().tolist()
            mean_query = queries[b, h, m * block : m * block + block].mean(0)                   # (D,)
            score = [float(keys[b, h, n * block : n * block + block].mean(0) @ mean_query) for n in range(m + 1)]
            best_first = sorted(range(m + 1), key=lambda n: (self.force_diagonal and n < m, -score[n]))
            return best_first[: self.top_k]

        blocks = {(b, h, m): set(chosen(b, h, m))
                  for b in range(q.shape[0]) for h in range(heads) for m in range(-(-length // block))}

        def seen(b: int, h: int, i: int) -> list[int]:
            return [t for t in range(i + 1) if t // block in blocks[b, h, i // block]]

        return masked.attend_loops(q, k, v, seen, call.scale)

    def columns(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> list[Columns]:
        """Return one part: the tokens, under the mask of the chosen blocks."""
        chosen = self.select(q, k) if call.selection is None else call.selection          # (B, H, M, M)
        own = torch.arange(q.shape[2], device=q.device) // self.block                     # the block of each token
        return [Columns(q, k, v, chosen[:, :, own[:, None], own] & masked.causal_mask(q.shape[2], q.device))]

    @torch.no_grad()
    def select(self, q: Tensor, k: Tensor, *, scale: float | None = None) -> Tensor:
        """Choose the blocks of keys that each block of rows reads (Algorithm 3, lines 1-4).

        The scale of the logits has no influence: it is the same for all blocks, and positive.

        Returns:
            bool (B, H, M, M), M = ceil(L / block): True where block m of rows reads block n of keys.
        """
        self.call(q, k, k, scale)
        queries = block_means(q, self.block)                                              # (B, H, M, D)
        keys, count = expand_heads(block_means(k, self.block), q.shape[1]), queries.shape[2]
        m = torch.arange(count, device=q.device)
        rank = torch.where(m == m[:, None], 0 if self.force_diagonal else 1, 1).masked_fill(m > m[:, None], 2)
        chosen = masked.best(queries @ keys.mT, min(self.top_k, count), rank)             # (B, H, M, top_k)
        return torch.zeros(*q.shape[:2], count, count, dtype=torch.bool, device=q.device).scatter(
            -1, chosen, True) & (m <= m[:, None])

    def check_choice(self, selection: Any, q: Tensor, k: Tensor) -> None:
        """Raise ValueError unless a selection is a choice of blocks for texts of at least the length of q."""
        check_tensors(selection=selection)
        blocks = -(-q.shape[2] // self.block)
        if selection.dtype != torch.bool or selection.dim() != 4 or min(selection.shape[-2:]) < blocks:
            raise ValueError(f"selection: got {selection.dtype} {tuple(selection.shape)}, wanted bool (B, H, M, M) "
                             f"with M at least {blocks}; pass what `select` returned for this text or a longer one")

    @property
    def causal_scope(self) -> str:
        """OWN_BLOCK: the mean query of a block includes its later rows."""
        return OWN_BLOCK

    def exact_when(self, length: int) -> bool:
        """Return True if every block is chosen."""
        return length <= self.block * self.top_k


def block_means(x: Tensor, block: int) -> Tensor:
    """Return the mean of each block, the last one over its own tokens: (B, h, L, D) -> (B, h, ceil(L/block), D)."""
    length = x.shape[2]
    missing = -length % block
    sums = torch.nn.functional.pad(x.to(accumulation_dtype(x.dtype)), (0, 0, 0, missing))
    sums = sums.unflatten(2, (-1, block)).sum(3)
    tokens = torch.full((sums.shape[2], 1), block, dtype=sums.dtype, device=x.device)
    tokens[-1] -= missing
    return sums / tokens
