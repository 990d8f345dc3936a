"""Checks of numbers by type and range, and of fields that are true or false."""

import math
from dataclasses import fields
from functools import cache
from numbers import Integral, Real
from typing import Any, get_type_hints

LARGEST = 2**62  # sums of two such numbers are still int64


def check_flags(settings: Any) -> None:
    """Check each field of a dataclass that is true or false, and that no other number is a bool."""
    made: Any = type(settings)
    for each in fields(settings):
        kind, value = _hints(made)[each.name], getattr(settings, each.name)
        if kind is bool:
            check_bools(**{each.name: value})
        elif kind is float and isinstance(value, bool):
            raise ValueError(f"{each.name}: got {value!r}, wanted a number")


def check_bools(**values: Any) -> None:
    """Raise ValueError naming the first argument that is neither True nor False."""
    for name, value in values.items():
        if not isinstance(value, bool):
            raise ValueError(f"{name}: got {value!r}, wanted true or false")


@cache
def _hints(settings: type) -> dict[str, Any]:
    return get_type_hints(settings)


def check_integers(least: int, **values: Any) -> None:
    """Raise ValueError naming the first argument that is not an integer from `least` to `LARGEST`.

    NumPy's int64 is accepted. Its narrower and unsigned types would overflow in the arithmetic of
    rows and columns.
    """
    for name, value in values.items():
        int64 = isinstance(value, Integral) and getattr(value, "dtype", None) == "int64"
        integer = isinstance(value, int) or int64
        if not integer or isinstance(value, bool) or not least <= value <= LARGEST:
            kind = "a positive integer" if least == 1 else "an integer"
            limit = ", at most 2**62" if integer and value > LARGEST else ""
            raise ValueError(f"{name}: got {value!r}, wanted {kind}{limit}; choose {least} or more")


def check_numbers(least: float, most: float, **values: Any) -> None:
    """Raise ValueError naming the first that is not a finite number from `least` to `most`."""
    for name, value in values.items():
        if not isinstance(value, Real) or isinstance(value, bool) or not math.isfinite(value) \
                or not least <= float(value) <= most:
            wanted = f"{least} or more" if math.isinf(most) else f"{least} to {most}"
            raise ValueError(f"{name}: got {value!r}, wanted a finite number; choose {wanted}")
