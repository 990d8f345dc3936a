"""Wrong launches of the kernels, each installed by a function that takes pytest's monkeypatch."""

import torch

from cca_lab.attention.kernels import decode, interval, pooling, vertical_slash


def future_visible(patch) -> None:
    """Ends one column too late, wherever there is one more: the next token leaks."""
    right = interval.bounds_of

    def wrong(intervals, device):
        bounds = right(intervals, device).clone()
        bounds[:, :, :, 1] = (bounds[:, :, :, 1] + 1).clamp(max=int(intervals.max()))
        return bounds
    patch.setattr(interval, "bounds_of", wrong)


def last_rows_forgotten(patch) -> None:
    """The column kernel stops a row early."""
    right = interval.rows_of_columns

    def wrong(*args):
        rows = right(*args).clone()
        rows[:, :, :, 3] -= 1
        return rows
    patch.setattr(interval, "rows_of_columns", wrong)


def full_too_soon(patch) -> None:
    """The column kernel takes rows that see part of a block for rows that see all of it."""
    right = interval.rows_of_columns

    def wrong(*args):
        rows = right(*args).clone()
        rows[:, :, :, 1] = rows[:, :, :, 0]
        rows[:, :, :, 2] = rows[:, :, :, 3]
        return rows
    patch.setattr(interval, "rows_of_columns", wrong)


def natural_exponent(patch) -> None:
    """exp2 of logits that were not multiplied by log2(e)."""
    patch.setattr(interval, "LOG2_E", 1.0)


def no_gradient_of_lse(patch) -> None:
    """delta without the gradient that arrives at the log-sum-exp."""
    right = interval._TritonAttention.backward
    patch.setattr(interval._TritonAttention, "backward",
                  staticmethod(lambda ctx, grad, _: right(ctx, grad, None)))


def key_heads_exchanged(patch) -> None:
    """Query heads read another KV head than their own."""
    right = interval._TritonAttention.apply
    patch.setattr(interval._TritonAttention, "apply", lambda *args: right(
        *args[:4], *(x.flip(1) for x in args[4:])))


INTERVAL = (future_visible, last_rows_forgotten, full_too_soon, natural_exponent,
            no_gradient_of_lse, key_heads_exchanged)


# ---------------------------------------------------------------- two sources of columns

def second_with_the_strides_of_the_first(patch) -> None:
    """Of its keys, values and bounds: the first source is the smaller one, so it stays inside."""
    right = interval._both
    patch.setattr(interval, "_both", lambda sources: right(
        [sources[0], (*sources[1][:3], *sources[0][3:13], *sources[1][13:])]))


def rows_of_the_first_source(patch) -> None:
    """dK and dV of both sources from the rows that see the first one's first interval."""
    right, seen = interval.rows_of_columns, []

    def wrong(bounds, columns, block):
        seen.append(bounds)
        first = seen[0][:, :, :1].expand(-1, -1, bounds.shape[2], -1, -1)
        return right(first, columns, block)
    patch.setattr(interval, "rows_of_columns", wrong)


SOURCES = (second_with_the_strides_of_the_first, rows_of_the_first_source)


def mean_instead_of_softmax(patch) -> None:
    """Weights 1 / g: the scale of the logits is lost."""
    right = pooling.triton_pool_groups
    patch.setattr(pooling, "triton_pool_groups", lambda q, k, v, group, count, scale,
                  turn=None: right(q, k, v, group, count, 0.0, turn))


def turned_the_other_way(patch) -> None:
    """The rotation to the middle with the opposite sine."""
    right = pooling.triton_pool_groups

    def wrong(q, k, v, group, count, scale, turn=None):
        return right(q, k, v, group, count, scale, turn and (turn[0], -turn[1]))
    patch.setattr(pooling, "triton_pool_groups", wrong)


POOLING = (mean_instead_of_softmax, turned_the_other_way)


# ---------------------------------------------------------------- decode


def spans_taken_for_one(patch) -> None:
    """From the first column to the last, with what lies between the spans."""
    right = decode.spans_of
    patch.setattr(decode, "spans_of",
                  lambda table: [[(spans[0][0], spans[-1][1])] for spans in right(table)])


def last_key_unread(patch) -> None:
    """A piece ends one key early, where it has more than one."""
    right = decode._piece
    patch.setattr(decode, "_piece", lambda q, k, v, bias, splits: right(
        q, k[:, :, : max(1, k.shape[2] - 1)], v, bias, splits))


def last_part_forgotten(patch) -> None:
    """The merge leaves out the last part, where there are several."""
    right = decode.merge
    patch.setattr(decode, "merge", lambda part, lse,
                  q: right(part[:-1], lse[:-1], q) if len(part) > 1 else right(part, lse, q))


DECODE = (last_key_unread, spans_taken_for_one, last_part_forgotten)


# ---------------------------------------------------------------- vertical-slash

def columns_counted_twice(patch) -> None:
    """Columns are gathered although a range of the block holds them."""
    right = vertical_slash.covered_distances
    patch.setattr(vertical_slash, "covered_distances", lambda *args: torch.zeros_like(right(*args)))


def ranges_not_merged(patch) -> None:
    """Each diagonal is a range of its own, so that tokens of two diagonals are read twice."""
    def wrong(offsets, width):
        return torch.stack([-offsets, width - offsets], dim=-1), torch.full(
            offsets.shape[:2], offsets.shape[-1], device=offsets.device)
    patch.setattr(vertical_slash, "ranges_of", wrong)


VERTICAL_SLASH = (columns_counted_twice, ranges_not_merged)
