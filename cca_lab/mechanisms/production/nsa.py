"""Native Sparse Attention: three branches with a softmax each, mixed by learnt gates.

    out_i = g^cmp_i out^cmp_i + g^slc_i out^slc_i + g^win_i out^win_i                       (Eq. 5)

* compressed: the pooled key and value of every closed block of b tokens;
* selected: the raw tokens of the n blocks with the highest scores, a row's own block always among
  them; the score of a block is its weight in the compressed branch, summed over the query heads of
  a KV head (Eq. 8 to 10);
* window: the w nearest raw tokens.

Yuan et al., "Native Sparse Attention: Hardware-Aligned and Natively Trainable Sparse Attention",
2025, arXiv 2502.11089.

Differs from the paper:
  * Blocks do not overlap, and are those of the selection: l = d = l' = b, one of the settings of
    its Eq. 9.
  * How keys and values are pooled (a learnt MLP there) is left to the caller, and so are the gates.
  * One set of keys serves all branches; the paper projects keys and values anew for each.
It has three softmaxes where CCA and DeepSeek-V4 have one: a token that is read twice is weighed
twice, by gates.
"""

import torch
from torch import Tensor

from cca_lab.attention.arguments import check_qkv, scale_of
from cca_lab.attention.dense import masked_matrix, weigh
from cca_lab.settings import check_integers

BRANCHES = ("compressed", "selected", "window")


def attend_by_loops(q: Tensor, k: Tensor, v: Tensor, pooled_k: Tensor, pooled_v: Tensor,
                    gates: Tensor, *, block: int, count: int, window: int,
                    scale: float | None = None) -> Tensor:
    """Attend row by row: the specification of `attend`, with its arguments."""
    scale, out = scale_of(scale, q.shape[-1]), torch.zeros_like(q)
    share = q.shape[1] // k.shape[1]
    for b in range(q.shape[0]):
        for kv in range(k.shape[1]):
            group = range(kv * share, (kv + 1) * share)  # the query heads of this KV head
            for i in range(q.shape[2]):
                closed, own_block = (i + 1) // block, i // block
                weights = {h: (scale * (pooled_k[b, kv, :closed] @ q[b, h, i])).softmax(dim=0)
                           for h in group}
                scores = torch.stack(list(weights.values())).sum(dim=0)  # (closed,)
                others = [p for p in _best(scores, count) if p != own_block][: count - 1]
                tokens = sorted(t for p in (*others, own_block)
                                for t in range(p * block, min((p + 1) * block, i + 1)))
                for h in group:
                    branches = [weights[h] @ pooled_v[b, kv, :closed]]
                    for seen in (tokens, range(max(0, i + 1 - window), i + 1)):
                        rows = list(seen)
                        branches.append(
                            (scale * (k[b, kv, rows] @ q[b, h, i])).softmax(dim=0) @ v[b, kv, rows])
                    out[b, h, i] = sum(gate * output for gate, output in zip(gates[b, h, i],
                                                                             branches, strict=True))
    return out


def attend(q: Tensor, k: Tensor, v: Tensor, pooled_k: Tensor, pooled_v: Tensor, gates: Tensor, *,
           block: int, count: int, window: int, scale: float | None = None) -> Tensor:
    """Attend with all rows at once, with dense masks.

    Args:
        q: queries, (B, H, L, D).
        k, v: keys and values, (B, Hk, L, D).
        pooled_k, pooled_v: of each closed block, (B, Hk, floor(L / block), D).
        gates: of the compressed, selected and window branch, (B, H, L, 3).
        block: b, tokens of a block.
        count: n, blocks that a row selects, its own included.
        window: w.
        scale: factor on the dot products; D ** -0.5 by default.

    Returns:
        (B, H, L, D) in q's dtype. Before the first block is closed, the compressed branch is 0.

    Raises:
        ValueError: naming an argument that does not fit.
    """
    check_qkv(q, k, v)
    check_integers(1, block=block, count=count, window=window)
    batch, heads, length, dim = q.shape
    blocks = length // block
    if pooled_k.shape != pooled_v.shape or tuple(
            pooled_k.shape) != (batch, k.shape[1], blocks, dim):
        raise ValueError(
            f"pooled_k, pooled_v: got shapes {tuple(pooled_k.shape)} and {tuple(pooled_v.shape)}, "
            f"wanted {(batch, k.shape[1], blocks, dim)}: one entry for each closed block")
    if tuple(gates.shape) != (batch, heads, length, 3):
        raise ValueError(
            f"gates: got shape {tuple(gates.shape)}, wanted {(batch, heads, length, 3)}: a gate "
            f"for each branch, {', '.join(BRANCHES)}")
    scale, row = scale_of(scale, dim), torch.arange(length, device=q.device)
    closed = torch.arange(blocks, device=q.device) < ((row + 1) // block)[:, None]  # (L, blocks)
    weights = q.new_zeros(batch, heads, length, blocks)
    if blocks:
        weights = masked_matrix(q, pooled_k, closed[None, None], scale)[0].masked_fill(~closed, 0.0)
    tokens = selected(weights, k.shape[1], block, count)  # (B, H, L, L)
    near = (row <= row[:, None]) & (row > row[:, None] - window)
    branches = [weigh(weights, pooled_v) if blocks else torch.zeros_like(q)]
    for visible in (tokens, near[None, None]):
        branches.append(weigh(masked_matrix(q, k, visible, scale)[0], v))
    return (torch.stack(branches, dim=-1) * gates.unsqueeze(-2)).sum(dim=-1).to(q.dtype)


def selected(weights: Tensor, key_heads: int, block: int, count: int) -> Tensor:
    """Return the raw tokens that each row selects by the weights of the compressed branch.

    Weights (B, H, L, closed blocks), 0 where a row does not see a block -> bool (B, H, L, L), the
    row's own block included, up to the row. The query heads of a KV head select together.
    """
    batch, heads, length, blocks = weights.shape
    row = torch.arange(length, device=weights.device)
    own_block = row // block
    scores = weights.detach().unflatten(1, (key_heads, -1)).sum(dim=2)  # (B, Hk, L, blocks)
    block_of = torch.arange(blocks, device=weights.device)
    past = block_of < own_block[:, None]  # its own is chosen anyway
    best = scores.masked_fill(~past, -1.0).topk(min(count - 1, blocks), dim=-1).indices
    chosen = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best, True) & past
    of_token = chosen[..., own_block.clamp(
        max=max(0, blocks - 1))] if blocks else chosen.new_zeros(*scores.shape[:3], length)
    of_token = of_token & (own_block < blocks)  # (B, Hk, L, L)
    mine = own_block == own_block[:, None]
    return ((of_token | mine) & (row <= row[:, None])).repeat_interleave(heads // key_heads, dim=1)


def _best(scores: Tensor, count: int) -> list[int]:
    """Return the blocks with the highest scores, best first; of equal ones the earlier."""
    return sorted(range(len(scores)), key=lambda p: (-float(scores[p]), p))[: count + 1]
