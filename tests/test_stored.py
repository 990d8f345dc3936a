"""What was stored is checked when it is read: each field, each wrong type, each odd file."""

import copy
import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import pytest

from cca_lab.stored import matches, read_json, read_text


class Task(TypedDict):
    id: str
    earned: float
    shown: bool
    note: str | None


class Marks(TypedDict):
    student: str
    status: Literal["graded", "failed"]
    count: int
    tasks: list[Task]
    seconds: dict[str, float]
    first: Task | None
    more: NotRequired[list[str]]


@dataclass
class Row:
    name: str
    values: list[float]


GOOD: Any = {
    "student": "al", "status": "graded", "count": 3, "more": ["a", "b"], "further": {"any": 1},
    "tasks": [{"id": "a1.1", "earned": 1, "shown": True, "note": None},
              {"id": "a1.2", "earned": 0.5, "shown": False, "note": "late"}],
    "seconds": {"load": 1.5, "run": 2},
    "first": {"id": "a1.1", "earned": 1.0, "shown": True, "note": "on time"}}
# a value of each kind that a file can hold, and those that it can hold by an accident
VALUES: dict[str, Any] = {
    "null": None, "bool": True, "integer": 5, "float": 1.5, "text": "x", "list": [5],
    "object": {"x": None}, "nan": math.nan, "infinite": -math.inf, "huge": 10**400,
    "half": "\ud800"}
NUMBERS = {"integer", "float"}
FITS: dict[str, set[str]] = {  # those that a field may be; no list and no object fits inside
    "student": {"text"}, "count": {"integer"}, "first": {"null"}, "more[]": {"text"},
    "seconds['load']": NUMBERS, "seconds['run']": NUMBERS,
    **{f"{task}.{name}": kinds for task in ("first", "tasks[]") for name, kinds in {
        "id": {"text"}, "earned": NUMBERS, "shown": {"bool"}, "note": {"text", "null"}}.items()}}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value inside a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in items:
        if key != "further":
            yield (*path, key)
            if isinstance(each, dict | list):
                yield from places(each, (*path, key))


def replaced(path: tuple[Any, ...], *value: Any, good: Any = GOOD) -> Any:
    """Return a good record with another value at a path, or without one."""
    record = copy.deepcopy(good)
    holder = record
    for key in path[:-1]:
        holder = holder[key]
    if value:
        holder[path[-1]] = value[0]
    else:
        del holder[path[-1]]
    return record


def written(path: tuple[Any, ...]) -> str:
    """Return a path as messages have it, `tasks[0].earned`; the names in `seconds` are free."""
    return "".join(f"[{key!r}]" if isinstance(key, int) or path[at - 1] == "seconds" and at
                   else f".{key}" for at, key in enumerate(path)).lstrip(".")


def test_a_good_record_is_accepted():
    matches(GOOD, Marks, "f.json")
    matches(asdict(Row("x", [1, 2.5])), Row, "f.json")
    matches([GOOD, 5], list[Any], "f.json")


def test_every_wrong_kind_of_every_field_is_refused_by_its_name():
    """The mutants without one of the checks (range, bool, inside a list) accept a value."""
    for path, (name, value) in product(places(GOOD), VALUES.items()):
        field = written(path)
        record = replaced(path, value)
        if name in FITS.get(re.sub(r"\d", "", field), ()):
            matches(record, Marks, "f.json")
            continue
        with pytest.raises(ValueError, match=rf"^f\.json: {re.escape(field)}.*: got .*, "
                                             "wanted .*; delete it$"):
            matches(record, Marks, "f.json", "delete it")


def test_a_missing_field_is_refused_unless_it_may_be_left_out():
    matches(replaced(("more",)), Marks, "f.json")
    with pytest.raises(ValueError, match=r"^f\.json: tasks\[1\].id: got nothing"):
        matches(replaced(("tasks", 1, "id")), Marks, "f.json")


def test_messages():
    said = r"^m/a5\.json: tasks: got 5, wanted a list; delete the file, and grade again$"
    with pytest.raises(ValueError, match=said):
        matches({**GOOD, "tasks": 5}, Marks, "m/a5.json", "delete the file, and grade again")
    with pytest.raises(ValueError, match=r"^f: got \[\], wanted an object$"):
        matches([], Marks, "f")
    with pytest.raises(ValueError, match=r"^f: first.earned: got 'x', wanted a finite number$"):
        matches(replaced(("first", "earned"), "x"), Marks, "f")
    with pytest.raises(ValueError, match=r"^f: values\[1\]: got None, wanted a finite number$"):
        matches({"name": "x", "values": [1, None]}, Row, "f")
    with pytest.raises(ValueError, match=r"^f: note: got 5, wanted text or null$"):
        matches({**GOOD["first"], "note": 5}, Task, "f")
    with pytest.raises(ValueError, match=r"^f: got 'xxx[^;]{50,60}\.\.\., wanted a list$"):
        matches("x" * 1000, list[str], "f")


SPECIAL = {"pipe": os.mkfifo, "link to a device": lambda path: path.symlink_to("/dev/zero")}


@pytest.mark.parametrize("kind", SPECIAL)
def test_what_is_no_file_is_never_opened(tmp_path, monkeypatch, kind):
    """The mutant that opens it waits for a pipe's writer for ever, and reads /dev/zero whole."""
    monkeypatch.chdir(tmp_path)
    path = Path("r.json")
    SPECIAL[kind](path)
    with pytest.raises(ValueError, match=r"^marks: r\.json is a device, a pipe or a folder"):
        read_json(path, "marks")


@pytest.mark.parametrize("content", [
    b"", b"{", b"NaN", b"[1, -Infinity]", b"1e999", b"9" * 5000, b"[" * 100_000, b"'x'", b"5 6"])
def test_what_is_no_json_is_refused_with_the_file_s_name(tmp_path, content):
    """The mutant without `parse_float` takes 1e999 for a number, without the first two NaN."""
    path = tmp_path / "r.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"^marks: .*r\.json is no JSON \(.*\); delete it$"):
        read_json(path, "marks", "delete it")


def test_text_that_is_not_utf_8_is_refused_with_the_file_s_name(tmp_path):
    path = tmp_path / "r.json"
    path.write_bytes(b'"ab\xff"')
    for reading in (read_text, read_json):
        with pytest.raises(ValueError, match=r"^marks: .*r\.json is no text in UTF-8 \(byte 3\)"):
            reading(path, "marks")


def test_what_is_whole_is_read(tmp_path):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(GOOD), encoding="utf-8")
    assert read_json(path, "marks") == GOOD
    assert json.loads(read_text(path, "marks")) == GOOD
    with pytest.raises(FileNotFoundError):
        read_text(tmp_path / "none", "marks")
