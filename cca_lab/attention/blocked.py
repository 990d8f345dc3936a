"""The blocked backend: interval attention in a few large tiles, in memory linear in L and N.

Partial outputs o_a, o_b of a row merge exactly by their log-normalisers l_a, l_b:

    lse = log(exp(l_a) + exp(l_b)),   out = o_a + (o_b - o_a) * sigmoid(l_b - l_a).

The backward keeps only q, k, v, out and lse (as FlashAttention-2 does): given the lse and output of
the whole row, each tile returns its terms of the exact gradient, and the terms add up.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cca_lab.attention.dense import accumulation_dtype
from cca_lab.attention.eager import eager
from cca_lab.attention.fused import refuse_second_derivative
from cca_lab.attention.plan import TileBatch, plan_of
from cca_lab.attention.sources import Source, halves, split_intervals, tensors_of
from cca_lab.attention.tiles import side_by_side, tile_for


@eager
def blocked_attention(q: Tensor, k: Source, v: Source, intervals: Tensor, scale: float,
                      block: int | None = None) -> tuple[Tensor, Tensor]:
    """Compute `dense_attention` in linear memory, differentiable once through out and lse.

    Args:
        q, k, v, intervals, scale: as in `dense_attention`.
        block: query rows of a block; None lets the planner choose. The result is always the same.
    """
    keys = tensors_of(k)
    tables = split_intervals(intervals, [x.shape[2] for x in keys])
    return _BlockedAttention.apply(q, tables, scale, block, *keys, *tensors_of(v))


class _BlockedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, tables: tuple[Tensor, ...], scale: float, block: int | None,
                *columns: Tensor) -> tuple[Tensor, Tensor]:
        share = q.shape[1] // columns[0].shape[1]
        work = [_problems(table, share, block) for table in tables]  # of each source
        dtype = accumulation_dtype(q.dtype)
        out = torch.zeros(q.shape, dtype=dtype, device=q.device)
        lse = torch.full(q.shape[:-1], float("-inf"), dtype=dtype, device=q.device)
        for items, k, v in zip(work, *halves(columns), strict=True):
            for item in items:
                item.attend(q, k, v, out, lse, scale)
        out = out.to(q.dtype)
        ctx.save_for_backward(q, out, lse, *columns)
        ctx.work, ctx.scale = work, scale
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor | None,
                 grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("blocked attention")
        q, out, lse, *columns = ctx.saved_tensors
        if grad_out is None and grad_lse is None:
            return None, None, None, None, *(None for _ in columns)
        grad_out = torch.zeros_like(out) if grad_out is None else grad_out
        keys, values = halves(columns)
        head_dim = q.shape[-1]
        if grad_lse is not None:
            q, keys, values, out, grad_out = _append_lse_gradient(q, keys, values, out, grad_out,
                                                                  grad_lse)
        grad_out = grad_out.contiguous()
        grad_q, *grads = (torch.zeros(x.shape, dtype=lse.dtype, device=x.device)
                          for x in (q, *keys, *values))
        for items, *of_source in zip(ctx.work, keys, values, *halves(grads), strict=True):
            for item in items:
                item.differentiate(grad_out, q, out, lse, grad_q, *of_source, ctx.scale)
        grad_q, *grads = (grad[..., :head_dim].to(q.dtype) for grad in (grad_q, *grads))
        return grad_q, None, None, None, *grads


def _append_lse_gradient(
    q: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor], out: Tensor, grad_out: Tensor,
    grad_lse: Tensor,
) -> tuple[Tensor, list[Tensor], list[Tensor], Tensor, Tensor]:
    """Append the gradient of lse as one more feature, so that the tiles need no argument for it.

    ds = p * (do . v - do . out + dlse): appending dlse to do, 1 to v and 0 to out adds exactly
    dlse, and zeros appended to q and k do not change the logits.
    """
    pad = torch.nn.functional.pad
    extended = torch.cat([grad_out, grad_lse.unsqueeze(-1).to(grad_out.dtype)], dim=-1)
    return (pad(q, (0, 1)), [pad(k, (0, 1)) for k in keys],
            [pad(v, (0, 1), value=1.0) for v in values], pad(out, (0, 1)), extended)


@dataclass(frozen=True)
class _WorkItem:
    """The slice of batch and heads that has the same intervals of one source, and their plan.

    Batch and KV head form one axis G, the queries per KV head another, r: queries (G, r, L, D),
    keys (G, N, D). A tile then takes (G, U, rows, D), where U is the tiles of a batch of several
    tiles, or the r query heads for a batch of one.
    """

    batch: slice
    heads: slice
    key_heads: slice
    queries_per_key: int
    plan: tuple[TileBatch, ...]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
               scale: float) -> None:
        """Merge every tile into `out` (initially zeros) and `lse` (initially -inf), in place."""
        tile = tile_for(q.device, q.dtype, scale)
        k, v = self._columns(k), self._columns(v)
        q, out, lse = self._rows(q), self._rows(out), self._rows(lse)
        for tiles in self.plan:
            mask, masked_rows = tiles.mask(q.dtype, q.device), tiles.blind_rows(q.device)
            keys, values = (_blocks_of_columns(x, tiles, self.queries_per_key) for x in (k, v))
            for head in _passes(tiles, self.queries_per_key):
                queries = _blocks_of_rows(q, tiles, head)
                part_out, part_lse = tile.forward(queries, keys, values, mask, tiles.causal, scale)
                if masked_rows is not None:
                    part_lse = part_lse.masked_fill(masked_rows, float("-inf"))
                _merge(_blocks_of_rows(out, tiles, head), _blocks_of_rows(lse, tiles, head),
                       part_out, part_lse)

    def differentiate(self, grad_out: Tensor, q: Tensor, out: Tensor, lse: Tensor, grad_q: Tensor,
                      k: Tensor, v: Tensor, grad_k: Tensor, grad_v: Tensor, scale: float) -> None:
        """Add the gradients of this work item to `grad_q`, `grad_k` and `grad_v`, in place."""
        tile = tile_for(q.device, q.dtype, scale)
        grad_q = self._rows(grad_q)
        k, v, grad_k, grad_v = map(self._columns, (k, v, grad_k, grad_v))
        by_row = [self._rows(x) for x in (grad_out, q, out, lse)]
        for tiles in self.plan:
            mask = tiles.mask(q.dtype, q.device)
            keys, values = (_blocks_of_columns(x, tiles, self.queries_per_key) for x in (k, v))
            for head in _passes(tiles, self.queries_per_key):
                grad_rows, q_rows, out_rows, lse_rows = (_blocks_of_rows(x, tiles, head)
                                                         for x in by_row)
                terms = tile.backward(grad_rows, q_rows, keys, values, out_rows, lse_rows, mask,
                                      tiles.causal, scale)
                _blocks_of_rows(grad_q, tiles, head).add_(terms.q)
                _add_columns(grad_k, tiles, terms.k)
                _add_columns(grad_v, tiles, terms.v)

    def _rows(self, x: Tensor) -> Tensor:
        """(B, H, L, ...) -> (G, r, L, ...), a view of every contiguous tensor."""
        x = x[self.batch, self.heads]
        return side_by_side(x.unflatten(1, (-1, self.queries_per_key)).flatten(0, 1))

    def _columns(self, x: Tensor) -> Tensor:
        """(B, Hk, N, D) -> (G, N, D), a view of every contiguous tensor."""
        return side_by_side(x[self.batch, self.key_heads].flatten(0, 1))


def _problems(intervals: Tensor, queries_per_key: int, block: int | None) -> list[_WorkItem]:
    """Return one work item for each (batch, head) entry of the intervals."""
    batches, heads = intervals.shape[:2]
    every = slice(None)
    items = []
    for batch in range(batches):
        of_batch = every if batches == 1 else slice(batch, batch + 1)
        for head in range(heads):
            plan = plan_of(intervals[batch, head], block)
            if heads == 1:
                items.append(_WorkItem(of_batch, every, every, queries_per_key, plan))
            else:
                key_head = head // queries_per_key
                items.append(_WorkItem(of_batch, slice(head, head + 1),
                                       slice(key_head, key_head + 1), 1, plan))
    return items


def _passes(tiles: TileBatch, queries_per_key: int) -> Iterator[int | None]:
    """Yield the query heads of a KV head one by one, or None for all in one call."""
    return iter([None]) if tiles.count == 1 else iter(range(queries_per_key))


def _blocks_of_rows(x: Tensor, tiles: TileBatch, head: int | None) -> Tensor:
    """View (G, r, L, ...) as (G, U, rows, ...) of the tiles."""
    if head is None:
        return x[:, :, tiles.row_slice]
    return x[:, head, tiles.row_slice].unflatten(1, (tiles.count, tiles.rows))


def _blocks_of_columns(x: Tensor, tiles: TileBatch, queries_per_key: int) -> Tensor:
    """View (G, N, D) as (G, U, columns, D) of the tiles, which may overlap."""
    if tiles.count == 1 or tiles.step == 0:
        block = x[:, None, tiles.column : tiles.column + tiles.columns]
        return block.expand(-1, queries_per_key if tiles.count == 1 else tiles.count, -1, -1)
    width = tiles.columns + (tiles.count - 1) * tiles.step
    return x[:, tiles.column : tiles.column + width].unfold(1, tiles.columns, tiles.step).mT


def _add_columns(total: Tensor, tiles: TileBatch, terms: Tensor) -> None:
    """Add terms (G, U, columns, D) into total (G, N, D): the transpose of `_blocks_of_columns`."""
    if tiles.count == 1 or tiles.step == 0:
        total[:, tiles.column : tiles.column + tiles.columns].add_(terms.sum(dim=1))
        return
    # Tiles overlap, but slices of `step` columns of successive tiles do not: add slice by slice.
    for first in range(0, tiles.columns, tiles.step):
        width = min(tiles.step, tiles.columns - first)
        covered = width + (tiles.count - 1) * tiles.step
        column = tiles.column + first
        # (G, U, width, D)
        disjoint = total[:, column:column + covered].unfold(1, width, tiles.step).mT
        disjoint.add_(terms[:, :, first : first + width])


def _merge(out: Tensor, lse: Tensor, part_out: Tensor, part_lse: Tensor) -> None:
    """Merge a partial output into (out, lse), in place."""
    weight = (part_lse - lse).sigmoid_().masked_fill_(part_lse == float("-inf"), 0.0)
    out.lerp_(part_out.to(out.dtype), weight.unsqueeze(-1))
    lse.copy_(torch.logaddexp(lse, part_lse))
