"""Wrong launches of the kernels, each installed by a function that takes pytest's monkeypatch."""

import torch

from cca_lab.attention.kernels import interval, pooling


def future_visible(patch) -> None:
    """Ends one column too late: the row after next leaks."""
    right = interval.bounds_of
    patch.setattr(interval, "bounds_of", lambda *args: right(*args) + torch.tensor([[0], [1]], dtype=torch.int32))


def core_one_row_early(patch) -> None:
    """Bounds shifted by a row."""
    right = interval.bounds_of
    patch.setattr(interval, "bounds_of", lambda *args: right(*args).roll(-1, dims=-1))


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
    patch.setattr(interval._TritonAttention, "backward", staticmethod(lambda ctx, grad, _: right(ctx, grad, None)))


def key_heads_exchanged(patch) -> None:
    """Query heads read another KV head than their own."""
    patch.setattr(interval._TritonAttention, "apply", _flipped(interval._TritonAttention.apply))


def _flipped(right):
    def wrong(q, k, v, *rest):
        return right(q, k.flip(1), v.flip(1), *rest)
    return wrong


INTERVAL = (future_visible, core_one_row_early, last_rows_forgotten, full_too_soon, natural_exponent,
            no_gradient_of_lse, key_heads_exchanged)


def mean_instead_of_softmax(patch) -> None:
    """Weights 1 / g: the scale of the logits is lost."""
    right = pooling.triton_pool_groups
    patch.setattr(pooling, "triton_pool_groups",
                  lambda q, k, v, group, count, scale, turn=None: right(q, k, v, group, count, 0.0, turn))


def turned_the_other_way(patch) -> None:
    """The rotation to the middle with the opposite sine."""
    right = pooling.triton_pool_groups

    def wrong(q, k, v, group, count, scale, turn=None):
        return right(q, k, v, group, count, scale, turn and (turn[0], -turn[1]))
    patch.setattr(pooling, "triton_pool_groups", wrong)


POOLING = (mean_instead_of_softmax, turned_the_other_way)
