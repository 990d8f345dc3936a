"""CCA's mask and block mask for FlexAttention, against brute force over the intervals."""

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


def check_blocks(length, group, window, block=8):
    """A block without a visible pair is in no list, one in the second has no hidden pair."""
    seen = masked(length, group, window)
    columns = seen.shape[1]
    some, whole = flex.blocks_seen(groups.intervals(length, group, window), columns, block)
    assert not (some & whole).any()
    for row, rows in enumerate(seen.split(block, dim=0)):
        for column, pairs in enumerate(rows.split(block, dim=1)):
            assert bool(pairs.any()) == bool(some[row, column] | whole[row, column]), (row, column)
            assert bool(whole[row, column]) == (bool(pairs.all())
                                                and pairs.shape[1] == block), (row, column)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_blocks_are_those_with_visible_pairs(case):
    check_blocks(*case)


def test_blocks_of_the_first_row_alone_are_caught(monkeypatch):
    monkeypatch.setattr(flex, "blocks_seen", mutants.blocks_of_the_first_row)
    with pytest.raises(AssertionError):
        check_blocks(70, 8, 16)


def test_the_call_attends_as_interval_attention_does():
    """Uncompiled: PyTorch then evaluates the mask alone; the blocks are checked above."""
    length, group, window = 70, 8, 16
    columns = groups.core_count(length, group, window) + length
    table = groups.intervals(length, group, window)
    q, k, v = (torch.randn(1, 2, n, 16) for n in (length, columns, columns))
    call = flex.flex_call(table, columns, group, window, torch.device("cpu"), compiled=False)
    assert torch.allclose(call(q, k, v), interval_attention(q, k, v, table, backend="dense"),
                          atol=1e-5)
    mask = flex.block_mask(table, columns, group, window, torch.device("cpu"))
    assert mask.shape[-2:] == (length, columns)
