"""The equation that all mechanisms share: a row attends to columns, tokens or means of tokens.

    out_i = sum_j A_ij (P v)_j,   A_i = softmax of scale * q_i . k_j over the columns j of row i

`Columns` holds keys, values, which rows see them (intervals or a mask) and P; each mechanism
returns a list of them. The output, the effective matrix E = A P and the represented tokens are
derived here for all mechanisms.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import torch
from torch import Tensor
from torch.nn.functional import pad

from cca_lab.attention import check_intervals, visible_mask
from cca_lab.attention.dense import accumulation_dtype, expand_heads, masked_checked, product
from cca_lab.attention.interval_attention import attend_checked, merge
from cca_lab.attention.sources import Source, tensors_of, whole


@dataclass(frozen=True)
class Columns:
    """The columns that rows attend to with one set of queries; all sets share one softmax.

    Attributes:
        q: queries of the rows from `first_row` on, (B, H, L - first_row, D).
        keys, values: (B, Hc, N, D), Hc a divisor of H; or two such tensors, pooled columns and
            raw tokens, whose columns follow each other.
        visible: columns of each row, T = L - first_row: intervals, int64 (b, h, T, n, 2), or a
            mask, bool (b, h, T, N); a mask only if there is one set.
        pooling: a function that computes P, (b, Hp, N, L), the weight of each token in each column.
            None if column t is token t.
        first_row: rows before it see none of these columns. 0 in the first set of a mechanism.
        reach: as `pooling`, a function that computes weights above 0 at the same tokens, however
            small those of P are, which may be rounded to 0; None if they cannot be.
        bias: a number that is added to the scores of all these columns.
    """

    q: Tensor
    keys: Source
    values: Source
    visible: Tensor
    pooling: Callable[[], Tensor] | None = None
    first_row: int = 0
    reach: Callable[[], Tensor] | None = None
    bias: float = 0.0

    @property
    def count(self) -> int:
        """The number of columns, N."""
        return sum(x.shape[2] for x in tensors_of(self.keys))

    @property
    def heads(self) -> int:
        """The number of heads that have columns of their own, Hc."""
        return tensors_of(self.keys)[0].shape[1]

    def mask(self) -> Tensor:
        """Return which columns each of all L rows sees as a mask, bool (b, h, L, N)."""
        seen = self.visible
        if seen.dtype != torch.bool:
            batch, heads, rows = self.q.shape[:3]
            check_intervals(seen, batch, heads, rows, self.count)
            seen = visible_mask(seen, self.count)
        return pad(seen, (0, 0, self.first_row, 0))

    def on_tokens(self, weights: Tensor, length: int) -> Tensor:
        """Multiply weights of columns (B, H, L, N) by P: weights of tokens, (B, H, L, L)."""
        if self.pooling is None:
            return pad(weights, (0, length - weights.shape[-1]))
        pooling = self.pooling()
        batch, heads, shape = self.q.shape[0], self.q.shape[1], tuple(pooling.shape)
        if len(shape) != 4 or shape[0] not in (1, batch) or shape[1] not in (1, self.heads, heads) \
                or shape[2:] != (self.count, length):
            raise ValueError(
                f"pooling: got shape {shape}, wanted (1 or {batch}, 1, {self.heads} or {heads}, "
                f"{self.count}, {length}): one row for each column, one entry for each raw token")
        pooling = pooling if pooling.shape[1] == 1 else expand_heads(pooling, weights.shape[1])
        return product(weights, pooling.to(weights.dtype))


def behind(pooled: Tensor, raw: Tensor) -> Source:
    """Return raw tokens (B, H, L, D) behind what is pooled, (B, H, C, D), if there is any."""
    return (pooled, raw) if pooled.shape[2] else raw


def attend(sets: Sequence[Columns], scale: float, backend: str) -> Tensor:
    """Return the output (B, H, L, D) of one softmax over all sets, merged by their log-sum-exp."""
    first, *others = sets
    if not others and first.visible.dtype == torch.bool:
        return masked_checked(first.q, whole(first.keys), whole(first.values), first.visible, scale)
    out, lse = _with_lse(first, scale, backend)
    for columns in others:
        rows = slice(columns.first_row, None)
        merged, sums = merge(*zip((out[:, :, rows], lse[:, :, rows]),
                                  _with_lse(columns, scale, backend), strict=True))
        out = torch.cat([out[:, :, : columns.first_row], merged], dim=2)
        lse = torch.cat([lse[:, :, : columns.first_row], sums], dim=2)
    return out


def _with_lse(columns: Columns, scale: float, backend: str) -> tuple[Tensor, Tensor]:
    out, lse = attend_checked(columns.q, columns.keys, columns.values, columns.visible, scale,
                              backend)
    return out, lse + columns.bias


def effective(sets: Sequence[Columns], scale: float) -> Tensor:
    """Return E = A P, (B, H, L, L), for which the output is E v."""
    length = sets[0].q.shape[2]
    weights = logits(sets, scale).softmax(dim=-1)
    return reduce(add,
                  (columns.on_tokens(share, length) for columns, share in _shares(sets, weights)))


def represented(sets: Sequence[Columns]) -> Tensor:
    """Return which tokens a row attends to, raw or pooled, weight above 0: bool (B, H, L, L)."""
    batch, heads, length = sets[0].q.shape[:3]
    device = sets[0].q.device
    sets = [replace(columns, pooling=columns.reach or columns.pooling) for columns in sets]
    reach = [columns.on_tokens(columns.mask().to(device).expand(batch, heads, -1, -1).float(),
                               length) > 0 for columns in sets]
    return torch.stack(reach).any(dim=0)


def logits(sets: Sequence[Columns], scale: float) -> Tensor:
    """Return the logits of all columns, (B, H, L, N), -inf for columns that a row does not see."""
    dtype, scores = accumulation_dtype(sets[0].q.dtype), []
    for columns in sets:
        keys = expand_heads(whole(columns.keys), columns.q.shape[1]).to(dtype)
        products = pad(scale * product(columns.q.to(dtype), keys.mT) + columns.bias,
                       (0, 0, columns.first_row, 0))
        scores.append(products.masked_fill(~columns.mask().to(keys.device), float("-inf")))
    return torch.cat(scores, dim=-1)


def weigh(sets: Sequence[Columns], weights: Tensor) -> Tensor:
    """Return the values of all columns, weighted by (B, H, L, N): (B, H, L, D)."""
    heads, dtype = weights.shape[1], sets[0].q.dtype
    return reduce(add, (product(share, expand_heads(whole(columns.values), heads).to(share.dtype))
                        for columns, share in _shares(sets, weights))).to(dtype)


def _shares(sets: Sequence[Columns], weights: Tensor) -> Iterator[tuple[Columns, Tensor]]:
    """Split weights (B, H, L, N) by set: pairs of columns and their weights."""
    return zip(sets, weights.split([columns.count for columns in sets], dim=-1), strict=True)
