"""Wrong implementations of the plug-in and of CCA's cache."""

import torch

from cca_lab.mechanisms import indices
from cca_lab.models import interface


def evict_one_too_many(state, count: int) -> None:
    """CCAState._evict of a token no core covers yet."""
    if count:
        state.raw_key = state.raw_key[:, :, count + 1:].clone()
        state.raw_value = state.raw_value[:, :, count + 1:].clone()


def evict_without_clone(state, count: int) -> None:
    """CCAState._evict that keeps a view, and with it the memory."""
    state.raw_key, state.raw_value = state.raw_key[:, :, count:], state.raw_value[:, :, count:]


def core_one_late(start: int, stop: int, group: int, window: int) -> indices.CCAStep:
    """cca_step with the cores of the row before."""
    step = indices.cca_step(start, stop, group, window)
    return step._replace(cores=indices.core_count(stop - 1, group, window))


def judge_first_of_chunk(state, query, rotation, change, scale: float) -> None:
    """CCAState._close_groups that forgets the open group's fill."""
    query = torch.cat([query[:, :, change.earlier:], query[:, :, :change.earlier]], dim=2)
    type(state).close_groups_as_written(state, query, rotation, change, scale)


def padding_ignored(mask: torch.Tensor) -> torch.Tensor:
    """left_padding that finds none."""
    return torch.zeros(len(mask), dtype=torch.int64)


def scaling_recomputed(module, query, key, value, attention_mask, scaling=None, **kwargs):
    """attention_forward that scales by D**-0.5 itself, OPT then twice."""
    return interface.attention_forward(module, query, key, value, attention_mask, scaling=None,
                                       **kwargs)


def rotation_dropped(module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """attention_hook that drops the rotary tables."""
    args, kwargs = interface.attention_hook(module, args, kwargs)
    kwargs[interface.ROTATION] = None
    return args, kwargs
