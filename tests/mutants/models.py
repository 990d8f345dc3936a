"""Wrong implementations of the plug-in and the cache; each is killed by the test named in its docstring."""

import torch

from cca_lab.models import interface


def evict_one_too_many(state, first: int) -> None:
    """CCAState._evict that drops a token no core covers yet: killed by test_decoding_equals_one_forward."""
    first += first > state.first
    if first > state.first:
        state.raw_key = state.raw_key[:, :, first - state.first:].clone()
        state.raw_value = state.raw_value[:, :, first - state.first:].clone()
        state.first = first


def evict_without_clone(state, first: int) -> None:
    """CCAState._evict that keeps a view, so the memory too: killed by test_bytes_equal_the_closed_form."""
    if first > state.first:
        state.raw_key = state.raw_key[:, :, first - state.first:]
        state.raw_value = state.raw_value[:, :, first - state.first:]
        state.first = first


def core_one_late(length: int, group: int, window: int) -> int:
    """core_count with floor((i - s) / g), as the cache uses it: killed by test_decoding_equals_one_forward."""
    return max(0, (length - 1 - window) // group)


def judge_first_of_chunk(state, query, rotation, start: int, stop: int, scale: float) -> None:
    """CCAState._close_groups that forgets the open group's fill: killed by test_chunks_equal_one_forward."""
    late = start % state.group
    query = torch.cat([query[:, :, late:], query[:, :, :late]], dim=2)
    type(state).close_groups_as_written(state, query, rotation, start, stop, scale)


def padding_ignored(mask: torch.Tensor) -> torch.Tensor:
    """left_padding that finds none: killed by test_padding_changes_nothing."""
    return torch.zeros(len(mask), dtype=torch.int64)


def scaling_recomputed(module, query, key, value, attention_mask, scaling=None, **kwargs):
    """attention_forward that scales by D**-0.5 itself, OPT then twice: killed by test_wide_window_is_full."""
    return interface.attention_forward(module, query, key, value, attention_mask, scaling=None, **kwargs)


def rotation_dropped(module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """attention_hook that drops the rotary tables: killed by test_model_equals_the_loops."""
    args, kwargs = interface.attention_hook(module, args, kwargs)
    kwargs[interface.ROTATION] = None
    return args, kwargs
