"""Validation of numeric arguments: type and range, with a ValueError that names the first invalid one."""

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

LARGEST = 2**62  # sums of two such numbers are still int64
LARGEST_WRITTEN = 2**31 - 1  # limit on a command line and in a config.json; real lengths and sizes are far below


def check_integers(least: int, **values: Any) -> None:
    """Raise ValueError naming the first argument that is not an integer from `least` to `LARGEST`.

    NumPy's int64 is accepted. Its narrower and unsigned types would overflow in the arithmetic of rows and columns.
    """
    for name, value in values.items():
        integer = isinstance(value, int) or (isinstance(value, Integral) and getattr(value, "dtype", None) == "int64")
        if not integer or isinstance(value, bool) or not least <= value <= LARGEST:
            kind = "a positive integer" if least == 1 else "an integer"
            limit = ", at most 2**62" if integer and value > LARGEST else ""
            raise ValueError(f"{name}: got {value!r}, wanted {kind}{limit}; choose {least} or more")


def check_numbers(least: float, most: float, **values: Any) -> None:
    """Raise ValueError naming the first argument that is not a finite number from `least` to `most`."""
    for name, value in values.items():
        if not isinstance(value, Real) or isinstance(value, bool) or not math.isfinite(value) \
                or not least <= value <= most:
            wanted = f"{least} or more" if math.isinf(most) else f"{least} to {most}"
            raise ValueError(f"{name}: got {value!r}, wanted a finite number; choose {wanted}")


def check_sizes(**sizes: tuple[int | Sequence[int], int, int]) -> None:
    """Raise ValueError naming the first number that is out of its range.

    Args:
        sizes: for each name, the given number or numbers, the smallest allowed and the largest allowed.
    """
    for name, (given, least, most) in sizes.items():
        numbers = [given] if isinstance(given, int) else list(given)
        if not numbers:
            raise ValueError(f"{name}: got none, wanted one or more")
        for number in numbers:
            if not least <= number <= most:
                raise ValueError(f"{name}: got {number}, wanted {least} to {most}; choose another number")
