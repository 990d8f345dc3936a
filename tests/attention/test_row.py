"""A decoded token in C++: one row over pieces that lie apart, and the core of a group."""

import math
import os
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch.autograd import gradcheck

from cca_lab.attention import interval_attention, native, native_build
from cca_lab.attention.dense import accumulation_dtype, expand_heads
from cca_lab.attention.pooling import pool_checked
from cca_lab.attention.row import attend_row, row_of_pieces
from cca_lab.mechanisms import mechanism_of
from cca_lab.mechanisms.caches import CACHES
from tests.mechanisms.options import OPTIONS
from tests.mutants import native as wrong_ops

# (batch, query heads, head_dim, (KV heads, columns) of each piece)
CASES = [(1, 4, 16, [(2, 15), (2, 80)]),
         (2, 8, 20, [(8, 3), (2, 700)]),
         (1, 9, 64, [(3, 0), (3, 4), (3, 2100)]),
         (3, 6, 7, [(1, 1)]),
         (2, 4, 128, [(2, 1500), (2, 1), (2, 2000)])]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(scope="module")
def built():
    """Build the op, or skip where that cannot be done."""
    if lacking := native_build.missing():
        pytest.skip(f"the native op cannot be built here: it lacks {lacking}")
    native.load()


def case(sizes, dtype=torch.float64, biased=False):
    """Query, keys, values (as a layer makes them, heads last in memory), scale and bias."""
    batch, heads, head_dim, pieces = sizes
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    keys, values = ([draw(batch, n, of, head_dim).transpose(1, 2) for of, n in pieces]
                    for _ in "kv")
    bias = [draw(1 + (batch - 1) * (i % 2), n).to(accumulation_dtype(dtype)).log_softmax(-1)
            for i, (_, n) in enumerate(pieces)] if biased else []
    return draw(batch, heads, 1, head_dim), keys, values, head_dim**-0.5, bias


def received_of(sizes, dtype):
    """Return what columns received before, or None where pieces have different heads."""
    batch, _, _, pieces = sizes
    if len({heads for heads, _ in pieces}) > 1:
        return None
    shape = batch, pieces[0][0], sum(n for _, n in pieces)
    return torch.ones(shape, dtype=accumulation_dtype(dtype))


def check_native(sizes, dtype=torch.float64, biased=False, op=None):
    """The op against the plain form in float64, within the rounding of a dtype.

    Sums are at least float32; a logit of D products and exp are right within their roundings, as a
    random walk, which moves a weight by twice as much; the output is rounded to the dtype once.
    """
    arguments = case(sizes, dtype, biased)
    received = [received_of(sizes, dtype), received_of(sizes, torch.float64)]
    got = (op or native.row)(*arguments, received[0])
    query, keys, values, scale, bias = arguments
    exact = [[x.double() for x in tensors] for tensors in ([query], keys, values, bias)]
    wanted = row_of_pieces(exact[0][0], exact[1], exact[2], scale, exact[3], received[1])
    assert got.dtype == dtype
    unit = torch.finfo(accumulation_dtype(dtype)).eps / 2
    columns = sum(n for _, n in sizes[3])
    logits = 1 + max(float((scale * x.abs()).amax()) for x in keys if x.numel())
    logits *= float(exact[0][0].abs().sum(-1).amax())
    weights = (2 * math.sqrt(sizes[2]) * logits + 8 + math.sqrt(columns)) * unit
    largest = max(float(x.abs().amax()) for x in exact[2] if x.numel())
    assert (got - wanted).abs().max() <= weights * largest + torch.finfo(dtype).eps * largest
    if received[0] is not None:
        assert (received[0] - received[1]).abs().max() <= weights + 2 * unit
    if dtype == torch.float64:
        assert torch.allclose(got, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("sizes", CASES, ids=str)
def test_native_equals_the_plain_form(built, sizes, biased):
    check_native(sizes, biased=biased)


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
def test_other_dtypes_are_right_within_their_rounding(built, dtype):
    for sizes in CASES:
        check_native(sizes, dtype, biased=True)


@pytest.mark.parametrize("sizes", CASES, ids=str)
def test_the_plain_form_is_one_softmax_over_the_concatenation(sizes):
    query, keys, values, scale, _ = case(sizes)
    key, value = (torch.cat([expand_heads(x, sizes[1]) for x in pieces], dim=2)
                  for pieces in (keys, values))
    table = torch.tensor([0, key.shape[2]]).expand(1, 1, 1, 1, 2)
    wanted = interval_attention(query, key, value, table, scale=scale, backend="dense")
    assert torch.allclose(row_of_pieces(query, keys, values, scale), wanted, rtol=0, atol=1e-12)


@torch.no_grad()
def test_a_bias_is_a_factor_on_weights_and_hides_at_minus_infinity(built):
    """ln n on a column is the column n times; -inf is a piece without it, even a whole one."""
    query, keys, values, scale, _ = case((2, 4, 16, [(2, 5), (2, 3)]))
    for attend in (native.row, row_of_pieces):
        bias = [torch.full((1, 5), math.log(3.0)), torch.zeros(1, 3)]
        thrice = attend(query, [keys[0]] * 3 + keys[1:], [values[0]] * 3 + values[1:], scale)
        assert torch.allclose(attend(query, keys, values, scale, bias), thrice, rtol=0, atol=1e-7)
        bias[0][:] = float("-inf")
        assert torch.allclose(attend(query, keys, values, scale, bias),
                              attend(query, keys[1:], values[1:], scale), rtol=0, atol=1e-12)


def test_a_gradient_is_computed_in_plain_pytorch(built, monkeypatch):
    query, keys, values, scale, _ = case((1, 4, 3, [(2, 2), (4, 3)]))
    tensors = [x.requires_grad_() for x in (query, *keys, *values)]
    assert gradcheck(lambda q, *x: attend_row(q, x[:2], x[2:], scale=scale), tensors)
    calls = []
    monkeypatch.setattr(native, "row", lambda *args: calls.append(args))
    attend_row(query, keys, values, scale=scale, backend="native")
    assert not calls
    with torch.no_grad():
        attend_row(query, keys, values, scale=scale, backend="native")
    assert calls


@pytest.mark.parametrize("wrong", [
    lambda q, k, v, b: (q.expand(-1, -1, 2, -1), k, v, b), lambda q, k, v, b: (q, k[:1], v, b),
    lambda q, k, v, b: (q, k, v, b[:1]), lambda q, k, v, b: (q, k, [v[1], v[0]], b),
    lambda q, k, v, b: (q, [x.float() for x in k], v, b),
    lambda q, k, v, b: (q[:, :3], k, v, b), lambda q, k, v, b: (q, k, v, [x[:, 1:] for x in b]),
    lambda q, k, v, b: (q, [x[:, :, :0] for x in k], [x[:, :, :0] for x in v], [])])
def test_pieces_that_do_not_fit_are_refused(built, wrong):
    """Else the op would read what lies behind them."""
    query, keys, values, scale, bias = case((2, 4, 8, [(2, 5), (2, 3)]), biased=True)
    query, keys, values, bias = wrong(query, keys, values, bias)
    with pytest.raises(ValueError, match="got"):
        native.row(query, keys, values, scale, bias)


@torch.no_grad()
@pytest.mark.parametrize("strided", [0, 1, 2], ids=["query", "key", "value"])
def test_features_that_do_not_lie_side_by_side_give_the_same_row(built, strided):
    tensors = [torch.randn(1, heads, n, 8) for heads, n in ((2, 1), (1, 5), (1, 5))]
    wanted = native.row(tensors[0], [tensors[1]], [tensors[2]], 1.0)
    tensors[strided] = tensors[strided].repeat_interleave(2, dim=-1)[..., ::2]
    assert tensors[strided].stride(-1) == 2
    assert torch.equal(native.row(tensors[0], [tensors[1]], [tensors[2]], 1.0), wanted)


POOLS = [(1, 4, 2, 16, 16, 16, 1, 1), (2, 6, 3, 37, 8, 4, 7, 2), (1, 3, 3, 20, 5, 3, 5, 0)]


def check_pool(sizes, dtype=torch.float64, op=None):
    """Cores in C++ against PyTorch in float64: both are sums of g products with weights below 1."""
    batch, heads, key_heads, length, head_dim, group, count, tables = sizes
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(batch, length, n, head_dim, generator=generator).to(dtype).transpose(
        1, 2) for n in (heads, key_heads, key_heads))
    angles = torch.rand(tables or 1, length, head_dim // 2, generator=generator).repeat(1, 1, 2)
    rotation = ((1.2 * angles.cos()).to(dtype), (1.2 * angles.sin()).to(dtype)) if tables else None
    got = (op or native.pool)(q, k, v, group, count, 0.3, rotation)
    exact = [x.double() for x in (q, k, v)]
    wanted = pool_checked(*exact, group, count=count, scale=0.3, backend="torch",
                          rotation=rotation and tuple(x.double() for x in rotation))
    for a, b, x in zip(got, wanted[:2], exact[1:], strict=True):
        assert a.dtype == dtype and a.shape == b.shape
        bound = 1e-12 if dtype == torch.float64 else torch.finfo(dtype).eps * float(
            2 * x.abs().amax() * (2 if tables else 1) + 8)
        assert (a - b).abs().max() <= bound


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", POOLS, ids=str)
def test_native_pooling_equals_the_plain_form(built, sizes, dtype):
    check_pool(sizes, dtype)


def test_pooling_takes_the_op_where_no_gradient_is_needed(built, monkeypatch):
    monkeypatch.setattr(native, "reads_rows", lambda x: True)
    q, k, v = torch.randn(3, 1, 2, 8, 4).unbind()
    calls, right = [], native.pool
    monkeypatch.setattr(native, "pool", lambda *args: calls.append(args) or right(*args))
    for weights, gradient in (("softmax", True), ("mean", False), ("softmax", False)):
        assert not calls
        pool_checked(q.requires_grad_(gradient), k, v, 4, scale=1.0, weights=weights)
    assert len(calls) == 1


@pytest.mark.parametrize("wrong", wrong_ops.ROW_MUTANTS, ids=lambda wrong: wrong.name)
def test_mutants_are_caught(built, wrong):
    wrong_ops.load(Path(os.environ["TORCH_EXTENSIONS_DIR"]), wrong_ops.ROW_MUTANTS)
    ops = getattr(torch.ops, wrong.name)
    with pytest.raises(AssertionError):
        for sizes in CASES:
            check_native(sizes, biased=True, op=lambda q, k, v, scale, *rest: ops.row(
                q, k, v, rest[0], scale, rest[1]))
        for sizes in POOLS:
            check_pool(sizes, op=lambda *args: ops.pool(*args[:-1], *(args[-1] or (None, None))))


@torch.no_grad()
@pytest.mark.parametrize("name", sorted(CACHES))
def test_every_cache_decodes_with_the_op_as_without(built, monkeypatch, name):
    mechanism = mechanism_of(name, OPTIONS[name][0])
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, heads, 40, 8, generator=generator, dtype=torch.float64)
               for heads in (4, 2, 2))
    outputs, calls, right = [], [], native.row
    monkeypatch.setattr(native, "row", lambda *args: calls.append(args) or right(*args))
    for used in (False, True):
        monkeypatch.setattr(native, "reads_rows", lambda x, used=used: used)
        state = CACHES[name].state(mechanism)
        outputs.append(torch.cat([state.step(*(x[:, :, now:stop] for x in (q, k, v)), scale=0.3,
                                             rotation=None) for now, stop in pairwise(
                                                 [0, 17, *range(18, 41)])], dim=2))
    assert len(calls) >= 20, "the op is not used"
    assert torch.allclose(*outputs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("sizes", [(9, 1, 2, 5), (0, 2, 1, 3), (5, 1, 0, 0), (5, 3, 4, 9)])
def test_entries_slide_as_slices_do(built, sizes):
    held, more, begin, end = sizes
    past, new = ([torch.randn(2, n, 3, 5).transpose(1, 2) for _ in "kv"] for n in (held, more))
    wanted = [torch.cat([x[:, :, :begin], x[:, :, end:], y], dim=2)
              for x, y in zip(past, new, strict=True)]
    assert all(map(torch.equal, native.slide(past, new, begin, end), wanted))
