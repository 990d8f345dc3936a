"""The decode kernels: one query row against a cache, keys split over programs, parts merged."""

import pytest
import torch

from cca_lab.attention import interval_attention
from cca_lab.attention.kernels import decode
from cca_lab.attention.row import row_of_pieces
from cca_lab.attention.sources import split_intervals
from tests.attention.kernels import bench
from tests.mutants import kernels as mutants


def check_decode(keys, splits, *, heads=(4, 2), head_dim=16, dtype=torch.float32,
                 layout=lambda x: x):
    generator = torch.Generator().manual_seed(keys)
    shapes = (heads[0], 1), (heads[1], keys), (heads[1], keys)
    q, k, v = (torch.randn(2, n, length, head_dim, generator=generator).to(dtype)
               for n, length in shapes)
    with bench.guarded_outputs():
        got = decode.triton_decode(*(bench.guarded(layout(x)) for x in (q, k, v)), 0.25,
                                   splits=splits)
    everything = torch.tensor([[[[[0, keys]]]]])
    wanted = interval_attention(q.double(), k.double(), v.double(), everything, scale=0.25,
                                backend="dense", return_lse=True)
    for name, a, b in zip(("out", "lse"), got, wanted, strict=True):
        bench.assert_close(a, b, name, dtype)


@pytest.mark.parametrize(("keys", "splits"), [(1, None), (1, 2), (63, 1), (64, 2), (65, 2),
                                              (300, None), (300, 5)])
def test_any_number_of_keys_and_splits(keys, splits):
    check_decode(keys, splits)


def test_more_parts_than_are_merged_at_once(monkeypatch):
    """Dies: a merge whose sums are not rescaled when a later tile has a larger normaliser."""
    monkeypatch.setattr(decode, "MERGED_AT_ONCE", 2)
    check_decode(300, 5)


@pytest.mark.parametrize("heads", [(1, 1), (8, 1), (20, 1), (6, 3)], ids=str)
def test_grouped_queries(heads):
    check_decode(70, 2, heads=heads)


@pytest.mark.parametrize(("head_dim", "dtype"), [(20, torch.float16), (64, torch.bfloat16)],
                         ids=str)
def test_half_precision_and_padded_head_dims(head_dim, dtype):
    check_decode(70, 2, head_dim=head_dim, dtype=dtype)


def test_any_strides():
    check_decode(70, 2, layout=lambda x: x.transpose(1, 2).contiguous().transpose(1, 2))


TABLES = {
    "a cache in order": [[0, 70]],
    "cores and raw tokens that touch": [[0, 13], [13, 70]],
    "sinks and a window": [[0, 4], [0, 0], [21, 70]],
    "four apart, the first one last": [[60, 70], [1, 2], [5, 30], [33, 34]],
}


def check_table(spans, sources=(70,)):
    """One row of several intervals of one or two sources, against the dense rung."""
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, n, length, 16, generator=generator)
               for n, length in ((4, 1), (2, 70), (2, 70)))
    table = torch.tensor(spans).expand(1, 1, 1, -1, -1)
    with bench.guarded_outputs():
        got = decode.triton_decode(
            bench.guarded(q), *([bench.guarded(part) for part in x.split(sources, dim=2)]
                                for x in (k, v)), 0.25,
            spans=decode.spans_of(split_intervals(table, sources)))
    wanted = interval_attention(q.double(), k.double(), v.double(), table, scale=0.25,
                                backend="dense", return_lse=True)
    for name, a, b in zip(("out", "lse"), got, wanted, strict=True):
        bench.assert_close(a, b, name, torch.float32)


@pytest.mark.parametrize("spans", TABLES.values(), ids=TABLES)
def test_one_row_of_any_intervals(spans):
    for sources in ((70,), (13, 57)):
        check_table(spans, sources)


def check_pieces(pieces, bias=None):
    """Pieces of (KV heads, keys) that lie apart, against the plain form in float64."""
    generator = torch.Generator().manual_seed(2)
    q = torch.randn(2, 4, 1, 16, generator=generator)
    keys, values = ([torch.randn(2, n, heads, 16, generator=generator).transpose(1, 2)
                     for heads, n in pieces] for _ in "kv")
    added = [torch.randn(2, n, generator=generator) for _, n in pieces] if bias else []
    if bias == "hiding":
        added[0][:] = float("-inf")
    with bench.guarded_outputs():
        got, _ = decode.triton_decode(*([bench.guarded(x) for x in tensors] if isinstance(
            tensors, list) else bench.guarded(tensors) for tensors in (q, keys, values)), 0.25,
            bias=[bench.guarded(x) for x in added], splits=2)
    exact = [[x.double() for x in tensors] for tensors in ([q], keys, values, added)]
    wanted = row_of_pieces(*exact[0], exact[1], exact[2], 0.25, exact[3])
    bench.assert_close(got, wanted, "out", torch.float32)


@pytest.mark.parametrize("pieces", [[(2, 70), (2, 3)], [(2, 5), (2, 0), (2, 70), (2, 1)],
                                    [(4, 70), (1, 9), (1, 2)]], ids=str)
def test_pieces_that_lie_apart(pieces):
    for bias in (None, "added", "hiding"):
        check_pieces(pieces, bias)


def test_touching_intervals_are_one_launch():
    assert decode.spans_of(torch.tensor([[[[[0, 13], [20, 20], [13, 70]]]]])) == [[(0, 70)]]


def test_who_is_served(monkeypatch):
    """One row, one table for all heads, no gradient; the interval kernels take the rest."""
    calls = []
    monkeypatch.setattr(decode, "triton_decode", lambda *args,
                        **rest: calls.append(args) or (None, None))
    q, k = torch.zeros(1, 2, 1, 16), torch.zeros(1, 2, 5, 16)
    table = torch.tensor([[0, 5]]).expand(1, 1, 1, 1, 2)
    interval_attention(q, k, k, table, backend="triton")
    with torch.no_grad():
        interval_attention(q, k.clone().requires_grad_(), k, table, backend="triton")
    assert len(calls) == 2
    assert decode.decodes(q, k, k, table)
    assert decode.decodes(q, [k, k], [k, k], [table, table])
    assert not decode.decodes(q, k, k, table.expand(1, 2, 1, 1, 2))
    assert not decode.decodes(q.expand(1, 2, 2, 16), k, k, table)
    assert not decode.decodes(q.clone().requires_grad_(), k, k, table)


@pytest.mark.parametrize("mutant", mutants.DECODE, ids=lambda mutant: mutant.__name__)
def test_mutants_are_caught(monkeypatch, mutant):
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        check_table([[0, 4], [21, 70]])
