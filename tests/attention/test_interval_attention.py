"""The public op: the reference against PyTorch's, the backends' promises, refusals."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from torch.autograd import gradcheck, gradgradcheck

from cca_lab.attention import (
    causal_intervals,
    count_pairs,
    interval_attention,
    masked_attention,
    visible_mask,
)
from cca_lab.attention.blocked import blocked_attention
from cca_lab.attention.dense import dense_attention, expand_heads
from cca_lab.attention.intervals import TensorCache
from cca_lab.mechanisms.cca import groups
from tests import strategies
from tests.attention import bench

BACKENDS = {"dense": dense_attention, "blocked": blocked_attention}
every_backend = pytest.mark.parametrize("attend", BACKENDS.values(), ids=BACKENDS)
CASES = {
    "ragged": bench.ragged_case(batch=2),
    "window": bench.window_case(24, 5, 3),
    "one row": bench.case_of(torch.tensor([[[[[2, 4]]]]]), 5),
    "one column": bench.case_of(torch.tensor([0, 1]).expand(1, 1, 3, 1, 2), 1),
    "more columns than rows": bench.case_of(causal_intervals(4, 9), 9, heads=4, key_heads=2),
}


# ---------------------------------------------------------------- the reference


@settings(max_examples=30)
@given(case=strategies.cases(most_rows=6, most_columns=7))
def test_dense_equals_pytorch_s_attention_under_the_mask(case):
    k, v = (expand_heads(x, case.q.shape[1]) for x in case.tensors[1:])
    mask = visible_mask(case.intervals, k.shape[2])
    wanted = torch.nn.functional.scaled_dot_product_attention(case.q, k, v, mask, scale=case.scale)
    out, lse = dense_attention(*case.tensors, case.intervals, case.scale)
    bench.assert_close(out, wanted, "out")
    logits = (case.scale * case.q @ k.mT).masked_fill(~mask, float("-inf"))
    bench.assert_close(lse, logits.logsumexp(-1), "lse")


def test_a_mask_attends_alike_with_and_without_a_gradient():
    """Without one it is PyTorch's operator, which has no second derivative; with one it has."""
    q, k, v = (torch.randn(1, heads, 3, 2, dtype=torch.float64, requires_grad=True)
               for heads in (2, 1, 1))
    mask = torch.tensor([[1, 0, 0], [0, 1, 0], [1, 1, 1]]).bool()[None, None]
    with torch.no_grad():
        unrecorded = masked_attention(q, k, v, mask)
    bench.assert_close(unrecorded, masked_attention(q, k, v, mask).detach(), "out")
    assert gradgradcheck(lambda *x: masked_attention(*x, mask), (q, k, v))


def test_scale_is_one_over_the_root_of_the_head_dim_by_default():
    case = bench.ragged_case()
    got = interval_attention(*case.tensors, case.intervals)
    bench.assert_close(got, interval_attention(*case.tensors, case.intervals, scale=0.5),
                       "default scale, D = 4")


# ---------------------------------------------------------------- both backends

@every_backend
@pytest.mark.parametrize("check", [bench.check_matrix, bench.check_hidden_columns,
                                   bench.check_large_logits, bench.check_row_layouts],
                         ids=lambda check: check.__name__)
def test_backends_pass_the_bench(attend, check):
    for case in CASES.values():
        check(attend, case)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["ragged", "window"])
def test_gradients_of_output_and_lse_against_finite_differences(backend, name):
    case = bench.window_case(7, 3, 2) if name == "window" else bench.ragged_case(4, 5, head_dim=2)
    attend = partial(interval_attention, intervals=case.intervals, scale=case.scale,
                     backend=backend, return_lse=True)
    assert gradcheck(attend, [x.requires_grad_() for x in case.tensors])


@every_backend
def test_parts_of_a_row_merge_by_their_lse(attend):
    """As in caches: two buffers attended apart and merged equal one softmax over both."""
    case = bench.ragged_case()
    pieces = [torch.tensor(span).expand(1, 1, 9, 1, 2) for span in ([0, 5], [5, 12])]
    full = torch.tensor([0, 12]).expand(1, 1, 9, 1, 2)
    whole, lse = attend(*case.tensors, full, case.scale)
    (one, lse_one), (other, lse_other) = (attend(*case.tensors, piece,
                                                 case.scale) for piece in pieces)
    bench.assert_close(torch.logaddexp(lse_one, lse_other), lse, "merged lse")
    merged = one * (lse_one - lse).exp().unsqueeze(-1) + other * (lse_other
                                                                  - lse).exp().unsqueeze(-1)
    bench.assert_close(merged, whole, "merged output")


@every_backend
@pytest.mark.parametrize("scale", [0.0, -0.5, -1e-30])
@pytest.mark.parametrize("table", ["causal", "window"])
def test_a_scale_of_zero_or_less_is_a_scale(attend, scale, table):
    """Causal tiles are apart from masked ones: torch's operator gives NaN for the former."""
    case = replace({"causal": bench.case_of(causal_intervals(40), 40),
                    "window": CASES["window"]}[table], scale=scale)
    bench.check_same(attend, case)
    bench.check_gradients(attend, case)


@every_backend
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["ragged", "window"])
def test_low_precision_stays_within_its_rounding(attend, dtype, name):
    case = CASES[name]
    q, k, v = (x.to(dtype) for x in case.tensors)
    out, lse = attend(q, k, v, case.intervals, case.scale)
    wanted, wanted_lse = dense_attention(q.double(), k.double(), v.double(), case.intervals,
                                         case.scale)
    assert out.dtype == dtype and lse.dtype == torch.float32
    # A logit is a sum of D products in float32: error at most D * 2^-24 of the largest sum of
    # magnitudes.
    # It moves lse by as much, and every weight by twice that; weights, partial outputs and the
    # output are
    # each rounded once to dtype, which adds three half-units of the largest value. Below float32
    # PyTorch's
    # operator takes exp with a relative error of up to 2^-13.
    head_dim, key = q.shape[3], k.double().abs().amax()
    logits = head_dim * 2.0**-24 * abs(case.scale) * head_dim * q.double().abs().amax() * key
    exp = 1e-6 if dtype == torch.float32 else 2.0**-13
    outputs = (2 * logits + 3 * torch.finfo(dtype).eps / 2 + exp) * v.double().abs().amax()
    bench.assert_close(lse.double(), wanted_lse, "lse", (logits + exp).item())
    bench.assert_close(out.double(), wanted, "output", outputs.item())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_low_precision_gradients(dtype):
    """Against float64: roundings of each factor, of do . out, and of each part's gradient."""
    case = bench.window_case(60, 8, 4)
    inputs = [x.to(dtype) for x in case.tensors]

    def gradients(attend, tensors):
        leaves = [x.detach().clone().requires_grad_() for x in tensors]
        return torch.autograd.grad(attend(*leaves, case.intervals, case.scale)[0].square().sum(),
                                   leaves)

    wanted = gradients(dense_attention, [x.double() for x in inputs])
    for name, got, want in zip("qkv", gradients(blocked_attention, inputs), wanted, strict=True):
        assert got.dtype == dtype
        # Ten roundings of half a unit, relative to the largest gradient: do, out, v, p, do.v,
        # delta, ds, the
        # part's gradient, their sum and the final cast; float32 also sums tens of products (1e-6).
        bench.assert_close(got.double(), want, f"gradient of {name}",
                           5 * torch.finfo(dtype).eps + 1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradient_checkpointing_and_compile(backend):
    case = bench.window_case(12, 5, 3)
    attend = partial(interval_attention, intervals=case.intervals, backend=backend)

    def gradients(form):
        leaves = [x.detach().requires_grad_() for x in case.tensors]
        return torch.autograd.grad(form(*leaves).square().sum(), leaves)

    wanted = gradients(attend)
    forms = {"checkpoint": partial(torch.utils.checkpoint.checkpoint, attend, use_reentrant=False),
             "compile": torch.compile(attend, backend="eager")}
    for name, form in forms.items():
        for got, want in zip(gradients(form), wanted, strict=True):
            bench.assert_close(got, want, f"gradient under {name}")


# ---------------------------------------------------------------- intervals

def test_masks_and_pairs_of_intervals():
    table = torch.tensor([[[0, 1], [1, 1]], [[0, 1], [2, 4]]])[None, None]
    assert visible_mask(table, 4)[0, 0].tolist() == [[True, False, False, False],
                                                     [True, False, True, True]]
    assert count_pairs(table) == 4 and count_pairs(causal_intervals(5)) == 15
    assert causal_intervals(2, 5)[0, 0, :, 0].tolist() == [[0, 4], [0, 5]]


# ---------------------------------------------------------------- refusals

def rows_of(*rows):
    return torch.tensor(rows)[None, None]


TABLE = rows_of([[0, 1]], [[0, 2]], [[1, 3]])
BAD_INTERVALS = {
    "overlap": (rows_of([[0, 2], [1, 3]], [[0, 2], [2, 3]], [[0, 2], [2, 3]]),
                r"\[0, 0, 0\].*overlapping.*disjoint"),
    "one inside the other": (rows_of([[1, 2], [0, 3]], [[1, 2], [2, 3]], [[1, 2], [2, 3]]),
                             "overlapping"),
    "a start moves back": (rows_of([[1, 2]], [[0, 2]], [[0, 3]]),
                           r"\[0, 0, 1, 0\] = \[0, 2\] moves back"),
    "an end moves back": (rows_of([[0, 2]], [[0, 1]], [[0, 3]]),
                          r"\[0, 0, 1, 0\] = \[0, 1\] moves back"),
    "an empty interval moves back": (rows_of([[0, 2], [3, 3]], [[0, 2], [2, 2]], [[0, 2], [2, 3]]),
                                     "moves back"),
    "past the last column": (rows_of([[0, 1]], [[0, 2]], [[0, 4]]),
                             r"\[0, 0, 2, 0\] = \[0, 4\] is out of range for 3"),
    "below zero": (rows_of([[-1, 1]], [[0, 2]], [[0, 3]]), "out of range"),
    "start after end": (rows_of([[2, 1]], [[2, 2]], [[2, 3]]), "starts after it ends"),
    "empty row": (rows_of([[0, 0]], [[0, 2]], [[0, 3]]), r"\[0, 0, 0\].*sees no column"),
    "float": (TABLE.float(), "got torch.float32.*int64"),
    "other heads": (TABLE.expand(1, 3, -1, -1, -1), r"\(1, 3, 3, 1, 2\).*1 or 2"),
    "five intervals": (torch.cat([TABLE, TABLE[..., 1:].expand(-1, -1, -1, 4, 2)], dim=3),
                       r"1\.\.4"),
}


@pytest.mark.parametrize(("table", "message"), BAD_INTERVALS.values(), ids=BAD_INTERVALS)
def test_bad_intervals_are_named(table, message):
    case = bench.case_of(TABLE, 3)
    with pytest.raises(ValueError, match="intervals.*" + message):
        interval_attention(*case.tensors, table)


Q = torch.zeros(1, 2, 3, 4)


@pytest.mark.parametrize(("backend", "message"), [("triton", "tensors on cpu, wanted a GPU"),
                                                  ("flash", "'flash', wanted")])
def test_backends_that_do_not_exist_here_are_refused(backend, message):
    with pytest.raises(ValueError, match=message):
        interval_attention(Q, Q, Q, TABLE, backend=backend)


def test_causal_intervals_need_a_column_per_row():
    with pytest.raises(ValueError, match="columns: got 3"):
        causal_intervals(4, 3)


@pytest.mark.parametrize("backend", ["dense", "blocked"])
@pytest.mark.parametrize("written", [(0, -5), (1, 99)], ids=["starts", "ends"])
@pytest.mark.parametrize("through", [lambda table: table.numpy(), lambda table: table.data],
                         ids=["numpy", "data"])
def test_a_table_written_into_behind_its_check_is_refused(through, written, backend):
    """The mutant that goes by the tensor's version divides by zero, which ends Python."""
    q, table, (bound, value) = torch.randn(1, 1, 20, 16), causal_intervals(20).clone(), written
    interval_attention(q, q, q, table, backend=backend)
    through(table)[0, 0, :, 0, bound] = value
    with pytest.raises(ValueError, match="out of range for 20 columns"):
        interval_attention(q, q, q, table, backend=backend)


def test_a_table_is_checked_again_for_fewer_columns():
    q, table = torch.randn(1, 1, 4, 8), causal_intervals(4)
    interval_attention(q, q, q, table, backend="dense")
    with pytest.raises(ValueError, match="out of range for 3 columns"):
        interval_attention(q, q[:, :, :3], q[:, :, :3], table, backend="dense")


def test_what_is_noted_about_a_table_dies_with_it():
    cache, table = TensorCache(), causal_intervals(4)
    assert [cache.get(table, "rows", lambda: 4), cache.get(table, "rows", lambda: 5)] == [4, 4]
    table += 1
    assert cache.get(table, "rows", lambda: 5) == 5
    with torch.inference_mode():
        made_there = causal_intervals(4)
        assert [cache.get(made_there, "rows", lambda n=n: n) for n in (1, 2)] == [1, 2]
    assert len(cache._entries) == 1
    del table
    assert len(cache._entries) == 0


def test_a_table_made_for_inference_serves_training():
    with torch.inference_mode():
        made = groups.intervals(29, 3, 7)
    assert made is groups.intervals(29, 3, 7) and not made.is_inference()


@pytest.mark.parametrize("backend", ["dense", "blocked"])
def test_autocast_leaves_the_softmax_alone(backend):
    q, k, v = torch.randn(3, 1, 2, 12, 8)
    wanted, wanted_lse = interval_attention(q, k, v, causal_intervals(12), backend=backend,
                                            return_lse=True)
    with torch.autocast("cpu", torch.bfloat16):
        out, lse = interval_attention(q, k, v, causal_intervals(12), backend=backend,
                                      return_lse=True)
    assert lse.dtype == torch.float32 and torch.equal(lse, wanted_lse) and torch.equal(out, wanted)


def test_a_table_is_on_the_cpu_unless_asked_for_elsewhere():
    with torch.device("meta"):
        tables = groups.intervals(31, 3, 7), groups.chunk_intervals(3, 31, 3, 7)
    assert all(table.device.type == "cpu" for table in tables)
