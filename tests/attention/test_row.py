"""One row over pieces that lie apart: the native op and what falls back to the plain form."""

import math

import pytest
import torch
from torch.autograd import gradcheck

from cca_lab.attention import interval_attention, native, native_build
from cca_lab.attention.dense import accumulation_dtype, expand_heads
from cca_lab.attention.row import attend_row, row_of_pieces

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
