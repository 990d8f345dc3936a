"""The vertical-slash kernel against the mask in float64, and wrong launches of it."""

from dataclasses import replace

import pytest
import torch

from cca_lab.mechanisms.minference import VerticalSlash
from cca_lab.mechanisms.minference.patterns import Choice
from tests.attention.kernels import bench
from tests.mechanisms import bench as mechanism_bench
from tests.mutants import kernels as mutants
from tests.strategies import LAYOUTS, laid_out

OPTIONS = {"vertical": 4, "slash": 3, "last": 8, "forced_vertical": 1, "forced_slash": 1}


def check(length, block, *, batch=1, heads=(4, 2), head_dim=16, dtype=torch.float32,
          layout="contiguous", chosen_at=None, **options):
    """The output, given a choice made in float64 on `chosen_at` tokens, all by default."""
    options, generator = {**OPTIONS, "block": block,
                          **options}, torch.Generator().manual_seed(length)
    q, k, v = (laid_out((batch, n, length, head_dim), layout,
                        generator).to(dtype) for n in (heads[0], *heads[1:] * 2))
    exact = [x.double() for x in (q, k, v)]
    longer = [torch.cat([x, x.flip(2)], dim=2)[:, :, : chosen_at or length] for x in exact[:2]]
    dense = VerticalSlash(backend="dense", **options)
    chosen = dense.select(*longer)
    wanted = dense.attention(*exact, selection=chosen)
    if chosen_at:
        mechanism_bench.assert_close(wanted, dense.loops(*exact, selection=chosen), "dense")
    with torch.no_grad(), bench.guarded_outputs():
        got = replace(dense, backend="triton").attention(
            *map(bench.guarded, (q, k, v)), selection=Choice(*(x.to(bench.DEVICE) for x in chosen)))
    bench.assert_close(got, wanted, "out", dtype)


@pytest.mark.parametrize(("length", "block"),
                         [(1, 3), (9, 1), (37, 5), (37, 16), (50, 24), (40, 100)])
def test_any_length_and_block(length, block):
    check(length, block)


@pytest.mark.parametrize("options", [{"vertical": 0, "slash": 1}, {"vertical": 40}, {"slash": 40},
                                     {"slash": 9, "forced_slash": 4},
                                     {"vertical": 12, "forced_vertical": 6}], ids=str)
def test_few_and_many_columns_and_diagonals(options):
    check(37, 8, **options)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(dtype):
    check(37, 8, dtype=dtype, head_dim=20)


@pytest.mark.parametrize("heads", [(1, 1), (6, 2)], ids=str)
def test_grouped_queries(heads):
    check(21, 8, heads=heads)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_strides(layout):
    check(21, 8, batch=2, layout=layout)


@pytest.mark.parametrize("chosen_at", [13, 42])
def test_a_choice_of_another_length(chosen_at):
    check(26, 8, chosen_at=chosen_at)


def test_what_the_kernel_does_not_do_is_refused():
    q = torch.zeros(1, 1, 6, 16, device=bench.DEVICE, requires_grad=True)
    with pytest.raises(ValueError, match="backend: got 'triton' for a gradient, wanted 'dense'"):
        VerticalSlash(backend="triton", **OPTIONS).attention(q, q, q)
    blind = Choice(*(torch.tensor(x, device=bench.DEVICE) for x in ([[[0]]], [[[2, 3]]])))
    with pytest.raises(ValueError, match="nearest diagonal of some head is 2, wanted 0"):
        VerticalSlash(block=1, backend="triton", **OPTIONS).attention(*[q.detach()] * 3,
                                                                      selection=blind)


@pytest.mark.parametrize("mutant", mutants.VERTICAL_SLASH, ids=lambda mutant: mutant.__name__)
def test_mutants_are_caught(monkeypatch, mutant):
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        check(37, 8, vertical=12, slash=9)
