"""One check of the numbers that say how much to do."""

from collections.abc import Sequence


def check_sizes(**sizes: tuple[int | Sequence[int], int, int]) -> None:
    """Raise ValueError naming the first number that is out of its range.

    Args:
        sizes: by name: a number, or several that were given for it, and the least and the most it may be.
    """
    for name, (given, least, most) in sizes.items():
        numbers = [given] if isinstance(given, int) else list(given)
        if not numbers:
            raise ValueError(f"{name}: got none, wanted one or more")
        for number in numbers:
            if not least <= number <= most:
                raise ValueError(f"{name}: got {number}, wanted {least} to {most}; choose another number")
