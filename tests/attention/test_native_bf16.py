"""The native op in bfloat16, against dense float64 within bounds of roundings."""

import os
from pathlib import Path
from unittest import mock

import pytest
import torch

from cca_lab.attention import causal_intervals, native, native_build
from cca_lab.attention.dense import dense_attention
from cca_lab.attention.native import native_attention
from tests.attention import bench
from tests.attention.test_blocked import LONG
from tests.mutants import native as wrong

UNIT = 2.0**-8  # of bfloat16: rounding moves a number by at most half of it, relative to the number


@pytest.fixture(scope="module", autouse=True)
def units():
    """Build the op, or skip where that cannot be done, or where the processor cannot run it."""
    if lacking := native_build.missing():
        pytest.skip(f"the native op cannot be built here: it lacks {lacking}")
    native.load()
    if not native.bfloat16_units():
        pytest.skip("this processor has neither AVX512-BF16 nor AMX")


@pytest.fixture(scope="module")
def mutants(units):
    wrong.load(Path(os.environ["TORCH_EXTENSIONS_DIR"]), wrong.BF16_MUTANTS)


def rounded(case):
    return [x.detach().bfloat16() for x in case.tensors]


def passes(attend, tensors, case):
    """Return out, lse, and gradients of a loss that both enter."""
    leaves = [x.detach().requires_grad_() for x in tensors]
    out, lse = attend(*leaves, case.intervals, case.scale)
    generator = torch.Generator().manual_seed(3)
    weights, others = (torch.randn(x.shape,
                                   generator=generator).bfloat16().to(x.dtype) for x in (out, lse))
    return out, lse, *torch.autograd.grad((out * weights).sum() + (lse * others).sum(), leaves)


def check(case, attend=native_attention):
    """Outputs and gradients of a case against float64 with the same inputs."""
    tensors = rounded(case)
    out, lse, *grads = passes(attend, tensors, case)
    wanted, wanted_lse, *wanted_grads = passes(dense_attention, [x.double() for x in tensors], case)
    assert out.dtype == torch.bfloat16 and lse.dtype == torch.float32
    # Products of bfloat16 are exact in float32, whose rounding is 2^-24: 64 roundings of sums, 20
    # units of exp.
    bench.assert_close(lse.double(), wanted_lse, "lse",
                       100 * 2.0**-24 * (1 + wanted_lse.abs().amax().item()))
    # Weights and output are rounded, half a unit each of at most the largest value.
    bench.assert_close(out.double(), wanted, "output", UNIT * tensors[2].abs().amax().item())
    for name, got, want in zip("qkv", grads, wanted_grads, strict=True):
        # Half a unit each: p, ds, the output inside delta, the result; relative to the largest
        # gradient.
        bench.assert_close(got.double(), want, f"gradient of {name}",
                           3 * UNIT * (want.abs().amax().item() + 1e-3))


def table(rows=400, window=64, group=16, **options):
    intervals = bench.window_table(rows, window, group, cores=True)
    return bench.case_of(intervals[None, None], int(intervals.max()), **options)


@pytest.mark.parametrize("name", LONG)
def test_long_tables(name):
    intervals = LONG[name][100 if name != "late start" else 501:][:420]
    check(bench.case_of(intervals[None, None], int(intervals.max()), heads=4, key_heads=2,
                        head_dim=40, scale=0.2))


@pytest.mark.parametrize("head_dim", [1, 16, 33, 80])
def test_every_head_dim(head_dim):
    check(table(150, 40, 12, head_dim=head_dim, scale=head_dim**-0.5))


@pytest.mark.parametrize("rows", [1, 2, 17, 33, 257])
def test_every_length(rows):
    check(bench.case_of(causal_intervals(rows), rows, heads=2, key_heads=1, head_dim=16,
                        scale=0.25))


@pytest.mark.parametrize("scale", [-0.3, 0.0, 4.0])
def test_scales(scale):
    """Large ones make one-hot weights, negative ones turn the order of logits round."""
    check(table(head_dim=24, scale=scale))


def test_the_same_on_any_number_of_threads_but_for_the_order_of_sums():
    case, before = table(head_dim=32, heads=1, scale=0.2), torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            check(case)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("rows", [2, 64, 300])
def test_columns_in_two_tensors(rows):
    check(bench.case_of(causal_intervals(rows), rows, heads=2, head_dim=32),
          bench.in_halves(native_attention))


def two_threads(case, attend=native_attention):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        check(case, attend)
    finally:
        torch.set_num_threads(before)


WIDE = table(150, 40, 12, head_dim=24, scale=0.5)
CAUSAL = bench.case_of(causal_intervals(600), 600, heads=1, head_dim=16, scale=1.0)
KILLS = {
    "bf16_starts_ignored": WIDE,
    "bf16_outputs_not_rescaled": CAUSAL,
    "bf16_old_weights_stay": WIDE,
    "bf16_last_rows_lost": WIDE,
    "bf16_backward_unmasked": WIDE,
    "bf16_lse_gradient_dropped": WIDE,
    "bf16_parts_overlap": CAUSAL,
    "bf16_gradients_of_the_first": CAUSAL,
}


IN_HALVES = ("bf16_gradients_of_the_first",)  # columns in two tensors


@pytest.mark.nightly  # builds as many ops
@pytest.mark.parametrize("mutant", [mutant.name for mutant in wrong.BF16_MUTANTS])
def test_mutants_die_and_the_real_code_lives(mutants, mutant):
    attend = bench.in_halves(native_attention) if mutant in IN_HALVES else native_attention
    two_threads(KILLS[mutant], attend)
    with mock.patch.object(torch.ops, "cca_lab",
                           getattr(torch.ops, mutant)), pytest.raises(AssertionError):
        two_threads(KILLS[mutant], attend)
