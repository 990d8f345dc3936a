"""Wrong layers of DeepSeek-V4: one function of its module replaced each."""

import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import torch

sys.path.append(str(Path(__file__).parents[2] / "notebooks"))
right = import_module("production")  # beside notebook 16


def an_entry_early(length, window, group, first=0, kept=0):
    """Rows see the entry of their own group one token before it is closed."""
    found = intervals(length, window, group, first, kept).clone()
    if group is not None:
        later = intervals(length + 1, window, group, first, kept)[:, :, 1:, 1]
        last = found[:, :, -1:, 1, 1].clone()
        found[:, :, :, 1, 1] = (found[:, :, :, 1, 0] + later[..., 1] - later[..., 0]).minimum(last)
    return found


def window_one_short(length, window, group, first=0, kept=0):
    found = intervals(length, window, group, first, kept).clone()
    starts = found[:, :, :, 0, 0]
    starts[starts + 1 < found[:, :, :, 0, 1]] += 1
    return found


def no_sink(q, columns, visible, sinks, **options):
    return attend(q, columns, visible, torch.full_like(sinks, -1e9), **options)


def own_group_only(values, gates, bias, group, *, overlap=False):
    """The first half of the overlap is left out."""
    if not overlap:
        return pool(values, gates, bias, group)
    dim = values.shape[-1] // 2
    return pool(values[..., dim:], gates[..., dim:], bias[:, dim:], group)


def entries_in_the_middle(compressor, hidden, series, first, *, overlap):
    """Entries stand where CCA's cores do, in the middle of their groups."""
    def later(x, *, position_ids, layer_type):
        half = compressor.compress_rate // 2
        return compressor.rotary_emb(x, position_ids=position_ids + half, layer_type=layer_type)

    names = ("compress_rate", "kv_proj", "gate_proj", "position_bias", "kv_norm", "rope_layer_type")
    moved = SimpleNamespace(**{name: getattr(compressor, name) for name in names}, rotary_emb=later)
    return entries(moved, hidden, series, first, overlap=overlap)


def the_first_entries(scores, group, count, first=0):
    """The choice does not look at the scores."""
    return chosen_entries(-torch.arange(scores.shape[2]).expand_as(scores).float(), group, count,
                          first)


attend, entries, intervals, pool, chosen_entries = (
    right.attend, right._entries, right.intervals, right.pool, right.chosen_entries)
MUTANTS = {"intervals": [an_entry_early, window_one_short], "attend": [no_sink],
           "pool": [own_group_only], "_entries": [entries_in_the_middle],
           "chosen_entries": [the_first_entries]}
