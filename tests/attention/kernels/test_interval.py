"""Interval attention's kernels against dense float64: shapes, strides, dtypes, mutants."""

from itertools import pairwise

import pytest
import torch

from cca_lab.attention import interval_attention
from cca_lab.attention.kernels import interval
from cca_lab.attention.kernels.configs import Blocks
from cca_lab.attention.sources import halves, split_intervals
from cca_lab.mechanisms.cca import groups
from tests.attention.kernels import bench
from tests.mutants import kernels as mutants
from tests.strategies import LAYOUTS, laid_out, random_table


def inputs(rows, columns, *, batch=1, heads=2, key_heads=1, head_dim=16, dtype=torch.float32,
           layout="contiguous", seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (heads, rows), (key_heads, columns), (key_heads, columns)
    return tuple(laid_out((batch, n, length, head_dim), layout, generator).to(dtype)
                 for n, length in shapes)


def cca_case(length, group, window, **sizes):
    columns = groups.core_count(length, group, window) + length
    return *inputs(length, columns, **sizes), groups.intervals(length, group, window)


def two_sources(tables, columns=(9, 30), layouts=("contiguous", "contiguous"), **sizes):
    """Queries, keys and values of two sources, and what the rows see of each."""
    both = [inputs(tables[0].shape[2], count, layout=layout, seed=index, **sizes)
            for index, (count, layout) in enumerate(zip(columns, layouts, strict=True))]
    _, keys, values = zip(*both, strict=True)
    return both[0][0], keys, values, tables


def random_sources(rows, columns, counts, batch=1, heads=2):
    """Intervals of the first source that serve all heads, and of the second, some for each."""
    generator = torch.Generator().manual_seed(0)
    return (random_table(rows, columns[0], counts[0], generator)[None, None],
            torch.stack([random_table(rows, columns[1], counts[1], generator)
                         for _ in range(batch * heads)]).unflatten(0, (batch, heads)))


def grouped_sources(layouts=("contiguous", "contiguous")):
    """Two sources for two texts and two query heads of each of two KV heads."""
    return two_sources(random_sources(17, (9, 30), (1, 2), 2, 4), layouts=layouts, batch=2, heads=4,
                       key_heads=2, head_dim=20)


@pytest.mark.parametrize(("length", "dtype"), [
    (1, torch.float32), (16, torch.float32), (50, torch.float32), (17, torch.float16),
    (17, torch.bfloat16)], ids=str)
def test_cca_of_every_length_and_dtype(length, dtype):
    """Cores and raw tokens where they lie: with sinks, two of three intervals are of raw tokens."""
    columns = groups.core_count(max(length - 2, 0), 3, 7), length
    tables = split_intervals(groups.intervals(length, 3, 7, sinks=2), columns)
    bench.check_interval_attention(*two_sources(tables, columns, dtype=dtype), 0.3)


@pytest.mark.parametrize("head_dim", [20, 80, 128])
def test_head_dims_that_are_no_powers_of_two_are_padded(head_dim):
    bench.check_interval_attention(*cca_case(20, 4, 6, head_dim=head_dim), head_dim**-0.5)


@pytest.mark.parametrize("blocks", [Blocks(16, 32, 4, 1), Blocks(32, 16, 4, 1),
                                    Blocks(64, 64, 4, 1)], ids=str)
def test_any_blocks_give_the_same(blocks):
    bench.check_interval_attention(*cca_case(70, 4, 24), 0.25, blocks)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_any_intervals_that_never_move_back(count):
    """Ragged random tables, one a batch row and head, with empty intervals among them."""
    generator = torch.Generator().manual_seed(count)
    rows, columns = (int(torch.randint(1, 60, (), generator=generator)) for _ in range(2))
    tables = torch.stack([random_table(rows, columns, count,
                                       generator) for _ in range(4)]).unflatten(0, (2, 2))
    bench.check_interval_attention(*inputs(rows, columns, batch=2), tables, -0.4)


@pytest.mark.parametrize(("rows", "columns", "counts"), [
    (37, (9, 30), (1, 3)), (18, (50, 1), (3, 1)), (1, (1, 40), (1, 3))], ids=str)
def test_any_intervals_of_two_sources(rows, columns, counts):
    tables = random_sources(rows, columns, counts)
    bench.check_interval_attention(*two_sources(tables, columns), -0.4)


@pytest.mark.parametrize("layouts", [*pairwise(LAYOUTS), (LAYOUTS[-1], LAYOUTS[0])], ids=str)
def test_any_strides_in_each_source(layouts):
    bench.check_interval_attention(*grouped_sources(layouts), 0.25)


@pytest.mark.parametrize("unseen", [0, 1])
def test_a_source_that_no_row_sees_has_no_gradient(unseen):
    """And it changes no bit of the output."""
    q, keys, values, tables = grouped_sources()
    tables = [torch.full_like(x, 4) if index == unseen else x for index, x in enumerate(tables)]
    leaves = [x.to(bench.DEVICE).requires_grad_() for x in (q, *keys, *values)]
    keys, values = halves(leaves[1:])
    blocks = [bench.SMALL] * 3
    out, _ = interval.triton_attention(leaves[0], keys, values, tables, 0.3, blocks=blocks)
    _, *grads = torch.autograd.grad(out.square().sum(), leaves)
    of_keys, of_values = halves(grads)
    assert not of_keys[unseen].any() and not of_values[unseen].any()
    assert of_keys[1 - unseen].any() and of_values[1 - unseen].any()
    seen = (x[1 - unseen] for x in (keys, values, tables))
    assert torch.equal(out, interval.triton_attention(leaves[0], *seen, 0.3, blocks=blocks)[0])


def test_large_logits_stay_finite():
    """Logits of thousands: rows still sum to 1, which V = 1 reads, and no gradient is NaN."""
    q, k, v, table = cca_case(50, 4, 6)
    leaves = [x.to(bench.DEVICE).requires_grad_() for x in (q, 1000 * k, torch.ones_like(v))]
    out, lse = interval.triton_attention(*leaves, table, 1.0, blocks=[bench.SMALL] * 3)
    bench.assert_close(out, torch.ones(q.shape, dtype=torch.float64), "out", torch.float32)
    assert lse.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(out.sum(), leaves))


def test_the_primitive_takes_the_kernels_by_name():
    q, k, v, table = cca_case(20, 4, 6)
    got = interval_attention(*(x.to(bench.DEVICE) for x in (q, k, v)), table, backend="triton")
    bench.assert_close(got, interval_attention(*(x.double() for x in (q, k, v)), table,
                                               backend="dense"), "out", torch.float32)
    with pytest.raises(ValueError, match="float64"):
        interval_attention(q.double(), k.double(), v.double(), table, backend="triton")


def test_a_second_derivative_is_refused():
    q, k, v, table = cca_case(5, 2, 3)
    leaf = q.to(bench.DEVICE).requires_grad_()
    out = interval_attention(leaf, k.to(leaf), v.to(leaf), table, backend="triton")
    with pytest.raises(RuntimeError,
                       match="attention on the Triton kernels has no second derivative"):
        torch.autograd.grad(out.sum(), leaf, create_graph=True)


def test_results_repeat_bit_for_bit():
    q, k, v, table = cca_case(40, 4, 6, heads=4, key_heads=2)
    runs = []
    for _ in range(2):
        leaves = [x.to(bench.DEVICE).requires_grad_() for x in (q, k, v)]
        out, _ = interval.triton_attention(*leaves, table, 0.25)
        runs.append((out, *torch.autograd.grad(out.square().sum(), leaves)))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


@pytest.mark.parametrize("mutant", mutants.INTERVAL, ids=lambda mutant: mutant.__name__)
def test_mutants_are_caught(monkeypatch, mutant):
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        bench.check_interval_attention(*cca_case(20, 3, 7, heads=4, key_heads=2), 0.3)


@pytest.mark.parametrize("mutant", mutants.SOURCES, ids=lambda mutant: mutant.__name__)
def test_mutants_of_two_sources_are_caught(monkeypatch, mutant):
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        bench.check_interval_attention(*grouped_sources(), 0.3)
