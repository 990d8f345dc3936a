"""Settings: options defined once in a dataclass, and numbers checked by type and range.

A field made by `option` has its name, default, range, choices and help in one definition, which
`check` reads before the work and the command line reads for its options:

    @dataclass(frozen=True)
    class Settings:
        steps: int = option(300, "Optimizer steps.", least=0)
        strategy: str = option("full", "Weights to train.", choices=("full", "none"))
        windows: tuple[int, ...] = option((256, 1024), "Local window, in tokens.", least=1)

        def __post_init__(self) -> None:
            check(self)
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

LARGEST = 2**62  # sums of two such numbers are still int64
# limit on a command line and in a config.json; real lengths and sizes are far below
LARGEST_WRITTEN = 2**31 - 1
REQUIRED: Any = ...  # the default of an option that must be given


@dataclass(frozen=True)
class Option:
    """What an option is, beside its name, type and default."""

    help: str = ""  # one sentence with the unit, as the command line shows it
    least: float | None = None  # bounds of a number, both allowed
    most: float | None = None
    above: float | None = None  # bound below a number, itself not allowed
    choices: tuple[str, ...] = ()  # the texts that are allowed; empty for any
    flag: str | None = None  # on the command line, such as "--html/--no-html"; None for the name
    metavar: str | None = None  # what the help shows in place of the type
    shown: str | None = None  # what the help shows in place of the default
    output: str | None = None  # "file" or "folder" for a path to write, checked before the work
    argument: bool = False  # whether it is given by its position
    without: tuple[str, ...] = ()  # of settings inside settings, the fields that are no options


def option(default: Any, help: str, **more: Any) -> Any:
    """Return a dataclass field that is an option; `more` are further attributes of `Option`.

    A field of type `tuple[int, ...]` is an option that can be repeated; one of type `int | None`
    may be left out.
    """
    return field(default=MISSING if default is REQUIRED else default,
                 metadata={"option": Option(help, **more)})


def nested(settings: type, *, without: Sequence[str] = (), **changed: Any) -> Any:
    """Return a dataclass field that holds settings, whose options are options of the whole.

    Those in `without` are not, and `changed` has the defaults that differ here.
    """
    return field(default_factory=lambda: settings(**changed),
                 metadata={"option": Option(without=tuple(without))})


def options_of(settings: Any) -> Iterator[tuple[Field[Any], Any, Option]]:
    """Yield the field, the type and the `Option` of each option of a dataclass or an instance."""
    hints = _hints(settings if isinstance(settings, type) else type(settings))
    for each in fields(settings):
        if "option" in each.metadata:
            yield each, hints[each.name], each.metadata["option"]


def item_type(kind: Any) -> tuple[type, bool, bool]:
    """Return an option's type, whether it may be None, and whether it can be repeated."""
    optional = isinstance(kind, UnionType) and type(None) in get_args(kind)
    if optional:
        (kind,) = (each for each in get_args(kind) if each is not type(None))
    repeated = get_origin(kind) is tuple
    return get_args(kind)[0] if repeated else kind, optional, repeated


def check(settings: Any) -> None:
    """Check every option of an instance: its type, its range and its choices."""
    for each, kind, about in options_of(settings):
        value = getattr(settings, each.name)
        item, optional, repeated = item_type(kind)
        if value is None and optional:
            continue
        if repeated and not isinstance(value, tuple | list):
            raise ValueError(f"{each.name}: got {value!r}, wanted a list of them")
        for single in value if repeated else (value,):
            _check_value(each.name, single, item, about)


def _check_value(name: str, value: Any, kind: type, about: Option) -> None:
    if about.choices and value not in about.choices:
        raise ValueError(f"{name}: got {value!r}, wanted one of {', '.join(about.choices)}")
    least = -math.inf if about.least is None else about.least
    if kind is int:
        bounded = about.least is not None and about.most is None  # else `check_sizes` is below
        check_integers(int(least) if bounded else -LARGEST, **{name: value})
    elif kind is float:
        above, most = about.above, math.inf if about.most is None else about.most
        if above is not None and isinstance(value, int | float) and not above < value <= most:
            limit = "" if math.isinf(most) else f", at most {most}"
            raise ValueError(f"{name}: got {value}, wanted a finite number above {above}{limit}")
        check_numbers(least, math.inf, **{name: value})
    elif kind in (bool, str) and not isinstance(value, kind):
        wanted = "true or false" if kind is bool else "text"
        raise ValueError(f"{name}: got {value!r}, wanted {wanted}")
    elif kind is Path and not isinstance(value, str | Path):
        raise ValueError(f"{name}: got {value!r}, wanted a path")
    if kind in (int, float) and about.most is not None and about.above is None:
        check_numbers(-math.inf, math.inf, **{name: value})
        check_sizes(**{name: (value, least, about.most)})


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


def check_sizes(**sizes: tuple[float | Sequence[float], float, float]) -> None:
    """Raise ValueError for the first number out of range, of (number or numbers, least, most)."""
    for name, (given, least, most) in sizes.items():
        numbers = [given] if isinstance(given, int | float) else list(given)
        if not numbers:
            raise ValueError(f"{name}: got none, wanted one or more")
        if least > most:  # what there is, such as a model's context, is too short
            raise ValueError(f"{name}: got {numbers[0]}, wanted at least {least}, and only {most} "
                             "can be had here; use a model that reads more, or a longer text")
        for number in numbers:
            if not least <= number <= most:
                raise ValueError(
                    f"{name}: got {number}, wanted {least} to {most}; choose another number")
