"""A decoded token in C++: one row over pieces that lie apart, and the core of a group."""

import math
import os
from functools import partial
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
from cca_lab.mechanisms.caching import state as caching_state
from cca_lab.mechanisms.kept_heads.mechanism import OTHERS
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


def check_native(sizes, dtype=torch.float64, biased=False, op=None):
    """The op against the plain form in float64, within the rounding of a dtype.

    Sums are at least float32; a logit of D products and exp are right within their roundings, as a
    random walk, which moves a weight by twice as much; the output is rounded to the dtype once.
    """
    arguments = case(sizes, dtype, biased)
    got = (op or native.row)(*arguments)
    query, keys, values, scale, bias = arguments
    exact = [[x.double() for x in tensors] for tensors in ([query], keys, values, bias)]
    wanted = row_of_pieces(exact[0][0], exact[1], exact[2], scale, exact[3])
    assert got.dtype == dtype
    unit = torch.finfo(accumulation_dtype(dtype)).eps / 2
    columns = sum(n for _, n in sizes[3])
    logits = 1 + max(float((scale * x.abs()).amax()) for x in keys if x.numel())
    logits *= float(exact[0][0].abs().sum(-1).amax())
    weights = (2 * math.sqrt(sizes[2]) * logits + 8 + math.sqrt(columns)) * unit
    largest = max(float(x.abs().amax()) for x in exact[2] if x.numel())
    assert (got - wanted).abs().max() <= weights * largest + torch.finfo(dtype).eps * largest
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
            check_native(sizes, biased=True, op=lambda q, k, v, scale, bias: ops.row(
                q, k, v, bias, scale))
        for sizes in POOLS:
            check_pool(sizes, op=lambda *args: ops.pool(*args[:-1], *(args[-1] or (None, None))))
        step = partial(dispatched, ops=ops)
        for sizes in STEPS:
            check_step(sizes, step)
        check_least(step)


# (batch, query heads of a KV head, head_dim, part of each KV head, entries and drop of each part)
STEPS = [(1, 2, 16, [0, 0], [(70, (4, 5))]),
         (2, 1, 7, [0, 1, 0], [(300, (0, 0)), (9, (2, 6))]),
         (2, 3, 8, [1, 0], [(1, (4, 4)), (5, (1, 6))])]


def step_case(sizes, dtype=torch.float64):
    """Query, key, value, and of each part a piece of as many heads as queries, and the last."""
    batch, share, head_dim, owner, parts = sizes
    generator = torch.Generator().manual_seed(0)

    def draw(heads, n):
        return torch.randn(batch, n, heads, head_dim, generator=generator,
                           dtype=torch.float64).to(dtype).transpose(1, 2)

    counts = [owner.count(part) for part in range(len(parts))]
    keys, values = ([draw(heads, n) for count, (entries, _) in zip(counts, parts, strict=True)
                     for heads, n in ((share * count, 3), (count, entries))] for _ in "kv")
    kv_heads = len(owner)
    return draw(share * kv_heads, 1), draw(kv_heads, 1), draw(kv_heads, 1), keys, values


def check_step(sizes, op=None):
    """A step against `row_of_pieces` and `torch.cat` for each part by itself."""
    query, key, value, keys, values = step_case(sizes)
    _, share, _, owner, parts = sizes
    part = [number for number in range(len(parts)) for _ in "cl"]  # columns alone, and the last
    drop = [bound for _, range_ in parts for bound in range_]
    got, grown = (op or native.step)(query, key, value, keys, values, 0.3, drop, part=part,
                                     owner=owner)
    for number, (_, (begin, end)) in enumerate(parts):
        heads = [head for head, of in enumerate(owner) if of == number]
        rows = [share * head + i for head in heads for i in range(share)]
        mine, new = slice(2 * number, 2 * number + 2), [x[:, heads] for x in (key, value)]
        wanted = row_of_pieces(query[:, rows], [*keys[mine], new[0]], [*values[mine], new[1]], 0.3)
        assert torch.allclose(got[:, rows], wanted, rtol=0, atol=1e-12)
        for one, x, y in zip(grown[mine], (keys[mine][1], values[mine][1]), new, strict=True):
            both = torch.cat([x, y], dim=2)
            assert torch.equal(one, torch.cat([both[:, :, :begin], both[:, :, end:]], dim=2))


def check_least(op=None, entries=40, begin=5, end=39):
    """The entry that has received least leaves each head, the first of equal ones."""
    query, key, value, keys, values = step_case((2, 2, 8, [0, 0, 0], [(entries, None)]))
    before = torch.rand(2, 3, entries, generator=torch.Generator().manual_seed(1)).double()
    before[:, :, 3] = -1
    if end > begin + 1:
        before[0, 1, begin:begin + 2] = -0.9  # and as much attention
        keys[1][0, 1, begin + 1] = keys[1][0, 1, begin]
    old = before.clone()
    _, (grown_key, grown_value, sums) = (op or native.step)(
        query, key, value, keys[1:], values[1:], 0.3, (begin, end), received=before)
    assert torch.equal(before, old)
    every = [torch.cat([x, y], dim=2) for x, y in ((keys[1], key), (values[1], value))]
    wanted = torch.cat([before, before.new_zeros(2, 3, 1)], dim=2)
    row_of_pieces(query, [every[0]], [every[1]], 0.3, (), wanted)
    for b in range(2):
        for head in range(3):
            least = begin + int(wanted[b, head, begin:end].argmin()) if begin < end else None
            stays = [i for i in range(entries + 1) if i != least]
            assert torch.allclose(sums[b, head], wanted[b, head, stays], rtol=0, atol=1e-12)
            assert torch.equal(grown_key[b, head], every[0][b, head, stays])
            assert torch.equal(grown_value[b, head], every[1][b, head, stays])


def dispatched(*args, bias=(), received=None, part=(), owner=(), ops=torch.ops.cca_lab):
    """`native.step` as it is where Python's headers lack."""
    *tensors, scale, drop = args
    return ops.step(*tensors, bias, part or [0] * len(tensors[-1]), owner, drop, scale, received)


@torch.no_grad()
@pytest.mark.parametrize("op", [None, dispatched])
def test_a_step_is_a_row_of_each_part_and_a_concatenation(built, op):
    for sizes in STEPS:
        check_step(sizes, op)
    for bounds in ((5, 39), (5, 41), (0, 0), (40, 41)):
        check_least(op, 40, *bounds)


@pytest.mark.parametrize("wrong", [
    {"owner": [0]}, {"owner": [0, 2]}, {"owner": [0, -1]}, {"owner": [0, 0]}, {"part": [0, 0, 1]},
    {"part": [0, 0, 0, 0]}, {"part": [0, 0, 1, 2]}, {"part": [0, 0, 1, -1]},
    {"drop": [0, 0]}, {"drop": [-1, 0, 0, 0]}, {"drop": [0, 0, 2, 1]},
    {"received": torch.ones(2, 2, 1)}], ids=str)
def test_a_step_that_does_not_fit_is_refused(built, wrong):
    given = {"drop": [0, 0, 0, 0], "owner": [1, 0], "part": [0, 0, 1, 1]} | wrong
    with pytest.raises(ValueError, match="got"):
        native.step(*step_case(STEPS[2]), 0.3, **given)


def test_a_python_call_of_other_types_is_refused(built):
    """Each would be read as a tensor, or as a list of them."""
    row, x = native._token_ops().row, torch.ones(1, 1, 1, 4)
    assert "built-in" in str(row), "the headers lack, or are not found"
    for wrong in ((3, [x], [x], [], 1.0), (x, x, [x], [], 1.0), (x, [x], [4], [], 1.0),
                  (x, [x], [x], [], "1"), (x, [x])):
        with pytest.raises(TypeError, match=r"got|must be"):
            row(*wrong)


@torch.no_grad()
@pytest.mark.parametrize("name", sorted(CACHES))
def test_every_cache_decodes_with_the_op_as_without(built, monkeypatch, name):
    """All outputs, and all that is stored; kept heads beside each other mechanism, too."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, heads, 40, 8, generator=generator, dtype=torch.float64)
               for heads in (6, 3, 3))
    angles = torch.rand(1, 40, 4, generator=generator, dtype=torch.float64).repeat(1, 1, 2)
    calls, right = [], native.step
    monkeypatch.setattr(native, "step", lambda *args, **options: calls.append(args) or right(
        *args, **options))
    monkeypatch.setattr(caching_state, "FEW", 2 * 2 * 30 * 8)  # two kept heads read so many
    for options in OPTIONS[name]:
        kinds = [(name, options)]
        if name in OTHERS:
            kinds += [("kept_heads", {"kept": [kept], "others": {"name": name, **options}})
                      for kept in ([0, 2], [], [1])]
        for kind, chosen in kinds:
            results = []
            for used in (False, True):
                monkeypatch.setattr(native, "reads_rows", lambda x, used=used: used)
                state = CACHES[kind].state(mechanism_of(kind, chosen))
                outputs = []
                for begin, end in pairwise([0, 1, 2, 3, 17, *range(18, 41)]):
                    now = slice(begin, end)
                    rotation = angles[:, now].cos(), angles[:, now].sin()
                    outputs.append(state.step(*(x[:, :, now] for x in (q, k, v)), scale=0.3,
                                              rotation=rotation))
                results.append([*outputs, *state.tensors()])
            for got, wanted in zip(*results, strict=True):
                assert torch.allclose(got, wanted, rtol=0, atol=1e-12), (kind, chosen)
    assert calls, "the op is not used"


@pytest.mark.parametrize("sizes", [(9, 2, 5), (0, 2, 2), (5, 0, 0), (5, 4, 5)])
def test_entries_slide_as_slices_do(built, sizes):
    held, begin, end = sizes
    past, new = ([torch.randn(2, n, 3, 5).transpose(1, 2) for _ in "kv"] for n in (held, 1))
    wanted = [torch.cat([x[:, :, :begin], x[:, :, end:], y], dim=2)
              for x, y in zip(past, new, strict=True)]
    assert all(map(torch.equal, native.slide(past, new, begin, end), wanted))
