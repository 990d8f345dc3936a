"""Columns in two tensors: every backend gives what it gives for one tensor of all columns."""

import pytest
import torch
from torch.testing import assert_close

from cca_lab.attention import interval_attention
from cca_lab.attention.blocked import blocked_attention
from cca_lab.attention.dense import dense_attention
from cca_lab.attention.intervals import table_of, visible_mask
from cca_lab.attention.native import native_attention
from cca_lab.attention.sources import split_intervals, whole
from cca_lab.mechanisms import CCA
from cca_lab.mechanisms.cca import groups
from tests.attention import bench

ATTENDS = {"dense": dense_attention, "blocked": blocked_attention, "native": native_attention}


def cases():
    """Name, case, columns of the first tensor."""
    cca = groups.intervals(150, 4, 40)
    cores = int(cca[..., 0, 1].max())
    yield "cores", bench.case_of(cca, cores + 150, heads=4, key_heads=2, head_dim=20), cores
    sinks = groups.intervals(150, 4, 40, sinks=3)
    cores = int(sinks[..., 0, 1].max())
    yield "sinks", bench.case_of(sinks, cores + 150, batch=2, head_dim=8), cores
    yield "an interval of both", bench.window_case(90, 30, 4, cores=False), 41
    yield "heads that differ", bench.ragged_case(40, 50), 17
    yield "one column", bench.ragged_case(), 1
    yield "two columns", bench.case_of(table_of(torch.arange(1), (0, 2))[None, None], 2), 1
    yield "a tensor unseen", bench.case_of(table_of(torch.arange(9), (5, 7))[None, None], 8), 5
    yield "a tensor unseen behind", bench.case_of(table_of(torch.arange(9), (1, 4))[None, None],
                                                  9), 4


CASES = {name: (case, first) for name, case, first in cases()}


def parted(attend, first, strided=False):
    """The same implementation, which gets keys and values as two tensors each."""
    def two(x):
        pieces = x[:, :, :first], x[:, :, first:]
        return tuple(y.transpose(1, 2).contiguous().transpose(1, 2) if strided else y.contiguous()
                     for y in pieces)

    def attend_parts(q, k, v, intervals, scale):
        return attend(q, two(k), two(v), intervals, scale)

    return attend_parts


@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("backend", ATTENDS)
@pytest.mark.parametrize("name", CASES)
def test_two_tensors_are_their_columns_one_after_the_other(name, backend, strided):
    """Dies: columns of the second counted from 0 of the first; its gradient added to the first."""
    case, first = CASES[name]
    attend = parted(ATTENDS[backend], first, strided)
    bench.check_same(attend, case)
    bench.check_gradients(attend, case, through_lse=True)


@pytest.mark.parametrize("backend", ["blocked", "native"])
def test_a_tensor_that_no_row_sees_has_gradients_of_zero(backend):
    for name, unseen in (("a tensor unseen", 0), ("a tensor unseen behind", 1)):
        case, first = CASES[name]
        leaves = [[part.clone().requires_grad_() for part in (x[:, :, :first], x[:, :, first:])]
                  for x in case.tensors[1:]]
        out, _ = ATTENDS[backend](case.q, *leaves, case.intervals, case.scale)
        out.square().sum().backward()
        for pair in leaves:
            assert not pair[unseen].grad.any() and pair[1 - unseen].grad.any()


@pytest.mark.parametrize("name", CASES)
def test_what_rows_see_of_each_tensor_is_what_they_see(name):
    """Dies: an interval left out that only a later row sees; a boundary that is off by one."""
    case, first = CASES[name]
    columns = [first, case.k.shape[2] - first]
    tables = split_intervals(case.intervals, columns)
    seen = [visible_mask(table, count) for table, count in zip(tables, columns, strict=True)]
    assert torch.equal(torch.cat(seen, dim=-1), visible_mask(case.intervals, sum(columns)))
    assert all((table.diff(dim=2) >= 0).all() and table.shape[3] >= 1 for table in tables)
    assert split_intervals(case.intervals, [sum(columns)])[0] is case.intervals


def test_intervals_that_no_row_sees_are_left_out():
    tables = split_intervals(groups.intervals(150, 4, 40, sinks=3), [26, 150])
    assert [table.shape[3] for table in tables] == [1, 2]  # cores | sinks and raw tokens


@pytest.mark.parametrize("backend", ["blocked", "native"])
def test_cca_copies_no_keys_behind_its_cores(backend, monkeypatch):
    """Dies: `whole` in a backend, or a concatenation in `columns`."""
    leaves = [torch.randn(1, 2, 64, 16, requires_grad=True) for _ in range(3)]
    mechanism = CCA(group=4, window=8, backend=backend)
    wanted = mechanism.loops(*leaves)

    concatenate = torch.cat

    def refuse(tensors, dim=0):
        assert sum(x.shape[2] for x in tensors) < 64, "a copy of all columns"
        return concatenate(tensors, dim)

    monkeypatch.setattr(torch, "cat", refuse)
    out = mechanism.attention(*leaves)
    out.sum().backward()
    assert_close(out, wanted)


def test_sources_that_do_not_fit_are_refused():
    q, intervals = torch.randn(1, 4, 3, 8), table_of(torch.arange(3), (0, 5))[None, None]
    two = torch.randn(1, 2, 2, 8), torch.randn(1, 2, 3, 8)
    assert interval_attention(q, two, two, intervals).shape == q.shape
    for k, v, wanted in (
            (two, whole(two), "k, v: got 2 and 1 tensors, wanted one each, or 2 each"),
            ((*two, two[0]), (*two, two[0]), "k, v: got 3 and 3 tensors"),
            ((), (), "k, v: got 0 and 0 tensors"),
            ((two[0], torch.randn(1, 4, 3, 8)),) * 2 + ("k: got tensors of 2 and 4 KV heads",),
            ((two[0], two[1].double()),) * 2 + ("k: got torch.float64, wanted torch.float32",)):
        with pytest.raises(ValueError, match=f"^{wanted}"):
            interval_attention(q, k, v, intervals)
