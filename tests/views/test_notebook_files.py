"""Which notebooks are meant, for every command that takes some."""

from pathlib import Path

import pytest

from cca_lab.cli import lab
from cca_lab.views.notebook_files import choose, read, title_of
from tests import small_notebooks

NAMES = ["00_a", "01_b", "02_c", "10_d", "x"]
CHOICES = [({}, NAMES), ({"start": "1"}, NAMES[1:]), ({"start": "02_c"}, NAMES[2:]),
           ({"only": "01"}, ["01_b"]), ({"only": "1"}, ["01_b"]), ({"only": "x"}, ["x"]),
           ({"only": "10_d.ipynb"}, ["10_d"])]
WRONG = [({"start": "09"}, "from: got '09'.*choose among 00_a, 01_b, 02_c, 10_d, x"),
         ({"only": "b"}, "only: got 'b'.*choose among 00_a"),
         ({"start": "00", "only": "00"}, "leave one out")]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder with notebooks, and the folder above as the working directory."""
    for name in reversed(NAMES):
        small_notebooks.write(tmp_path / "notebooks", name, "# T", "1 + 1")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "notebooks"


def names_in(folder: Path | str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


@pytest.mark.parametrize("limits, names", CHOICES, ids=str)
def test_choosing_notebooks(folder, limits, names):
    """The mutant that matches a beginning takes 10 for 1."""
    assert [path.stem for path in choose(folder, **limits)] == names


@pytest.mark.parametrize("limits, words", WRONG, ids=str)
def test_what_is_not_there_is_an_error_that_lists_what_there_is(folder, limits, words):
    with pytest.raises(ValueError, match=words):
        choose(folder, **limits)


def test_a_command_takes_the_choice(folder):
    """The mutant whose `--student` ignores `--only` writes all."""
    lab.notebooks(student=Path("mine"), folder=folder, only="1")
    assert names_in("mine") == ["01_b.ipynb"]


@pytest.mark.parametrize("content", ["", "{}", '{"cells": 5}'])
def test_a_broken_notebook_is_named(tmp_path, content):
    path = tmp_path / "00_a.ipynb"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"^notebooks: .*00_a.ipynb cannot be read: .*with git$"):
        read(path)


def test_a_title_is_the_first_heading_without_markup():
    assert title_of(small_notebooks.notebook("# The *core* of $x$"), "no") == "The core of x"
    assert title_of(small_notebooks.notebook("text"), "otherwise") == "otherwise"
