"""Output paths: checked before the work starts, and never left half written."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def check_file(path: Path, name: str = "out") -> Path:
    """Return the path of a file to write, after checking it; an existing file will be replaced.

    Args:
        path: the file.
        name: name of the argument, for the error message.

    Raises:
        ValueError: if it is a folder, or nothing can be written there.
    """
    if _is_there(path, name) and path.is_dir():
        raise ValueError(f"{name}: {path} is a folder, wanted a file; add a file's name")
    _check_place(path.parent, path, name)
    return path


def check_folder(path: Path, name: str = "out") -> Path:
    """Return the path of a folder to write to, after checking it; arguments as for `check_file`.

    Raises:
        ValueError: if it is a file, or nothing can be written there.
    """
    if _is_there(path, name) and not path.is_dir():
        raise ValueError(f"{name}: {path} is a file, wanted a folder; choose another name")
    _check_place(path, path, name)
    return path


def check_apart(out: Path, model: str | Path, text: str | None = None) -> None:
    """Refuse an output path that would overwrite an input of the same command.

    Args:
        out: file or folder to write.
        model: a folder or a hub name; nothing may be written into the folder.
        text: as in `load_corpus`; this file may not be overwritten.

    Raises:
        ValueError: naming the input that would be overwritten.
    """
    place, folder = out.resolve(), Path(model).expanduser().resolve()
    if folder.is_dir() and folder in (place, *place.parents):
        raise ValueError(f"out: {out} is in the folder of the model itself; choose another place")
    if text is not None and place == Path(text).resolve():
        raise ValueError(f"out: {out} is the text itself; choose another name")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`, moved to `path` at the end without error; missing folders are created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")  # overwrites what a killed command left
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _is_there(path: Path, name: str) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:  # such as a name that is too long, or a folder without access
        raise ValueError(f"{name}: {path} cannot be written ({error.strerror}); choose another place") from error
    return True


def _check_place(folder: Path, path: Path, name: str) -> None:
    """Write and remove a file in the nearest existing folder, to see that writing works."""
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise ValueError(f"{name}: {path} is below {nearest}, which is a file; choose another place")
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise ValueError(f"{name}: {path} cannot be written ({error.strerror}); choose another place") from error
