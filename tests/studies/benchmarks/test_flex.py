"""CCA's mask for FlexAttention, against the intervals."""

import pytest
import torch

from cca_lab.attention import interval_attention, visible_mask
from cca_lab.mechanisms.cca import groups
from cca_lab.studies.benchmarks import flex
from tests.mutants import bench as mutants

CASES = [(40, 4, 9), (70, 8, 16), (33, 16, 64), (64, 16, 16)]


def masked(length, group, window):
    """What mask_mod says of every pair."""
    cores = groups.core_count(length, group, window)
    row, column = torch.arange(length)[:, None], torch.arange(cores + length)[None]
    return flex.cca_mask(group, window, cores)(None, None, row, column)


def check_mask(length, group, window):
    columns = groups.core_count(length, group, window) + length
    wanted = visible_mask(groups.intervals(length, group, window), columns)[0, 0]
    assert torch.equal(masked(length, group, window), wanted)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_mask_is_that_of_the_intervals(case):
    check_mask(*case)


def test_a_window_that_begins_one_token_too_early_is_caught(monkeypatch):
    monkeypatch.setattr(flex, "cca_mask", mutants.mask_one_token_early)
    with pytest.raises(AssertionError):
        check_mask(40, 4, 9)


def test_the_call_attends_as_interval_attention_does():
    """Uncompiled."""
    length, group, window = 70, 8, 16
    cores = groups.core_count(length, group, window)
    table = groups.intervals(length, group, window)
    q, k, v = (torch.randn(1, 2, n, 16) for n in (length, cores + length, cores + length))
    call = flex.flex_call(length, cores, group, window, torch.device("cpu"), compiled=False)
    assert torch.allclose(call(q, k, v), interval_attention(q, k, v, table, backend="dense"),
                          atol=1e-5)
