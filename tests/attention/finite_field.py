"""Exact numbers in the place of floats: tensors over a finite field, with exp and log.

A number is a pair (x mod p, x mod p - 1), p a prime, packed into one float64 that PyTorch moves
about. The first part is its value; the second is what it is in an exponent: exp(x) = b^x mod p, b a
primitive root, needs no more of x. So exp turns sums into products, and log is its inverse. A part
without a meaning (the exponent of what was exponentiated, the value of a logarithm, both parts of a
maximum, as a field has no order) is drawn at random: a result that depends on it is random too.
-inf is kept: exp of it is 0, and a maximum is -inf if all are. What else is done to floats raises.
"""

import math
import operator
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

PRIME, BASE = 94905947, 2  # PRIME - 1 is twice a prime: half of all exponents have an inverse
ORDER = PRIME - 1          # a float64 holds a pair, as PRIME * ORDER < 2^53
LOWEST = float("-inf")
# These move numbers, or write zeros, which are packed as 0.0.
MOVES = set("""alias as_strided cat clone constant_pad_nd detach diagonal expand flip gather index
    masked_fill new_empty new_empty_strided new_zeros permute repeat roll select
    select_backward slice slice_backward split squeeze stack t transpose unbind unsafe_view
    unsqueeze view where zero zeros zeros_like""".split())
STEP = 1 << 17
STEPS = {pow(BASE, step, PRIME): step for step in range(STEP)}


def logarithm(value: int) -> int:
    """Return the x with BASE^x = value: giant steps, until a small one remains."""
    for giant in range(0, ORDER, STEP):
        if value in STEPS:
            return giant + STEPS[value]
        value = value * pow(BASE, -STEP, PRIME) % PRIME
    raise ZeroDivisionError("the logarithm of 0")


def packed(values: Tensor, exponents: Tensor) -> Tensor:
    """Return numbers, given their two parts as integers."""
    return (values % PRIME + PRIME * (exponents % ORDER)).double()


def parts(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return values and exponents of numbers."""
    if bool(torch.isinf(x).any()):
        raise ArithmeticError("-inf where a number was wanted")
    return x.long() % PRIME, x.long() // PRIME


class Field(TorchDispatchMode):
    """Inside, tensors of floats are exact numbers, and a cast between float types changes nothing.

    Args:
        seed: of what has no meaning.
        symbols: parts of the float constants that may occur; whole numbers are known.
    """

    def __init__(self, seed: int, symbols: dict[float, tuple[int, int]]) -> None:
        super().__init__()
        self.draw = random.Random(seed)
        self.symbols = {self._single(constant): pair for constant, pair in symbols.items()}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func.overloadpacket.__name__, dict(kwargs or {})
        of_floats = getattr(kwargs.get("dtype"), "is_floating_point", False)
        if of_floats:
            kwargs["dtype"] = torch.float64
        of_floats |= any(isinstance(x, float) or isinstance(x, Tensor) and x.is_floating_point()
                         for x in tree_leaves(args))
        rule = getattr(self, f"do_{name.strip('_')}", None)
        if not of_floats:
            made = func(*args, **kwargs)
            if any(isinstance(x, Tensor) and x.is_floating_point() for x in tree_leaves(made)):
                raise NotImplementedError(f"{func} makes floats of integers")
            return made
        if rule:
            made = rule(*args, **kwargs)
            return args[0].copy_(made) if name.endswith("_") else made
        if name.strip("_") in MOVES:
            return func(*tree_map_only(float, self.number, args), **kwargs)
        raise NotImplementedError(f"{func} has no meaning in a finite field")

    def number(self, x: float) -> float:
        """Return a constant, packed."""
        if x == LOWEST:
            return x
        pair = (int(x), int(x)) if float(x).is_integer() else self.symbols.get(self._single(x))
        if pair is None:
            raise NotImplementedError(f"the constant {x} has no exact meaning")
        return float(pair[0] % PRIME + PRIME * (pair[1] % ORDER))

    @staticmethod
    def _single(x: float) -> float:
        return torch.tensor(x, dtype=torch.float32).item()

    def _exact(self, x: Any) -> Tensor:
        """Return an operand as numbers: a tensor of floats is that already."""
        if not isinstance(x, Tensor):
            return torch.tensor(self.number(x), dtype=torch.float64)
        return x if x.is_floating_point() else packed(x.long(), x.long())

    def _each(self, function: Callable[[int], int], x: Tensor) -> Tensor:
        items = [function(item) for item in x.flatten().tolist()]
        return torch.tensor(items, dtype=torch.int64).view(x.shape)

    def _any(self, like: Tensor) -> Tensor:
        return self._each(lambda _: self.draw.randrange(PRIME * ORDER), like)

    def do_lift_fresh(self, x: Tensor) -> Tensor:
        return torch.tensor([self.number(item) for item in x.flatten().tolist()],
                            dtype=torch.float64).view(x.shape)

    def do_full(self, size: Any, value: float, **kwargs: Any) -> Tensor:
        return torch.full(size, self.number(value), dtype=torch.float64)

    def do_empty(self, size: Any, **kwargs: Any) -> Tensor:
        return torch.full(size, LOWEST, dtype=torch.float64)  # what no kernel stores is found

    def do_full_like(self, x: Tensor, value: float = 1.0, **kwargs: Any) -> Tensor:
        return torch.full_like(x, self.number(value))

    do_fill = do_ones_like = do_full_like

    def do_to_copy(self, x: Tensor, dtype: Any = torch.float64, **kwargs: Any) -> Tensor:
        if not dtype.is_floating_point:
            raise NotImplementedError("an exact number is no integer")
        return self._exact(x).clone()

    def do_copy(self, x: Tensor, source: Tensor, *args: Any) -> Tensor:
        return self._exact(source)

    def _ring(self, function: Callable[[Any, Any], Any], a: Any, b: Any) -> Tensor:
        return packed(*map(function, parts(self._exact(a)), parts(self._exact(b))))

    def do_add(self, a: Any, b: Any) -> Tensor:
        a, b = torch.broadcast_tensors(self._exact(a), self._exact(b))
        lowest = torch.isinf(a) | torch.isinf(b)
        return self._ring(operator.add, a.masked_fill(lowest, 0),
                          b.masked_fill(lowest, 0)).masked_fill(lowest, LOWEST)

    def do_sub(self, a: Any, b: Any) -> Tensor:
        return self.do_add(a, self.do_neg(b))

    def do_neg(self, x: Any) -> Tensor:
        return self._ring(operator.sub, 0, x)

    def do_mul(self, a: Any, b: Any) -> Tensor:
        return self._ring(operator.mul, a, b)

    def do_mm(self, a: Tensor, b: Tensor) -> Tensor:
        return self._ring(operator.matmul, a, b)

    do_bmm = do_mv = do_mm

    def do_div(self, a: Any, b: Any) -> Tensor:
        value, exponent = parts(self._exact(b))
        return self.do_mul(a, packed(
            self._each(lambda x: pow(x, -1, PRIME), value),
            self._each(lambda x: pow(x, -1, ORDER) if math.gcd(x, ORDER) == 1
                       else self.draw.randrange(ORDER), exponent)))

    def do_sum(self, x: Tensor, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Tensor:
        return packed(*(part.sum(dim, keepdim=keepdim) for part in parts(x)))

    def _placed(self, function: Callable[..., Tensor], x: Tensor, source: Tensor) -> Tensor:
        return packed(*(function(a, b) for a, b in zip(parts(x), parts(source), strict=True)))

    def do_index_put(self, x: Tensor, at: Any, source: Tensor, add: bool = False) -> Tensor:
        return self._placed(lambda a, b: torch.ops.aten.index_put(a, at, b, add), x, source) \
            if add else torch.ops.aten.index_put(x, at, source)

    def do_scatter_add(self, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
        return self._placed(lambda a, b: a.scatter_add(dim, index, b), x, source)

    def do_exp(self, x: Tensor) -> Tensor:
        exponent = parts(x.masked_fill(torch.isinf(x), 0))[1]
        values = self._each(lambda item: pow(BASE, item, PRIME), exponent)
        return packed(values.masked_fill(torch.isinf(x), 0), self._any(x))

    def do_log(self, x: Tensor) -> Tensor:
        return packed(self._any(x), self._each(logarithm, parts(x)[0]))

    def do_exp2(self, x: Tensor) -> Tensor:
        return self.do_exp(torch.where(torch.isinf(x), x, self.do_mul(
            x.masked_fill(torch.isinf(x), 0), math.log(2))))

    def do_log2(self, x: Tensor) -> Tensor:
        return self.do_div(self.do_log(x), math.log(2))

    def do_mean(self, x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
        total = self.do_sum(x, dim, keepdim)
        return self.do_div(total, x.numel() // total.numel())

    def do_softmax(self, x: Tensor, dim: int, half_to_float: bool) -> Tensor:
        weights = self.do_exp(x)
        return self.do_div(weights, self.do_sum(weights, dim, True))

    def do_softmax_backward_data(self, grad: Tensor, out: Tensor, dim: int, dtype: Any) -> Tensor:
        return self.do_mul(out, self.do_sub(grad, self.do_sum(self.do_mul(grad, out), dim, True)))

    def do_fmax(self, a: Tensor, b: Tensor) -> Tensor:
        return self.do_amax(torch.stack(torch.broadcast_tensors(a, b)), 0)

    def do_amax(self, x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
        largest = x.amax(dim, keepdim)
        return self._any(largest).double().masked_fill(torch.isinf(largest), LOWEST)

    def do_eq(self, a: Tensor, b: Any) -> Tensor:
        b = self._exact(b)
        if not torch.isinf(b).all():
            raise NotImplementedError("exact numbers are compared with -inf only")
        return a == b
