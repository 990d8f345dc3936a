"""Where results go: looked at before the work that makes them."""

import tempfile
from pathlib import Path


def check_file(path: Path, name: str = "out") -> Path:
    """Return the path of a file to write; one that is there will be replaced.

    Args:
        path: the file.
        name: of the argument, for the message.

    Raises:
        ValueError: for a folder, or a place where nothing can be written.
    """
    if _is_there(path, name) and path.is_dir():
        raise ValueError(f"{name}: {path} is a folder, wanted a file; add a file's name")
    _check_place(path.parent, path, name)
    return path


def check_folder(path: Path, name: str = "out") -> Path:
    """Return the path of a folder to write to; as `check_file`.

    Raises:
        ValueError: for a file, or a place where nothing can be written.
    """
    if _is_there(path, name) and not path.is_dir():
        raise ValueError(f"{name}: {path} is a file, wanted a folder; choose another name")
    _check_place(path, path, name)
    return path


def check_apart(out: Path, model: str | Path, text: str | None = None) -> None:
    """Refuse to write over what a command reads.

    Args:
        out: file or folder to write.
        model: a folder or a hub name; nothing may be written into the folder.
        text: as in `load_corpus`; a file may not be written over.

    Raises:
        ValueError: naming the one that would be lost.
    """
    place, folder = out.resolve(), Path(model).expanduser().resolve()
    if folder.is_dir() and folder in (place, *place.parents):
        raise ValueError(f"out: {out} is in the folder of the model itself; choose another place")
    if text is not None and place == Path(text).resolve():
        raise ValueError(f"out: {out} is the text itself; choose another name")


def _is_there(path: Path, name: str) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise ValueError(f"{name}: {path} cannot be written ({error.strerror}); choose another place") from error
    return True


def _check_place(folder: Path, path: Path, name: str) -> None:
    """Write and remove a file in the nearest folder that is there already."""
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise ValueError(f"{name}: {path} is below {nearest}, which is a file; choose another place")
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise ValueError(f"{name}: {path} cannot be written ({error.strerror}); choose another place") from error
