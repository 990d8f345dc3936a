"""Validation of a mechanism and its options as written on a command line or in a config.json."""

import math
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from cca_lab.mechanisms import class_of
from cca_lab.models.plugin import checked_choice
from cca_lab.settings import LARGEST_WRITTEN


def written_choice(name: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a mechanism after checking that it takes them.

    Args:
        name: the mechanism's name.
        options: JSON values by name.

    Raises:
        ValueError: for an unknown mechanism or option, or a value of the wrong type or out of range.
    """
    mechanism = class_of(name, "attention")
    types = {option: get_type_hints(mechanism)[option] for option in mechanism.option_names()}
    for option, value in options.items():
        wanted = types.get(option, Any)
        if not _fits(value, wanted):
            raise ValueError(f"{option}: got {value!r}, wanted {_type_names(wanted)}")
    checked_choice(name, options)
    return options


def _fits(value: Any, wanted: Any) -> bool:
    if wanted is Any:
        return True  # an unknown option, which `checked_choice` reports
    return any(_is(value, get_origin(kind) or kind) for kind in _kinds(wanted))


def _is(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    if kind is int:
        return isinstance(value, int) and abs(value) <= LARGEST_WRITTEN
    if kind is float:
        return isinstance(value, int | float) and abs(value) <= LARGEST_WRITTEN and math.isfinite(value)
    return isinstance(value, kind)


def _kinds(wanted: Any) -> tuple[Any, ...]:
    return get_args(wanted) if isinstance(wanted, UnionType) else (wanted,)


def _type_names(wanted: Any) -> str:
    words = {bool: "true or false", int: f"a whole number up to {LARGEST_WRITTEN}", float: "a number", str: "text",
             type(None): "null"}
    return " or ".join(words.get(kind, "a list") for kind in _kinds(wanted))
