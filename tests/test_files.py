"""Outputs: what is no file is never replaced, names that are too long are told before the work."""

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cca_lab.files import check_file, held, replacing

SPECIAL = {"pipe": os.mkfifo, "socket": lambda path: socket.socket(socket.AF_UNIX).bind(str(path)),
           "link to a pipe": lambda path: (os.mkfifo(f"{path}.to"), path.symlink_to(f"{path}.to"))}


def write(path: Path) -> None:
    with replacing(path) as temporary:
        temporary.write_text("written")


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("opening", [check_file, write], ids=["before the work", "at the end"])
def test_what_is_no_file_is_never_replaced(tmp_path, kind, opening, monkeypatch):
    """The mutant that renames over anything turns the pipe, or /dev/null, into a file."""
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    path = Path("out.json")
    SPECIAL[kind](path)
    with pytest.raises(ValueError, match=r"out: out\.json is a device, a pipe or a folder"):
        opening(path)
    assert not stat.S_ISREG(path.stat().st_mode)


def test_a_link_to_a_file_stays_a_link(tmp_path):
    """The mutant that renames over the link leaves the old file behind, where others read it."""
    path, target = tmp_path / "link.json", tmp_path / "elsewhere" / "file.json"
    path.symlink_to(target)
    for text in ("no file yet", "a file"):
        write(check_file(path))
        assert path.is_symlink() and target.read_text() == "written"
        target.write_text(text)
    assert [each.name for each in target.parent.iterdir()] == ["file.json"]


def test_a_name_is_refused_before_the_work_exactly_if_it_cannot_be_written(tmp_path):
    """The mutant without the check accepts names of 250 to 255 bytes, and fails after the work."""
    for length in range(240, 260):
        path = tmp_path / ("n" * (length - 5) + ".json")
        if length <= 255 - len("..part"):
            write(check_file(path))
            assert path.read_text() == "written"
        else:
            with pytest.raises(ValueError, match="out: "):
                check_file(path)


def test_one_command_at_a_time_writes_to_a_place(tmp_path):
    """The mutant without a lock lets the second command replace what the first has measured."""
    path = tmp_path / "new" / "deep" / "r.json"
    with held(path):
        for kind in (held(path), held(path.parent / "." / "r.json"), held(path / "in" / "it.json")):
            with pytest.raises(ValueError, match=rf"is being written by process {os.getpid()} on"):
                with kind:
                    pass
        with held(path.with_name("other.json")):
            pass
    assert not (tmp_path / "new").exists()  # nothing was written, and nothing is left
    with held(path):
        write(path)
    assert [each.name for each in path.parent.iterdir()] == ["r.json"]


def test_a_command_that_was_killed_holds_nothing(tmp_path):
    path = tmp_path / "r.json"
    code = ("import os; from pathlib import Path; from cca_lab.files import held\n"
            f"with held(Path({str(path)!r})): os._exit(9)")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    assert (tmp_path / ".r.json.lock").exists()
    with held(path):
        pass
    assert not list(tmp_path.iterdir())
