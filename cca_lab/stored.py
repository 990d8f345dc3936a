"""Files that the lab reads back: each is checked against the form in which the lab wrote it."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints, is_typeddict

WORDS = {int: "a whole number", float: "a finite number", str: "text", bool: "true or false",
         type(None): "null"}


def read_text(path: Path, name: str) -> str:
    """Return the text of a file; ValueError naming it if it is no regular file or not UTF-8."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{name}: {path} is a device, a pipe or a folder, wanted a file")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: {path} is no text in UTF-8 ({error.reason} at byte "
                         f"{error.start}); get or write it again") from error


def read_json(path: Path, name: str) -> Any:
    """Return what a JSON file holds; ValueError naming it if it is none, or holds NaN."""
    try:
        return json.loads(read_text(path, name), parse_constant=_refuse)
    except (json.JSONDecodeError, _NoNumber, RecursionError) as error:
        raise ValueError(f"{name}: {path} is no JSON file ({error}); remove it, or get it "
                         "again") from error


class _NoNumber(ValueError):
    pass


def _refuse(constant: str) -> Any:
    raise _NoNumber(f"{constant} is no number")


def matches(value: Any, kind: Any, where: str) -> None:
    """Raise ValueError unless a value of JSON is of a type.

    Args:
        value: what was read.
        kind: `int`, `float` (a whole number too), `str`, `bool`, `None`, `dict` or `list` of
            anything, `list[...]`, `dict[str, ...]`, a union, or a TypedDict, which may have more
            keys than it names.
        where: file and field, for the message.
    """
    origin = get_origin(kind)
    if kind is Any:
        return
    if origin is UnionType:
        _check_union(value, get_args(kind), where)
    elif origin is Literal:
        if value not in get_args(kind):
            raise _wrong(where, value, " or ".join(map(str, get_args(kind))))
    elif is_typeddict(kind):
        _check_keys(value, kind, where)
    elif kind is dict or origin is dict:
        if not isinstance(value, dict):
            raise _wrong(where, value, "a table of names")
        for key, each in value.items():
            matches(each, get_args(kind)[1] if origin else Any, f"{where}.{key}")
    elif kind is list or origin is list:
        if not isinstance(value, list):
            raise _wrong(where, value, "a list")
        for index, each in enumerate(value):
            matches(each, get_args(kind)[0] if origin else Any, f"{where}.{index}")
    elif not _is_plain(value, kind):
        raise _wrong(where, value, WORDS[type(None) if kind is None else kind])


def _check_union(value: Any, kinds: tuple[Any, ...], where: str) -> None:
    refused: list[ValueError] = []
    for kind in kinds:
        try:
            return matches(value, kind, where)
        except ValueError as error:
            refused.append(error)
    raise refused[0]


def _check_keys(value: Any, kind: Any, where: str) -> None:
    if not isinstance(value, Mapping):
        raise _wrong(where, value, "a table of names")
    for key, inner in get_type_hints(kind).items():
        if key in value:
            matches(value[key], inner, f"{where}.{key}")
        elif key in kind.__required_keys__:
            raise ValueError(f"{where}: lacks {key!r}; remove the file, or get it again")


def _is_plain(value: Any, kind: Any) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) \
            and math.isfinite(value)
    return type(value) is (type(None) if kind is None else kind)


def _wrong(where: str, value: Any, wanted: str) -> ValueError:
    got = repr(value)
    return ValueError(f"{where}: got {got if len(got) < 60 else got[:56] + ' ...'}, wanted "
                      f"{wanted}; remove the file, or get it again")
