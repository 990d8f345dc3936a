"""Block-sparse heads of MInference: for each block of rows, the blocks of keys whose means match best.

Jiang et al., "MInference 1.0", NeurIPS 2024 (Section 3, Algorithm 3). Rows and tokens count from 0,
B is the block size. With the mean query and the mean key of each block,

    score_mn = scale * mean(q in block m) . mean(k in block n),   n <= m

block m of rows reads the `top_k` best blocks of keys, inside its own block only up to each row itself.
The mean query holds later rows of the block, and so does the mean key of the block itself: rows see
their past only once the choice is given (`select`, `selection`).

Differs from the paper and the public code:
  * A block is always among its own choices, in one of the `top_k` places (`force_diagonal`); the paper and
    the code leave that to the score, and a row may then not read itself. False for that.
  * The last block may be short and is then the mean of what it holds; the code fills it with zeros, and adds
    a whole block of them where B divides L.
  * Each query head chooses for itself, as in the code, where KV heads are repeated.
"""

from typing import Any

import torch
from torch import Tensor

from cca_lab.attention.arguments import check_tensors
from cca_lab.attention.dense import accumulation_dtype
from cca_lab.mechanisms import masked
from cca_lab.mechanisms.inputs import check_positive, check_qkv, expand_heads
from cca_lab.mechanisms.mechanism import OWN_BLOCK, Mechanism
from cca_lab.mechanisms.rotary import Rotation


def loops(q: Tensor, k: Tensor, v: Tensor, *, block: int, top_k: int, force_diagonal: bool = True,
          scale: float | None = None, rotation: Rotation | None = None,
          selection: Tensor | None = None) -> Tensor:
    """Block-sparse attention, block by block and row by row (Algorithm 3). The specification.

    Args:
        q: queries, (B, H, L, D).
        k, v: keys and values, (B, Hk, L, D); H is a multiple of Hk.
        block: tokens of a block.
        top_k: blocks of keys that a block of rows reads, 1 or more.
        force_diagonal: whether a block of rows always reads its own block.
        scale: factor on the dot products; None means D**-0.5.
        rotation: not used; keys keep the positions they were rotated to.
        selection: what `select` returned, to repeat that choice.

    Returns:
        (B, H, L, D), in the dtype of q.

    Raises:
        ValueError: if an option or a shape does not fit.
    """
    check_inputs(q, k, v, block, top_k, selection)
    heads, length = q.shape[1:3]
    queries, keys = q.detach(), expand_heads(k, heads).detach()  # no gradient flows through the choice

    def chosen(b: int, h: int, m: int) -> list[int]:
        if selection is not None:
            return selection[b, h, m].nonzero().flatten().tolist()
        judge = queries[b, h, m * block : m * block + block].mean(0)                        # (D,)
        match = [float(keys[b, h, n * block : n * block + block].mean(0) @ judge) for n in range(m + 1)]
        best_first = sorted(range(m + 1), key=lambda n: (force_diagonal and n < m, -match[n]))
        return best_first[:top_k]

    blocks = {(b, h, m): set(chosen(b, h, m))
              for b in range(q.shape[0]) for h in range(heads) for m in range(-(-length // block))}

    def seen(b: int, h: int, i: int) -> list[int]:
        return [t for t in range(i + 1) if t // block in blocks[b, h, i // block]]

    return masked.attend_loops(q, k, v, seen, scale)


@torch.no_grad()
def select(q: Tensor, k: Tensor, *, block: int, top_k: int, force_diagonal: bool = True, **_: Any) -> Tensor:
    """Choose the blocks of keys that each block of rows reads (Algorithm 3, lines 1-4).

    The scale of the logits does not matter: it is the same for all blocks, and positive.

    Args:
        q, k, block, top_k, force_diagonal: as in `loops`.

    Returns:
        bool (B, H, M, M), M = ceil(L / block): True where block m of rows reads block n of keys.
    """
    check_inputs(q, k, k, block, top_k)
    judges, keys = block_means(q, block), expand_heads(block_means(k, block), q.shape[1])  # (B, H, M, D) each
    count = judges.shape[2]
    m = torch.arange(count, device=q.device)
    rank = torch.where(m == m[:, None], 0 if force_diagonal else 1, 1).masked_fill(m > m[:, None], 2)
    chosen = masked.best(judges @ keys.mT, rank, min(top_k, count))                   # (B, H, M, top_k)
    return torch.zeros(*q.shape[:2], count, count, dtype=torch.bool, device=q.device).scatter(
        -1, chosen, True) & (m <= m[:, None])


def block_means(x: Tensor, block: int) -> Tensor:
    """Average each block of tokens, the last one over what it holds: (B, h, L, D) -> (B, h, ceil(L/block), D)."""
    length = x.shape[2]
    missing = -length % block
    sums = torch.nn.functional.pad(x.to(accumulation_dtype(x.dtype)), (0, 0, 0, missing))
    sums = sums.unflatten(2, (-1, block)).sum(3)
    held = torch.full((sums.shape[2], 1), block, dtype=sums.dtype, device=x.device)
    held[-1] -= missing
    return sums / held


def represented(q: Tensor, k: Tensor, *, block: int, top_k: int, force_diagonal: bool = True,
                selection: Tensor | None = None, **_: Any) -> Tensor:
    """Return which tokens each row reads, bool (B, H, L, L); the options are those of `loops`."""
    check_inputs(q, k, k, block, top_k, selection)
    chosen = select(q, k, block=block, top_k=top_k, force_diagonal=force_diagonal) if selection is None else selection
    of = torch.arange(q.shape[2], device=q.device) // block                           # the block of each token
    return chosen[:, :, of[:, None], of] & masked.causal_mask(q.shape[2], q.device)


def attention(q: Tensor, k: Tensor, v: Tensor, *, block: int, top_k: int, force_diagonal: bool = True,
              scale: float | None = None, rotation: Rotation | None = None, selection: Tensor | None = None,
              backend: str = "auto") -> Tensor:
    """Block-sparse attention under its mask, all rows at once; arguments, result and errors of `loops`."""
    check_qkv(q, k, v)
    visible = represented(q, k, block=block, top_k=top_k, force_diagonal=force_diagonal, selection=selection)
    return masked.attend(q, k, v, visible, scale=scale, backend=backend)


def effective(q: Tensor, k: Tensor, *, scale: float | None = None, **options: Any) -> Tensor:
    """Return the attention matrix E, (B, H, L, L), with attention(q, k, v) = E v; options of `loops`."""
    return masked.matrix(q, k, represented(q, k, **options), scale=scale)


def check_inputs(q: Tensor, k: Tensor, v: Tensor, block: int, top_k: int,
                 selection: Tensor | None = None) -> None:
    """Raise ValueError naming the first argument that block-sparse attention cannot take."""
    check_qkv(q, k, v)
    check_positive(block=block, top_k=top_k)
    blocks = -(-q.shape[2] // block)
    if selection is not None:
        check_tensors(selection=selection)
    if selection is not None and (selection.dtype != torch.bool or min(selection.shape[-2:]) < blocks):
        raise ValueError(f"selection: got {selection.dtype} {tuple(selection.shape)}, wanted bool (B, H, M, M) "
                         f"with M at least {blocks}; pass what `select` returned for this text or a longer one")


def exact_when(length: int, *, block: int, top_k: int, **_: Any) -> bool:
    """Every block is chosen."""
    return length <= block * top_k


MECHANISM = Mechanism(
    name="block_sparse",
    title="MInference, block-sparse",
    paper="Jiang et al., MInference 1.0: Accelerating Pre-filling for Long-Context LLMs via Dynamic Sparse "
          "Attention, NeurIPS 2024, Section 3, Algorithm 3",
    loops=loops,
    attention=attention,
    effective=effective,
    represented=represented,
    select=select,
    defaults={"block": 16, "top_k": 6},
    paper_presets={"default of the public code": {"block": 64, "top_k": 100, "force_diagonal": False}},
    causal_scope=lambda **_: OWN_BLOCK,
    needs_training=False,
    exact_when=exact_when,
    rungs=("dense",),
)
