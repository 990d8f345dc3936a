"""An attention and its options as somebody wrote them, on a command line or in a config.json: checked before use."""

import inspect
import math
from types import UnionType
from typing import Any, get_args, get_origin

from cca_lab.mechanisms import MECHANISMS
from cca_lab.models.plugin import checked_choice
from cca_lab.ranges import LARGEST_WRITTEN


def written_choice(name: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a mechanism, if it can take them.

    Args:
        name: of the mechanism.
        options: JSON values by name.

    Raises:
        ValueError: for an unknown mechanism or option, or a value of another type than the option's or out of range.
    """
    if not isinstance(name, str) or name not in MECHANISMS:
        raise ValueError(f"attention: got {name!r}, wanted one of {', '.join(MECHANISMS)}")
    parameters = inspect.signature(MECHANISMS[name].attention).parameters
    for option, value in options.items():
        wanted = parameters[option].annotation if option in parameters else Any
        if not _fits(value, wanted):
            raise ValueError(f"{option}: got {value!r}, wanted {_spoken(wanted)}")
    checked_choice(name, options)
    return options


def _fits(value: Any, wanted: Any) -> bool:
    if wanted is Any:
        return True  # no option at all, which `checked_choice` says
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


def _spoken(wanted: Any) -> str:
    words = {bool: "true or false", int: f"a whole number up to {LARGEST_WRITTEN}", float: "a number", str: "text",
             type(None): "null"}
    return " or ".join(words.get(kind, "a list") for kind in _kinds(wanted))
