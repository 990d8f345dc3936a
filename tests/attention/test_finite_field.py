"""The kernels' own source over a finite field against their formula, for random numbers."""

import random

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import _disable_current_modes

from cca_lab.attention import pooling as pools
from cca_lab.attention.kernels import decode, interval, launch, pooling, vertical_slash
from cca_lab.attention.kernels.configs import Blocks
from cca_lab.attention.kernels.interval_forward import interval_forward
from cca_lab.attention.kernels.tile_interpreter import run as run_programs
from cca_lab.attention.sources import halves
from cca_lab.mechanisms import MECHANISMS
from cca_lab.mechanisms.cca import mechanism as cca
from cca_lab.mechanisms.dga import mechanism as dga
from tests.attention.finite_field import BASE, LOWEST, ORDER, PRIME, Field, logarithm, packed, parts
from tests.mechanisms.options import OPTIONS
from tests.mutants.theory_forall import Slip
from tests.strategies import random_table

SCALE = 0.3


class Number:
    """A number of the field with its derivative along a line, in integers."""

    def __init__(self, value, exponent, slope=0):
        self.value, self.exponent = int(value) % PRIME, int(exponent) % ORDER
        self.slope = int(slope) % PRIME

    def __add__(self, other):
        return Number(self.value + other.value, self.exponent + other.exponent,
                      self.slope + other.slope)

    def __mul__(self, other):
        return Number(self.value * other.value, self.exponent * other.exponent,
                      self.slope * other.value + self.value * other.slope)

    def __truediv__(self, other):  # of values
        inverse = pow(other.value, -1, PRIME)
        value = self.value * inverse
        return Number(value, 0, (self.slope - value * other.slope) * inverse)

    def exp(self):
        value = pow(BASE, self.exponent, PRIME)
        return Number(value, 0, value * self.slope)

    def log(self):
        return Number(0, logarithm(self.value), self.slope * pow(self.value, -1, PRIME))


number, exp = np.frompyfunc(Number, 3, 1), np.frompyfunc(Number.exp, 1, 1)


def attention(q, k, v, seen, scale):
    """The specification: softmax of scaled products over the columns seen, row by row."""
    out, lse = np.empty(q.shape, object), np.empty(q.shape[:-1], object)
    for b, h, i in np.ndindex(*lse.shape):
        keys, values = (x[b, h * k.shape[1] // q.shape[1]] for x in (k, v))
        columns = np.broadcast_to(seen, (*lse.shape, len(keys)))[b, h, i]
        weights = exp(keys[columns] @ q[b, h, i] * scale)
        out[b, h, i] = weights @ values[columns] / weights.sum()
        lse[b, h, i] = weights.sum().log()
    return out, lse


class Draw:
    """Random numbers of one seed."""

    def __init__(self, seed):
        self.seed, self.generator = seed, torch.Generator().manual_seed(seed)
        unit = [next(x for x in self.below(ORDER, 99).tolist() if np.gcd(x, ORDER) == 1)
                for _ in range(2)]
        (of_scale, of_ln2), (scale, ln2) = unit, self.below(PRIME, 2).tolist()
        back, of_back = pow(ln2, -1, PRIME), pow(of_ln2, -1, ORDER)
        self.scale = Number(scale, of_scale)
        self.symbols = {SCALE: (scale, of_scale), float(np.log(2)): (ln2, of_ln2),
                        launch.LOG2_E: (back, of_back),
                        SCALE * launch.LOG2_E: (scale * back, of_scale * of_back)}

    def below(self, bound, *shape):
        return torch.randint(bound, shape, generator=self.generator)

    def numbers(self, *shape):
        return packed(self.below(PRIME, *shape), self.below(ORDER, *shape))

    def queries(self, batch, heads, rows, features, key_heads=1):
        """Queries whose products with random keys are independent: full rank in the exponents."""
        shape = batch, key_heads, heads // key_heads * rows, features
        assert shape[2] <= features
        exponents = 2 * self.below(ORDER // 2, *shape) + torch.eye(*shape[2:], dtype=torch.int64)
        return packed(self.below(PRIME, *shape), exponents).view(batch, heads, rows, features)


def check(draw, tensors, run, formula, logs=(), backward=True):
    """Outputs and, along a random line, gradients of `run` are those of `formula`."""
    leaves = [x.clone().requires_grad_(backward) for x in tensors]
    with Field(draw.seed, draw.symbols):
        got = run(*leaves)
    line = [draw.below(PRIME, *x.shape) for x in tensors]
    wanted = formula(*(number(*map(torch.Tensor.numpy, (*parts(x), t)))
                       for x, t in zip(tensors, line, strict=True)))
    rise = 0
    outer = [draw.numbers(*x.shape) for x in got]
    for index, (found, want, weights) in enumerate(zip(got, wanted, outer, strict=True)):
        part, name = (1, "exponent") if index in logs else (0, "value")
        right = np.array([getattr(item, name) for item in want.flat]).reshape(want.shape)
        np.testing.assert_array_equal(parts(found.detach())[part].numpy(), right, f"output {index}")
        rise += sum(w * item.slope for w, item in zip(parts(weights)[0].flatten().tolist(),
                                                      want.flat, strict=True))
    if backward:
        with Field(draw.seed, draw.symbols):
            gradients = torch.autograd.grad(got, leaves, outer)
        along = sum(int((parts(x)[0] * t % PRIME).sum())
                    for x, t in zip(gradients, line, strict=True))
        assert along % PRIME == rise % PRIME, "gradients"


@pytest.fixture(autouse=True)
def exact(monkeypatch):
    monkeypatch.setattr(launch, "INTERPRETED", True)
    monkeypatch.setattr(launch, "check_tensor", lambda name, x: None)
    monkeypatch.setattr(type(interval_forward), "run", lambda kernel, *args, grid, warmup, **rest:
                        run_programs(kernel.fn, grid, args, rest), raising=False)
    monkeypatch.setattr(decode, "MERGED_AT_ONCE", 2)
    monkeypatch.setattr(decode, "decode_blocks", lambda *args: Blocks(4, 4, 1, 1))
    monkeypatch.setattr(vertical_slash, "vertical_slash_blocks", lambda *args: Blocks(2, 4, 1, 1))


def check_interval(seed=0, heads=4, key_heads=2, rows=5, columns=9, features=10, intervals=2,
                   batch=1, block=(4, 2)):
    """Ragged in rows, columns and features: no size is a multiple of a tile's."""
    draw = Draw(seed)
    q = draw.queries(batch, heads, rows, features, key_heads)
    k, v = (draw.numbers(batch, columns, key_heads, features).transpose(1, 2) for _ in "kv")
    table = torch.stack([random_table(rows, columns, intervals, draw.generator)
                         for _ in range(batch * heads)]).view(batch, heads, rows, intervals, 2)
    seen = sees(table, columns)
    blocks = [Blocks(*block, 1, 1)] * 3
    check(draw, (q, k, v), lambda *x: interval.triton_attention(
        *x, table, SCALE, blocks=blocks),
        lambda *x: attention(*x, seen, draw.scale), logs=(1,))


def check_sources(seed=0, rows=5, columns=(3, 7), counts=(1, 2), features=10, block=(4, 2)):
    """Two sources are one: of each, keys or values lie token by token, the others head by head."""
    draw = Draw(seed)
    q = draw.queries(1, 4, rows, features, 2)
    keys, values = ([draw.numbers(1, n, 2, features).transpose(1, 2) if index == by_token else
                     draw.numbers(1, 2, n, features) for index, n in enumerate(columns)]
                    for by_token in (0, 1))
    tables = [torch.stack([random_table(rows, *sizes, draw.generator) for _ in range(heads)])[None]
              for sizes, heads in zip(zip(columns, counts, strict=True), (1, 4), strict=True)]
    seen = np.concatenate([np.broadcast_to(sees(*x), (1, 4, rows, x[1])) for x in zip(
        tables, columns, strict=True)], axis=-1)
    blocks = [Blocks(*block, 1, 1)] * 3
    check(draw, (q, *keys, *values), lambda q, *x: interval.triton_attention(
        q, *halves(x), tables, SCALE, blocks=blocks),
        lambda q, *x: attention(q, *(np.concatenate(y, axis=2) for y in halves(x)), seen,
                                draw.scale), logs=(1,))


def sees(table, columns):
    """Return which columns each row sees, bool (b, h, L, N), of intervals (b, h, L, n, 2)."""
    at = torch.arange(columns)[:, None]
    return ((table[..., None, :, 0] <= at) & (at < table[..., None, :, 1])).any(-1).numpy()


def check_decode(splits=2, heads=6, key_heads=2, columns=27, features=5):
    """Parts of several tiles, merged in several; six columns are a source of their own."""
    draw, spans = Draw(splits), [[0, 2], [3, 4], [9, columns]]
    q = draw.queries(2, heads, 1, features, key_heads)
    k, v = (draw.numbers(2, key_heads, columns, features) for _ in "kv")
    seen = np.array([[any(low <= t < high for low, high in spans) for t in range(columns)]])
    tables = [torch.tensor([[[spans[:2]]]]), torch.tensor([[[spans[2:]]]]) - 6]
    check(draw, (q, k, v), lambda q, *x: decode.triton_decode(
        q, *((y[:, :, :6], y[:, :, 6:]) for y in x), SCALE, spans=decode.spans_of(tables),
        splits=splits), lambda *x: attention(*x, seen, draw.scale), logs=(1,), backward=False)


def check_vertical_slash(length=11, width=5, features=11):
    """Both heads have columns of their own; rows past a tile and past the text."""
    draw, columns, offsets = Draw(0), [[0, 1, 4, 7], [2, 3, 5, 9]], [[0, 3], [0, 8]]
    q = draw.queries(1, 2, length, features, 2)
    k, v = (draw.numbers(1, 1, length, features) for _ in "kv")
    seen = np.array([[[t <= i and (t in columns[h] or any(
        i // width * width <= t + o < i // width * width + width for o in offsets[h]))
        for t in range(length)] for i in range(length)] for h in range(2)])
    check(draw, (q, k, v), lambda *x: (vertical_slash.triton_vertical_slash(
        *x, torch.tensor([columns]), torch.tensor([offsets]), width, SCALE),),
        lambda *x: attention(*x, seen, draw.scale)[:1], backward=False)


def pooled(q, k, v, cos, sin, group, count, scale):
    """The specification: cores of each group, by its last query, the mean of the heads."""
    share, half = q.shape[1] // k.shape[1], k.shape[-1] // 2
    cores = np.empty((2, *k.shape[:2], count, k.shape[-1]), object)
    for b, h, p in np.ndindex(*cores.shape[1:-1]):
        members = slice(p * group, p * group + group)
        judge = q[b, h * share : (h + 1) * share, p * group + group - 1].sum(0) * Number(
            pow(share, -1, PRIME), pow(share, -1, ORDER))
        weights = exp(k[b, h, members] @ judge * scale)
        keys = k[b, h, members]
        swapped = np.concatenate([keys[:, half:] * Number(-1, -1), keys[:, :half]], axis=1)
        turned = keys * cos[b, members] + swapped * sin[b, members]
        for core, x in zip(cores, (turned, v[b, h, members]), strict=True):
            core[b, h, p] = weights @ x / weights.sum()
    return cores


def check_pooling(rotated=True, heads=6, key_heads=2, length=7, group=3, features=22):
    """A group is no power of two, and the last token is in none."""
    draw, tables = Draw(3), torch.zeros(2, 1, length, features).double()
    q = draw.queries(1, heads, length, features, key_heads)
    k, v = (draw.numbers(1, key_heads, length, features) for _ in "kv")
    tables[0] = 1 + PRIME
    cos, sin = draw.numbers(2, 1, length, features) if rotated else tables
    plain = [number(*map(torch.Tensor.numpy, parts(x)), 0) for x in (cos, sin)]
    count = length // group
    check(draw, (q, k, v), lambda *x: pooling.triton_pool_groups(
        *x, group, count, SCALE, (cos[:, : count * group], sin[:, : count * group])
        if rotated else None), lambda *x: pooled(*x, *plain, group, count, draw.scale))


@pytest.mark.parametrize("case", [
    {}, {"seed": 1, "rows": 7, "columns": 13, "features": 14, "intervals": 4, "block": (2, 4)},
    {"seed": 2, "heads": 2, "batch": 2}, {"seed": 3, "block": (8, 16)},
    {"seed": 4, "heads": 3, "key_heads": 1, "features": 16, "intervals": 1}], ids=str)
def test_interval_attention_and_its_gradients(case):
    check_interval(**case)


@pytest.mark.parametrize("case", [{}, {"rows": 3, "columns": (9, 1), "counts": (2, 1),
                                       "features": 6, "block": (2, 4)}], ids=str)
def test_two_sources_and_their_gradients(case):
    check_sources(**case)


@pytest.mark.parametrize("splits", [1, 3])
def test_decode(splits):
    check_decode(splits)


def test_vertical_slash():
    check_vertical_slash()


@pytest.mark.parametrize("rotated", [False, True])
def test_pooling_and_its_gradients(rotated):
    check_pooling(rotated)


# ---------------------------------------------------------------- mechanisms

def renamed(x):
    """The same values; exponents that follow from them: a core's are no polynomials."""
    with _disable_current_modes():
        value, exponent = parts(x.detach())
        drawn = torch.tensor([random.Random(item).randrange(ORDER)
                              for item in value.flatten().tolist()]).view(x.shape)
        shift = packed(torch.zeros_like(value), drawn - exponent)
    return x + shift


def check_mechanism(monkeypatch, name):
    """Given its choice of tokens; gradients of the loops by PyTorch's rules, in the field."""
    for module, made in ((cca, "pool_checked"), (cca, "cores"), (dga, "pool_checked"),
                         (dga, "cores")):
        right = getattr(module, made)
        monkeypatch.setattr(module, made, lambda *args, right=right, **rest: tuple(
            part if part is None else renamed(part) for part in right(*args, **rest)))
    monkeypatch.setattr(pools, "KERNEL_DTYPES", (torch.float64,))
    monkeypatch.setattr(interval, "blocks_for", lambda *args: Blocks(4, 4, 1, 1))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    draw, cls, options = Draw(0), MECHANISMS[name], OPTIONS[name][0]
    inputs = draw.queries(1, 3, 7, 22), *(draw.numbers(1, 1, 7, 22) for _ in "kv")
    chosen = cls(**options).select(*(x / 2.0**53 for x in inputs[:2]))
    symbols = draw.symbols | {1 / 3: (pow(3, -1, PRIME), pow(3, -1, ORDER))}
    leaves = [x.clone().requires_grad_(name != "vertical_slash") for x in inputs]
    with Field(0, symbols):
        outs = [attend(*leaves, selection=chosen, scale=SCALE) for attend in (
            cls(**options, backend="triton").attention, cls(**options, backend="dense").loops)]
        outer = draw.numbers(1, 3, 7, 22)
        found = [(out, *(torch.autograd.grad(out, leaves, outer) if out.requires_grad else ()))
                 for out in outs]
    for got, wanted in zip(*found, strict=True):
        assert torch.equal(parts(got.detach())[0], parts(wanted.detach())[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, cls in MECHANISMS.items()
                                  # H2O compares scores, which a finite field has no order for
                                  if "triton" in cls.backends and name not in ("lococo", "h2o")])
def test_mechanisms_are_their_loops(monkeypatch, name):
    check_mechanism(monkeypatch, name)


# ---------------------------------------------------------------- mutants

KERNELS = "cca_lab.attention.kernels."
SLIPS = {
    "an end one too late": (check_interval, "interval_forward.attend_columns", "< ends[",
                            "<= ends["),
    "an accumulator that is not rescaled": (
        check_interval, "interval_forward.fold", "accumulator * correction[:, None]",
        "accumulator"),
    "the maximum of the block before": (check_interval, "interval_forward.fold",
                                        "row_sum, new_max", "row_sum, row_max"),
    "another KV head": (check_interval, "interval_forward.interval_forward",
                        "K += batch * stride_kb + head // QUERIES_PER_KEY",
                        "K += batch * stride_kb + head % (H // QUERIES_PER_KEY)"),
    "a normaliser in base 2": (check_interval, "interval_forward.interval_forward",
                               " * 0.6931471805599453", ""),
    "ln 2 to six digits": (check_interval, "interval_forward.interval_forward",
                           "0.6931471805599453", "0.693147"),  # within the tests' tolerance
    "a small number added": (check_interval, "interval_forward.interval_forward",
                             "/ row_sum[:, None]", "/ (row_sum[:, None] + 1e-8)"),  # and this
    "dQ with the forward's scale": (check_interval, "interval_backward.interval_backward_rows",
                                    "grad_q * scale)", "grad_q * scale_log2)"),
    "rows past the end counted again": (check_interval, "interval_backward.gradient_of_columns",
                                        " & present[None, :]", ""),
    "rows of the first head": (check_interval, "interval_backward.gradient_of_block",
                               "* QUERIES_PER_KEY + head) * L", "* QUERIES_PER_KEY) * L"),
    "the second source one interval late": (
        check_sources, "interval_forward.interval_forward", "interval == FIRST:",
        "interval == FIRST + 1:"),
    "dQ from the first source alone": (check_sources, "interval_backward.interval_backward_rows",
                                       "interval == FIRST:", "interval == INTERVALS:"),
    "values of the second source with its keys' stride": (
        check_sources, "interval_forward.interval_forward",
        "stride_vn, stride_vd = stride_v2n", "stride_vn, stride_vd = stride_kn"),
    "the second source's dK from the first one's bounds": (
        check_sources, "interval_backward.interval_backward_columns",
        "gradient_of_block(K2, V2, BOUNDS2", "gradient_of_block(K2, V2, BOUNDS"),
    "blocks of the second source counted on": (
        check_sources, "interval_backward.interval_backward_columns", "block - blocks", "block"),
    "a merge that is not rescaled": (check_decode, "decode.decode_merge", "total * correction",
                                     "total"),  # of more than 16 parts, which no other test has
    "weights that need not sum to 1": (check_pooling, "pooling_kernels.pooling_backward",
                                       " - tl.sum(phi * grad_phi, 0)", ""),
    "padding that has weight": (check_pooling, "pooling_kernels.group_weights", 'float("-inf")',
                                "0.0"),
    "a column of the future": (check_vertical_slash, "vertical_slash.vertical_slash_forward",
                               "row_read + 1, inner_end", "row_read + 2, inner_end"),
}
CAUGHT = AssertionError, ArithmeticError, NotImplementedError, IndexError


@pytest.mark.slow
@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_in_a_kernel_is_caught(monkeypatch, slip):
    checked, path, right, wrong = SLIPS[slip]
    made = Slip("", KERNELS + path, right, wrong)
    monkeypatch.setattr(getattr(*made.place), "fn", made.made().fn)
    with pytest.raises(CAUGHT):
        checked()


def test_the_field():
    """exp of a sum is a product, log undoes it, and what has no meaning is refused."""
    draw = Draw(5)
    x, y = draw.numbers(2, 9)
    with Field(0, draw.symbols):
        both = torch.exp(x + y), torch.exp(x) * torch.exp(y)
        back, lowest = torch.log2(torch.exp2(x)), torch.exp(x + LOWEST)
        for refused in (lambda: x > y, lambda: x * 0.7, lambda: x.round(), lambda: x.long()):
            with pytest.raises(NotImplementedError):
                refused()
        with pytest.raises(ArithmeticError):
            x + LOWEST - (y + LOWEST)
    assert torch.equal(*(parts(z)[0] for z in both)) and not parts(lowest)[0].any()
    assert torch.equal(parts(back)[1], parts(x)[1])
