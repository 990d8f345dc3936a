"""Files that are read back: each field of another kind is named, each broken file too."""

import json
import os
from typing import Any, Literal, NotRequired, TypedDict

import pytest

from cca_lab.stored import matches, read_json, read_text


class Inner(TypedDict):
    value: float
    low: float | None


class Form(TypedDict):
    number: int
    share: float
    words: str
    right: bool
    rows: list[Inner]
    by_name: dict[str, Inner]
    kind: Literal["a", "b"]
    anything: Any
    note: NotRequired[str | None]


GOOD = {"number": 3, "share": 1, "words": "x", "right": True, "rows": [{"value": 0.5, "low": None}],
        "by_name": {"k": {"value": 2, "low": 1.5}}, "kind": "a", "anything": {"x": [1]},
        "more": "than the form names"}
WRONG: dict[str, list[Any]] = {
    "number": [1.5, True, "3", None, [3]], "share": ["1", True, None, float("nan"), float("inf")],
    "words": [3, None, ["x"]], "right": [1, 0, "true", None],
    "rows": [{}, 5, None, [5], [{}], [{"value": "x", "low": None}], [{"value": 1.0, "low": "x"}]],
    "by_name": [[], 5, None, {"k": 5}, {"k": {"value": None, "low": None}}], "kind": ["c", 1, None],
    "note": [5, []]}


@pytest.mark.parametrize("field, value", [(field, value) for field, values in WRONG.items()
                                          for value in values])
def test_a_field_of_another_kind_is_named(field, value):
    """The mutant that looks at the keys alone takes every one of these."""
    with pytest.raises(ValueError, match=rf"^run\.json\.{field}[.\d\w]*: (got|lacks)"):
        matches(GOOD | {field: value}, Form, "run.json")


def test_a_field_that_is_missing_is_named_and_more_fields_are_read():
    matches(GOOD, Form, "run.json")
    matches(GOOD | {"note": None}, Form, "run.json")
    for field in Form.__required_keys__:
        with pytest.raises(ValueError, match=f"^run.json: lacks '{field}'"):
            matches({key: value for key, value in GOOD.items() if key != field}, Form, "run.json")


@pytest.mark.parametrize("content", [b"{", b"", b"\xff\xfe", b'{"a": NaN}', b"[Infinity]",
                                     b"[" * 100_000])
def test_a_broken_file_is_named(tmp_path, content):
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"^out: .*run\.json is no"):
        read_json(path, "out")
    path.write_text(json.dumps({"a": 1}))
    assert read_json(path, "out") == {"a": 1}


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_not_opened(tmp_path, make):
    """The mutant that opens a pipe waits for ever for somebody who writes to it."""
    make(tmp_path / "run.json")
    with pytest.raises(ValueError, match=r"run\.json is a device, a pipe or a folder, wanted"):
        read_text(tmp_path / "run.json", "out")
