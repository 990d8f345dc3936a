"""Which notebooks are meant, for every command that takes some, and sets cut off by a full disk."""

import errno
import os
from pathlib import Path

import nbformat
import pytest
from typer.testing import CliRunner

from cca_lab.cli import app
from cca_lab.course import release
from cca_lab.views import walkthrough
from cca_lab.views.notebook_files import choose, read
from cca_lab.views.whole import whole_folder
from tests import small_notebooks

NAMES = ["00_a", "01_b", "02_c", "10_d", "x"]
CHOICES = [({}, NAMES), ({"start": "01"}, NAMES[1:]), ({"start": "1"}, NAMES[1:]),
           ({"start": "02_c"}, NAMES[2:]), ({"only": "01"}, ["01_b"]), ({"only": "1"}, ["01_b"]),
           ({"only": "10"}, ["10_d"]), ({"only": "01_b"}, ["01_b"]), ({"only": "x"}, ["x"]),
           ({"only": "010_d.ipynb"[1:]}, ["10_d"])]
WRONG = [({"start": "09"}, "from: got '09'.*choose among 00_a, 01_b, 02_c, 10_d, x"),
         ({"only": "99"}, "only: got '99'.*choose among 00_a"), ({"only": "01_"}, "choose among"),
         ({"only": "b"}, "choose among"), ({"only": "-1"}, "choose among"),
         ({"start": "00", "only": "00"}, "leave one out")]
COMMANDS = {"walkthrough": ["walkthrough", "--no-html", "--out", "out"], "refresh": ["notebooks"],
            "student": ["notebooks", "--student", "mine"]}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder with notebooks, and commands that work beside it without running any."""
    for name in reversed(NAMES):
        small_notebooks.write(tmp_path / "notebooks", name, "# T", "1 + 1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(walkthrough, "execute", lambda notebook, on_cell: None)
    monkeypatch.setattr("cca_lab.cli.lab._build_native", lambda: None)
    return tmp_path / "notebooks"


def names_in(folder: Path | str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def arguments(limits: dict[str, str]) -> list[str]:
    return [word for name, value in limits.items()
            for word in (f"--{'from' if name == 'start' else name}", value)]


@pytest.mark.parametrize("limits, names", CHOICES, ids=str)
def test_choosing_notebooks(folder, limits, names):
    """The mutant that matches a beginning takes 10 for 1."""
    assert [path.stem for path in choose(folder, **limits)[1]] == names


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("limits, names", CHOICES, ids=str)
def test_every_command_takes_the_same(folder, command, limits, names):
    """The mutant whose `--student` ignores `--only` writes all."""
    for path in folder.iterdir():
        os.utime(path, ns=(0, 0))
    run = CliRunner().invoke(app, [*COMMANDS[command], "--folder", str(folder),
                                   *arguments(limits)])
    assert run.exit_code == 0, run.output
    if command == "refresh":
        taken = [path for path in folder.iterdir() if path.stat().st_mtime_ns]
    else:
        taken = list(Path("out" if command == "walkthrough" else "mine").glob("*.ipynb"))
    assert sorted(path.stem for path in taken) == names


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("limits, words", WRONG, ids=str)
def test_what_is_not_there_is_an_error_that_lists_what_there_is(folder, command, limits, words):
    with pytest.raises(ValueError, match=words):
        choose(folder, **limits)
    run = CliRunner().invoke(app, [*COMMANDS[command], "--folder", str(folder),
                                   *arguments(limits)])
    assert run.exit_code == 2 and run.output.startswith("error: ")
    assert names_in(".") == ["notebooks"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_without_notebooks_and_what_is_no_notebook_are_refused(folder, command):
    """The mutant that opens whatever is called *.ipynb waits for the pipe's writer for ever."""
    Path("empty").mkdir()
    Path("pipes").mkdir()
    os.mkfifo("pipes/00_p.ipynb")
    for name, words in (("empty", "none in empty"), ("nowhere", "folder: got nowhere"),
                        ("pipes", "00_p.ipynb is a device, a pipe or a folder")):
        run = CliRunner().invoke(app, [*COMMANDS[command], "--folder", name])
        assert run.exit_code == 2 and words in run.output, run.output


@pytest.mark.parametrize("content", ["", "{}", "[]", "5", '{"cells": 5}', '{"nbformat": 4}'])
def test_a_broken_notebook_is_named(tmp_path, content):
    path = tmp_path / "00_a.ipynb"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"^notebooks: .*00_a.ipynb cannot be read: .*with git$"):
        read(path)


def full(write: int):
    """Return `nbformat.write` for a disk on which some notebooks fit and no further one."""
    left = iter(range(write))
    real = nbformat.write

    def writing(notebook, path):
        if next(left, None) is None:
            Path(path).write_text("{")
            raise OSError(errno.ENOSPC, "No space left on device")
        real(notebook, path)

    return writing


@pytest.mark.parametrize("write", range(len(NAMES) + 1))
def test_a_full_disk_leaves_no_part_of_a_new_folder(folder, monkeypatch, write):
    """The mutant that writes to `mine` itself leaves some notebooks there."""
    monkeypatch.setattr(release.nbformat, "write", full(write))
    run = CliRunner().invoke(app, ["notebooks", "--student", "mine", "--folder", str(folder)])
    if write == len(NAMES):
        assert run.exit_code == 0 and names_in(".") == ["mine", "notebooks"]
        assert sorted(path.stem for path in Path("mine").iterdir()) == NAMES
    else:
        assert run.exit_code == 2 and "out: mine was not made: [Errno 28]" in run.output
        assert names_in(".") == ["notebooks"]


def test_a_full_disk_leaves_whole_files_in_a_folder_that_was_there(folder, monkeypatch):
    Path("mine").mkdir()
    monkeypatch.setattr(release.nbformat, "write", full(2))
    run = CliRunner().invoke(app, ["notebooks", "--student", "mine", "--folder", str(folder)])
    assert run.exit_code == 2 and "out: mine holds a part of the new files" in run.output
    assert names_in("mine") == ["00_a.ipynb", "01_b.ipynb"]
    monkeypatch.undo()
    monkeypatch.chdir(folder.parent)
    new, left = release.build(folder, Path("mine"))
    assert [path.stem for path in left] == NAMES[:2] and [path.stem for path in new] == NAMES[2:]


def test_other_errors_leave_no_part_either(tmp_path):
    with pytest.raises(KeyError), whole_folder(tmp_path / "a" / "new") as made:
        (made / "x").write_text("x")
        raise KeyError
    assert list(tmp_path.rglob("*")) == [tmp_path / "a"]
    with whole_folder(tmp_path / "new") as made:
        (made / "x").write_text("x")
    assert names_in(tmp_path / "new") == ["x"]
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "a").stat().st_mode
