"""What was stored is read as it was written, and an odd file is refused by its name."""

import json
import os
from pathlib import Path

import pytest

from cca_lab.stored import read_json, read_text

GOOD = {"student": "al", "earned": 0.5, "more": ["a", None, True]}
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
