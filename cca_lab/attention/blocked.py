"""The blocked rung: interval attention in a few large tiles, merged exactly; memory linear in L and N.

Parts of a row merge by their log-sum-exp: with outputs o_a, o_b and normalisers l_a, l_b,

    lse = log(exp(l_a) + exp(l_b)),   out = o_a + (o_b - o_a) * sigmoid(l_b - l_a).

The backward keeps only q, k, v, out and lse (the FlashAttention-2 recipe): given the lse and output of the
whole row, each tile returns its share of the exact gradient, and the shares add up.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cca_lab.attention.dense import accumulation_dtype
from cca_lab.attention.derivatives import refuse_second_derivative
from cca_lab.attention.plan import Part, plan_of
from cca_lab.attention.tiles import tile_for


@torch.compiler.disable
def blocked_attention(q: Tensor, k: Tensor, v: Tensor, intervals: Tensor, scale: float,
                      block: int | None = None) -> tuple[Tensor, Tensor]:
    """Interval attention in linear memory, differentiable once in q, k, v through out and lse.

    Args:
        q: (B, H, L, D).
        k, v: (B, Hk, N, D).
        intervals: int64 (b, h, L, n, 2), checked already.
        scale: factor on the dot products.
        block: query rows of a block; None lets the planner choose. Any number gives the same result.

    Returns:
        out (B, H, L, D) in q's dtype and lse (B, H, L), natural log, in at least float32.
    """
    return _BlockedAttention.apply(q, k, v, intervals, scale, block)


class _BlockedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, intervals: Tensor, scale: float,
                block: int | None) -> tuple[Tensor, Tensor]:
        problems = _problems(intervals, q.shape[1] // k.shape[1], block)
        dtype = accumulation_dtype(q.dtype)
        out = torch.zeros(q.shape, dtype=dtype, device=q.device)
        lse = torch.full(q.shape[:-1], float("-inf"), dtype=dtype, device=q.device)
        for problem in problems:
            problem.attend(q, k, v, out, lse, scale)
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.problems, ctx.scale = problems, scale
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("blocked attention")
        q, k, v, out, lse = ctx.saved_tensors
        if grad_out is None and grad_lse is None:
            return None, None, None, None, None, None
        grad_out = torch.zeros_like(out) if grad_out is None else grad_out
        head_dim = q.shape[-1]
        if grad_lse is not None:
            q, k, v, out, grad_out = _append_lse_gradient(q, k, v, out, grad_out, grad_lse)
        grads = [torch.zeros(x.shape, dtype=lse.dtype, device=x.device) for x in (q, k, v)]
        for problem in ctx.problems:
            problem.differentiate(grad_out.contiguous(), q, k, v, out, lse, grads, ctx.scale)
        return *(grad[..., :head_dim].to(q.dtype) for grad in grads), None, None, None


def _append_lse_gradient(q: Tensor, k: Tensor, v: Tensor, out: Tensor, grad_out: Tensor,
                         grad_lse: Tensor) -> tuple[Tensor, ...]:
    """Carry the gradient of lse in one more feature, so that the tiles need not know of it.

    ds = p * (do . v - do . out + dlse): appending dlse to do, 1 to v and 0 to out adds exactly dlse, and
    zeros appended to q and k leave the logits alone.
    """
    pad = torch.nn.functional.pad
    extended = torch.cat([grad_out, grad_lse.unsqueeze(-1).to(grad_out.dtype)], dim=-1)
    return pad(q, (0, 1)), pad(k, (0, 1)), pad(v, (0, 1), value=1.0), pad(out, (0, 1)), extended


@dataclass(frozen=True)
class _Problem:
    """The share of the batch and heads that has one interval table, and the plan of that table.

    Inside, batch and KV head are one axis G and the query heads of a KV head are another, r: queries
    (G, r, L, D), keys and values (G, N, D). A tile then sees (G, U, rows, D), where U is the blocks of a part
    that has several, and the r query heads of a part that has one.
    """

    batch: slice
    heads: slice
    key_heads: slice
    share: int
    plan: tuple[Part, ...]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, scale: float) -> None:
        """Merge every part into `out` (zeros at first) and `lse` (-inf at first), in place."""
        tile = tile_for(q.device, q.dtype, scale)
        k, v = self._columns(k), self._columns(v)
        q, out, lse = self._rows(q), self._rows(out), self._rows(lse)
        for part in self.plan:
            mask, blind = part.mask(q.dtype, q.device), part.blind_rows(q.device)
            keys, values = _blocks_of_columns(k, part, self.share), _blocks_of_columns(v, part, self.share)
            for head in _passes(part, self.share):
                queries = _blocks_of_rows(q, part, head)
                part_out, part_lse = tile.forward(queries, keys, values, mask, part.causal, scale)
                if blind is not None:
                    part_lse = part_lse.masked_fill(blind, float("-inf"))
                _merge(_blocks_of_rows(out, part, head), _blocks_of_rows(lse, part, head), part_out, part_lse)

    def differentiate(self, grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
                      grads: list[Tensor], scale: float) -> None:
        """Add this problem's gradients to `grads` = [dq, dk, dv], in place."""
        tile = tile_for(q.device, q.dtype, scale)
        grad_q, grad_k, grad_v = self._rows(grads[0]), self._columns(grads[1]), self._columns(grads[2])
        k, v = self._columns(k), self._columns(v)
        by_row = [self._rows(x) for x in (grad_out, q, out, lse)]
        for part in self.plan:
            mask = part.mask(q.dtype, q.device)
            keys, values = _blocks_of_columns(k, part, self.share), _blocks_of_columns(v, part, self.share)
            for head in _passes(part, self.share):
                grad_rows, q_rows, out_rows, lse_rows = (_blocks_of_rows(x, part, head) for x in by_row)
                pieces = tile.backward(grad_rows, q_rows, keys, values, out_rows, lse_rows, mask,
                                       part.causal, scale)
                _blocks_of_rows(grad_q, part, head).add_(pieces.q)
                _add_columns(grad_k, part, pieces.k)
                _add_columns(grad_v, part, pieces.v)

    def _rows(self, x: Tensor) -> Tensor:
        """(B, H, L, ...) -> (G, r, L, ...), a view of every contiguous tensor."""
        x = x[self.batch, self.heads]
        return _inner_contiguous(x.unflatten(1, (-1, self.share)).flatten(0, 1))

    def _columns(self, x: Tensor) -> Tensor:
        """(B, Hk, N, D) -> (G, N, D), a view of every contiguous tensor."""
        return _inner_contiguous(x[self.batch, self.key_heads].flatten(0, 1))


def _problems(intervals: Tensor, share: int, block: int | None) -> list[_Problem]:
    """One problem for each (batch, head) entry of the interval table; `share` is H / Hk."""
    batches, heads = intervals.shape[:2]
    every = slice(None)
    found = []
    for batch in range(batches):
        of_batch = every if batches == 1 else slice(batch, batch + 1)
        for head in range(heads):
            plan = plan_of(intervals[batch, head], block)
            if heads == 1:
                found.append(_Problem(of_batch, every, every, share, plan))
            else:
                one, of_keys = slice(head, head + 1), slice(head // share, head // share + 1)
                found.append(_Problem(of_batch, one, of_keys, 1, plan))
    return found


def _passes(part: Part, share: int) -> Iterator[int | None]:
    """The query heads of a KV head one after another, or None: all in one call, as the tile's second axis."""
    return iter([None]) if part.count == 1 else iter(range(share))


def _blocks_of_rows(x: Tensor, part: Part, head: int | None) -> Tensor:
    """View (G, r, L, ...) as the tile's (G, U, rows, ...)."""
    if head is None:
        return x[:, :, part.row_slice]
    return x[:, head, part.row_slice].unflatten(1, (part.count, part.rows))


def _blocks_of_columns(x: Tensor, part: Part, share: int) -> Tensor:
    """View (G, N, D) as the tile's (G, U, columns, D); the blocks may overlap."""
    if part.count == 1 or part.step == 0:
        block = x[:, None, part.column : part.column + part.columns]
        return block.expand(-1, share if part.count == 1 else part.count, -1, -1)
    span = part.columns + (part.count - 1) * part.step
    return x[:, part.column : part.column + span].unfold(1, part.columns, part.step).mT


def _add_columns(total: Tensor, part: Part, pieces: Tensor) -> None:
    """The transpose of `_blocks_of_columns`: add pieces (G, U, columns, D) into total (G, N, D)."""
    if part.count == 1 or part.step == 0:
        total[:, part.column : part.column + part.columns].add_(pieces.sum(dim=1))
        return
    # Blocks overlap, but slices of `step` columns of successive blocks do not: add slice by slice.
    for first in range(0, part.columns, part.step):
        width = min(part.step, part.columns - first)
        span = width + (part.count - 1) * part.step
        column = part.column + first
        apart = total[:, column : column + span].unfold(1, width, part.step).mT  # (G, U, width, D)
        apart.add_(pieces[:, :, first : first + width])


def _merge(out: Tensor, lse: Tensor, part_out: Tensor, part_lse: Tensor) -> None:
    """Merge a partial output into (out, lse) in place; the part's weight is exp(part_lse) of the sum."""
    weight = (part_lse - lse).sigmoid_().masked_fill_(part_lse == float("-inf"), 0.0)
    out.lerp_(part_out.to(out.dtype), weight.unsqueeze(-1))
    lse.copy_(torch.logaddexp(lse, part_lse))


def _inner_contiguous(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()
