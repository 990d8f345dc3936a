"""Comparisons for checks: what an answer returned against what is right, in a sentence."""

from collections.abc import Collection, Sequence
from functools import partial
from numbers import Real
from operator import or_
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.tasks import Answer, Draw, Mistake, Property, Share

# Relative to the largest wanted value: far above rounding in any order of the sums, far below a
# real mistake.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4, torch.bfloat16: 2e-2, torch.float16: 2e-2}
NOT_FINITE = ("is it 0/0, -inf - (-inf) of a row that has seen nothing yet, or an exp without the "
              "maximum subtracted?")
ROUNDED = "write a fraction, do not round"


def need_tensor(got: Any, shape: Sequence[int], what: str = "the result", kind: str = "float", *,
                why: str = NOT_FINITE, infinite: Tensor | None = None) -> Tensor:
    """Return `got` if it is a tensor of this shape and kind ("float", "int", "bool"), and finite.

    `what` is its name in messages, `why` says where a number that is not finite usually comes from;
    `infinite` says where it may be one.
    """
    if not isinstance(got, Tensor):
        raise Mistake(f"{what} is {describe(got)}, wanted a tensor of shape {tuple(shape)}")
    if tuple(got.shape) != tuple(shape):
        raise Mistake(f"{what} has shape {tuple(got.shape)}, wanted {tuple(shape)}")
    came = "float" if got.is_floating_point() else "bool" if got.dtype == torch.bool else "int"
    if came != kind or got.is_complex():
        raise Mistake(f"{what} has dtype {got.dtype}, wanted {kind}s")
    finite = got.isfinite() if infinite is None else got.isfinite() | infinite
    if kind == "float" and not finite.all():
        index = first(~finite)
        raise Mistake(f"{what}{list(index) if index else ''} is {got[index].item()}", f": {why}")
    return got


def need_close(got: Any, wanted: Tensor, what: str = "the result", *,
               tolerance: float | None = None, why: str = NOT_FINITE) -> Tensor:
    """Return `got` if it is close to a tensor; else a Mistake names the first wrong entry.

    Args:
        got, wanted, what, why: as for `need_tensor`; integers and truth values have to be equal.
        tolerance: largest difference, relative to the largest wanted value (at least 1); by default
            `TOLERANCE` of the dtype that came or was wanted, whichever is coarser.
    """
    if not wanted.is_floating_point():
        kind = "bool" if wanted.dtype == torch.bool else "int"
        wrong = (got := need_tensor(got, wanted.shape, what, kind)) != wanted
    else:
        got = need_tensor(got, wanted.shape, what, why=why, infinite=~wanted.isfinite())
        if got.dtype not in (torch.float64, torch.float32, wanted.dtype):
            raise Mistake(f"{what} has dtype {got.dtype}, wanted {wanted.dtype}")
        wrong = too_far(got, wanted, max(TOLERANCE[got.dtype], TOLERANCE[wanted.dtype])
                        if tolerance is None else tolerance)
    if wrong.any():
        raise Mistake(show(got, wanted, wrong, what))
    return got


def need(got: Any, wanted: Any, names: Sequence[str] = ("the result",), *,
         tolerance: float | None = None, why: str = NOT_FINITE) -> None:
    """Raise a Mistake unless an answer's result is the right one; `names` are those of its parts.

    A result is a tensor, a number, a truth value, a word, or a tuple, list or dict of them.
    """
    name = names[0]
    if isinstance(wanted, Tensor) and not wanted.dim() and isinstance(got, Real):
        wanted = wanted.item()
    if isinstance(wanted, Tensor):
        need_close(got, wanted, name, tolerance=tolerance, why=why)
    elif isinstance(wanted, dict):
        for key, value in need_keys(got, wanted).items():
            need(value, wanted[key], (key,), tolerance=tolerance, why=why)
    elif isinstance(wanted, list):
        if plain(got) != wanted:
            raise Mistake(f"{name} is {describe(plain(got))}, wanted {describe(wanted)}")
    elif isinstance(wanted, tuple):
        what = f"{len(wanted)}: {', '.join(names)}"
        if len(names) < len(wanted) or len(wanted) == 1:
            names = [f"{name}[{index}]" for index in range(len(wanted))]
            what = f"{len(wanted)} items"
        got = need_items(got, len(wanted), what)
        for part, value, of in zip(got, wanted, names, strict=True):
            need(part, value, (of,), tolerance=tolerance, why=why)
    else:
        need_equal(got, wanted, name, tolerance=tolerance or (
            1e-9 if isinstance(wanted, float) else 0.0))


def alike(got: Any, other: Any, tolerance: float = 0.0) -> bool:
    """Return whether two results are the same but for rounding; NaN equals NaN."""
    if isinstance(got, Exception) or isinstance(other, Exception):
        return type(got) is type(other) and str(got) == str(other)
    try:
        need(got, other, tolerance=tolerance or None)
    except Mistake:
        return False
    except TypeError:  # of values that are no numbers
        return got is other
    return True


def need_items(got: Any, count: int, wanted: str) -> Sequence[Any]:
    """Return `got` if it is a tuple, list or tensor of `count` items; `wanted` names them."""
    if isinstance(got, Tensor) and got.dim() and len(got) == count:
        return tuple(got)
    if not isinstance(got, (tuple, list)) or len(got) != count:
        raise Mistake(f"the result is {describe(got)}, wanted {wanted}")
    return got


def need_keys(got: Any, keys: Collection[str]) -> dict[str, Any]:
    """Return `got` if it is a dict with these keys and no others."""
    if not isinstance(got, dict) or set(got) != set(keys):
        raise Mistake(f"the result is {describe(got)}, wanted a dict with the keys "
                      f"{', '.join(keys)}")
    return got


def by_hand(name: str, wanted: dict[str, Any], *wrong: dict[str, Any], near: float = 0.0,
            rounded: float = 0.0) -> Property:
    """Return the property of values by hand, by their keys in the dict that the answer returns.

    Each earns an equal share. A number may be off by `near`; if it is off by less than `rounded`,
    the message says that only its digits are wrong. `wrong` are values that miss.
    """
    def check(answer: Answer, draw: Draw) -> Share | None:
        got = need_keys(answer(), wanted)
        missed = [key for key, right in wanted.items() if not alike(got[key], right, near)]
        short = [key for key in missed if alike(got[key], wanted[key], rounded)]
        far = [key for key in missed if key not in short]
        said = [f"not right yet: {', '.join(far)}"] * bool(far)
        if short:
            said.append(f"right to about 3 digits: {', '.join(short)}: {ROUNDED}")
        return Share(1 - len(missed) / len(wanted), ". ".join(said)) if said else None

    told: dict[str, Answer] = {
        ROUNDED if all(alike(wanted[key], value, rounded) for key, value in values.items())
        else f"not right yet: {', '.join(values)}": partial(or_, wanted, values)
        for values in wrong}
    return Property(name, 2, check, wrong=told)


def plain(value: Any) -> Any:
    """Return a value with lists in the place of tensors and tuples."""
    value = value.tolist() if isinstance(value, Tensor) else value
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def need_number(got: Any, what: str = "the result") -> float:
    """Return a finite number, from a Python number or a tensor of one element."""
    if isinstance(got, Tensor) and got.numel() == 1 and not got.is_complex():
        got = got.item()
    if not isinstance(got, Real) or isinstance(got, bool):
        raise Mistake(f"{what} is {describe(got)}, wanted a number")
    if abs(float(got)) == float("inf") or got != got:
        raise Mistake(f"{what} is {got}, wanted a finite number")
    return float(got)


def need_equal(got: Any, wanted: float | int | bool | str, what: str = "the result", *,
               tolerance: float = 0.0) -> None:
    """Check a number (within a relative tolerance), a truth value or a word, like `need_close`."""
    if isinstance(got, Tensor) and got.numel() == 1:
        got = got.item()
    if isinstance(wanted, (bool, str)):
        right = isinstance(got, type(wanted)) and got == wanted
    elif isinstance(wanted, int) and isinstance(got, int) and not tolerance:
        right = got == wanted  # of any size: floats would round
    else:
        right = abs(need_number(got, what) - wanted) <= tolerance * max(1.0, abs(wanted))
    if not right:
        raise Mistake(f"{what} is {describe(got)}, wanted {describe(wanted)}")


def too_far(got: Tensor, wanted: Tensor, tolerance: float) -> Tensor:
    """Return where two tensors differ by more than tolerance * max(1, largest wanted value)."""
    got, wanted = got.double(), wanted.double()
    finite = wanted[wanted.isfinite()]
    bound = tolerance * max(1.0, finite.abs().max().item() if finite.numel() else 0.0)
    return ~(((got - wanted).abs() <= bound) | (got == wanted) | got.isnan() & wanted.isnan())


def first(where: Tensor) -> tuple[int, ...]:
    """Return the index of the first true entry."""
    return tuple(where.nonzero()[0].tolist())


def show(got: Tensor, wanted: Tensor, wrong: Tensor, what: str) -> str:
    """Return the first wrong entry beside the right one."""
    index = first(wrong)
    where = f"{what}{list(index) if index else ''}"
    came, right = got[index].item(), wanted[index].item()
    if describe(came) == describe(right):  # six digits agree
        return (f"{where} is {came:.12g}, wanted {right:.12g}: is something computed in single "
                "precision on the way?")
    more = f" ({int(wrong.sum())} of {wrong.numel()} entries are wrong)" if wrong.sum() > 1 else ""
    return f"{where} is {describe(came)}, wanted {describe(right)}{more}"


def many(n: int, what: str, plural: str = "") -> str:
    """Return "1 token" or "2 tokens"."""
    return f"{n} {what if n == 1 else plural or what + 's'}"


def describe(value: Any) -> str:
    """Return a value in a few characters, for a message."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple, dict)):
        items = list(value.values()) if isinstance(value, dict) else value
        if len(items) > 20 or any(isinstance(item, (Tensor, list, tuple, dict)) for item in items):
            return f"a {type(value).__name__} of {len(items)}"
    if isinstance(value, str) and len(value) > 60:
        return f"a text of {len(value)} letters"
    text = repr(value)
    return text if len(text) <= 60 else f"{type(value).__name__} {text[:50]}..."
