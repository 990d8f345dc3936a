"""Wrong baselines: mean pooling and random tokens."""

import torch
from torch import Tensor

from cca_lab.attention import interval_attention
from cca_lab.mechanisms import CCA, RandomTokens
from cca_lab.mechanisms.cca.baselines import kept_tokens
from cca_lab.mechanisms.cca.groups import core_count, intervals
from tests.mechanisms.forms import form
from tests.mutants.cca import CORES
from tests.mutants.slips import slip

sum_of_the_group = slip("members added up, not averaged", form(CCA, "loops", pooling="mean"),
                        (CORES, "1 / g)", "1.0)"))


def weighted_pooling(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """CCA itself: the weights that the baseline must not have."""
    return form(CCA, "loops")(q, k, v, **options)


def keys_averaged_as_they_come(q: Tensor, k: Tensor, v: Tensor, *, rotation=None,
                               **options) -> Tensor:
    """Rotated keys averaged at their own angles."""
    return form(CCA, "loops", pooling="mean")(q, k, v, **options)


def drawn_from_the_end(q: Tensor, k: Tensor, v: Tensor, *, group: int, window: int, seed: int = 0,
                       scale: float | None = None) -> Tensor:
    """The last group draws first: what is kept depends on how long the text becomes."""
    length = q.shape[2]
    count = length // group
    lots = [token % group for token in kept_tokens(count, group, seed)][::-1]
    kept = [p * group + lot for p, lot in enumerate(lots)][: core_count(length, group, window)]
    keys, values = (torch.cat([x[:, :, kept], x], dim=2) for x in (k, v))
    return interval_attention(q, keys, values, intervals(length, group, window), scale=scale,
                              backend="dense")


def drawn_again_for_each_call(q: Tensor, k: Tensor, v: Tensor, *, seed: int = 0,
                              **options) -> Tensor:
    """A new draw at each call."""
    seed = int(torch.randint(0, 2**31, ()))
    return form(RandomTokens, "loops", seed=seed)(q, k, v, **options)


def lots_begin_again(state, query: Tensor, rotation, change, scale: float) -> None:
    """RandomTokensState._close_groups that draws each chunk's groups with the first lots."""
    begin, end = change.groups
    kept = [begin * state.group + token
            for token in kept_tokens(end - begin, state.group, state.seed)]
    if kept:
        first = begin * state.group - change.members[0]
        entries = [token - first for token in kept]
        past = [state.core_key, state.core_value] if begin else [state.raw_key[:, :, :0]] * 2
        state.core_key = torch.cat([past[0], state.raw_key[:, :, entries]], dim=2)
        state.core_value = torch.cat([past[1], state.raw_value[:, :, entries]], dim=2)
