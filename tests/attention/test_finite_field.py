"""The kernels' own source over a finite field against their formula, for random numbers."""

import random

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import _disable_current_modes

from cca_lab.attention import pooling as pools
from cca_lab.attention.kernels import (
    interval,
    launch,
    pooling,  # noqa: F401  before Triton's interpreter is asked for
    vertical_slash,
)
from cca_lab.attention.kernels.configs import Blocks
from cca_lab.attention.kernels.interval_forward import interval_forward
from cca_lab.attention.kernels.tile_interpreter import run as run_programs
from cca_lab.mechanisms import MECHANISMS
from cca_lab.mechanisms.cca import mechanism as cca
from cca_lab.mechanisms.dga import mechanism as dga
from tests.attention.finite_field import LOWEST, ORDER, PRIME, Field, packed, parts
from tests.mechanisms.options import OPTIONS
from tests.mutants.theory_forall import Slip

SCALE = 0.3


class Draw:
    """Random numbers of one seed."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        unit = [next(x for x in self.below(ORDER, 99).tolist() if np.gcd(x, ORDER) == 1)
                for _ in range(2)]
        (of_scale, of_ln2), (scale, ln2) = unit, self.below(PRIME, 2).tolist()
        back, of_back = pow(ln2, -1, PRIME), pow(of_ln2, -1, ORDER)
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


@pytest.fixture(autouse=True)
def exact(monkeypatch):
    monkeypatch.setattr(launch, "INTERPRETED", True)
    monkeypatch.setattr(launch, "check_tensor", lambda name, x: None)
    monkeypatch.setattr(type(interval_forward), "run", lambda kernel, *args, grid, warmup, **rest:
                        run_programs(kernel.fn, grid, args, rest), raising=False)
    monkeypatch.setattr(vertical_slash, "vertical_slash_blocks", lambda *args: Blocks(2, 4, 1, 1))


def renamed(x):
    """The same values; exponents that follow from them: a core's are no polynomials."""
    with _disable_current_modes():
        value, exponent = parts(x.detach())
        drawn = torch.tensor([random.Random(item).randrange(ORDER)
                              for item in value.flatten().tolist()]).view(x.shape)
        shift = packed(torch.zeros_like(value), drawn - exponent)
    return x + shift


def check_mechanism(monkeypatch, name, heads=3, key_heads=1, **options):
    """Given its choice of tokens; gradients of the loops by PyTorch's rules, in the field.

    Ragged in rows, columns and features; keys and values lie token by token.
    """
    for module, made in ((cca, "pool_checked"), (cca, "cores"), (dga, "pool_checked"),
                         (dga, "cores")):
        right = getattr(module, made)
        monkeypatch.setattr(module, made, lambda *args, right=right, **rest: tuple(
            part if part is None else renamed(part) for part in right(*args, **rest)))
    monkeypatch.setattr(pools, "KERNEL_DTYPES", (torch.float64,))
    monkeypatch.setattr(interval, "blocks_for", lambda *args: Blocks(4, 4, 1, 1))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    draw, cls, options = Draw(0), MECHANISMS[name], options or OPTIONS[name][0]
    inputs = (draw.queries(1, heads, 7, 22, key_heads),
              draw.numbers(1, 7, key_heads, 22).transpose(1, 2),
              draw.numbers(1, key_heads, 7, 22))
    chosen = cls(**options).select(*(x / 2.0**53 for x in inputs[:2]))
    symbols = draw.symbols | {1 / 3: (pow(3, -1, PRIME), pow(3, -1, ORDER))}
    leaves = [x.clone().requires_grad_(name != "vertical_slash") for x in inputs]
    with Field(0, symbols):
        outs = [attend(*leaves, selection=chosen, scale=SCALE) for attend in (
            cls(**options, backend="triton").attention, cls(**options, backend="dense").loops)]
        outer = draw.numbers(1, heads, 7, 22)
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


FORWARD, BACKWARD = (f"cca_lab.attention.kernels.interval_{way}." for way in ("forward",
                                                                              "backward"))
SLIPS = {  # of the first two no test with a tolerance knows
    "ln 2 to six digits": (FORWARD + "interval_forward", "0.6931471805599453", "0.693147"),
    "a small number added": (FORWARD + "interval_forward", "/ row_sum[:, None]",
                             "/ (row_sum[:, None] + 1e-8)"),
    "another KV head": (FORWARD + "interval_forward",
                        "K += batch * stride_kb + head // QUERIES_PER_KEY",
                        "K += batch * stride_kb + head % (H // QUERIES_PER_KEY)"),
    "values of the second source with its keys' stride": (
        FORWARD + "interval_forward", "stride_vn, stride_vd = stride_v2n",
        "stride_vn, stride_vd = stride_kn"),
    "rows past the end counted again": (BACKWARD + "gradient_of_columns", " & present[None, :]",
                                        ""),
    "weights that need not sum to 1": ("cca_lab.attention.kernels.pooling_kernels.pooling_backward",
                                       " - tl.sum(phi * grad_phi, 0)", ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_in_a_kernel_is_caught(monkeypatch, slip):
    made = Slip("", *SLIPS[slip])
    monkeypatch.setattr(getattr(*made.place), "fn", made.made().fn)
    with pytest.raises((AssertionError, ArithmeticError, NotImplementedError, IndexError)):
        check_mechanism(monkeypatch, "cca", 6, 2, group=3, window=2)


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
