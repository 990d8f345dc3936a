"""What a file holds is read again: of a regular file, in UTF-8, and of the types that were written.

    class Mark(TypedDict):
        student: str
        earned: float
        notes: NotRequired[list[str]]

    mark = read_json(path, "marks")
    matches(mark, Mark, str(path), "delete the file, and grade again")

An error is a ValueError that names the file, and the field such as `tasks[2].earned`.
"""

import json
import math
import sys
from dataclasses import is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

WORDS = {bool: "true or false", int: "an integer", float: "a finite number", str: "text",
         list: "a list", dict: "an object", NoneType: "null"}
LONGEST = 60  # characters of a value in a message


class Problem(NamedTuple):
    """Where a value has another type than was wanted."""

    field: str  # such as "tasks[2].earned"; empty for the whole
    got: str
    wanted: str


def read_text(path: Path, name: str, advice: str = "") -> str:
    """Return the text of a file; `name` and `advice` begin and end the message of an error.

    Raises:
        ValueError: for a folder, a pipe or a device, which is not opened, and for other encodings.
        OSError: for a file that is not there or cannot be read.
    """
    end = f"; {advice}" if advice else ""
    if path.exists() and not path.is_file():
        raise ValueError(f"{name}: {path} is a device, a pipe or a folder, wanted a file{end}")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: {path} is no text in UTF-8 (byte {error.start}){end}") from error


def read_json(path: Path, name: str, advice: str = "") -> Any:
    """Return the value in a file of JSON; ValueError for NaN and infinities, which JSON has not."""
    text = read_text(path, name, advice)
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        end = f"; {advice}" if advice else ""
        raise ValueError(f"{name}: {path} is no JSON ({error}){end}") from error


def matches(value: Any, kind: Any, where: str, advice: str = "") -> None:
    """Raise ValueError unless a value of JSON has the types of a hint; `where` names the file.

    Args:
        value: what `read_json` returned.
        kind: a TypedDict or dataclass (which may hold further fields), list[...], dict[str, ...],
            Literal, Any, a union of these, or a type of JSON. An integer is a float, a bool is not.
        where: begins the message.
        advice: ends it.
    """
    if problem := _problem(value, kind, ""):
        field = f"{problem.field.lstrip('.')}: " if problem.field else ""
        raise ValueError(f"{where}: {field}got {problem.got}, wanted {problem.wanted}"
                         + (f"; {advice}" if advice else ""))


def _problem(value: Any, kind: Any, field: str) -> Problem | None:
    """Return the first problem of a value, or None."""
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        problems = [_problem(value, each, field) for each in inner]
        # the choice that fits on the outside says what is wrong inside
        deeper = [each for each in problems if each and each.field != field]
        if None in problems or deeper:
            return None if None in problems else deeper[0]
        return Problem(field, _short(value), " or ".join(each.wanted for each in problems if each))
    if origin is Literal:
        fits = any(type(value) is type(each) and value == each for each in inner)
        wanted = f"one of {', '.join(map(str, inner))}"
        return None if fits else Problem(field, _short(value), wanted)
    record = is_typeddict(kind) or is_dataclass(kind)
    if not _is_a(value, dict if record else origin):
        return Problem(field, _short(value), WORDS[dict if record else origin])
    parts: list[tuple[Any, Any, str]] = []
    if record:
        hints = get_type_hints(kind)
        needed = kind.__required_keys__ if is_typeddict(kind) else hints
        for name in hints:
            if name in value:
                parts.append((value[name], hints[name], f"{field}.{name}"))
            elif name in needed:
                return Problem(f"{field}.{name}", "nothing", _wanted(hints[name]))
    elif inner:
        items = value.items() if origin is dict else enumerate(value)
        parts = [(item, inner[-1], f"{field}[{at!r}]") for at, item in items]
    return next(filter(None, (_problem(*part) for part in parts)), None)


def _is_a(value: Any, kind: Any) -> bool:
    """Return whether a value has a plain type, and can be written again."""
    if kind is Any:
        return True
    if kind is str and isinstance(value, str):
        return value.encode("utf-8", "replace").decode() == value  # no half of a character
    if kind in (int, float) and not isinstance(value, bool):
        number = isinstance(value, int if kind is int else int | float)
        return number and abs(value) <= sys.float_info.max  # False for NaN, too
    return type(value) is kind


def _wanted(kind: Any) -> str:
    problem = _problem(object(), kind, "")  # which has no type of JSON
    return problem.wanted if problem else "a value"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{_short(text)} is no finite number")
    return number
