"""The lab's own files, outputs that are never left half written, and checksums of the shipped data.

`cd data && sha256sum -c CHECKSUMS.sha256` checks the listed files without this package.
"""

import hashlib
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

CLONE = "work in a clone and install it with `pip install -e .`"
ADVICE = f"{CLONE}, or point CCA_LAB_DATA to its data folder"
SHIPPED = Path("data",
               "models")  # prefix by which a shipped model is named, wherever the data folder is
ADAPTERS = Path("data", "adapters")  # and by which an adapter is
CHECKSUMS = "CHECKSUMS.sha256"
LONGEST_NAME = 255  # bytes, on all usual file systems
COVERED = ("adapters", "models", "results")  # folders that the checksums cover


def in_clone() -> bool:
    """Return whether this package was installed from a clone in editable mode, not from a wheel."""
    return (Path(__file__).resolve().parents[1] / "pyproject.toml").is_file()


def repository() -> Path:
    """Return the root of the clone that this package was installed from in editable mode."""
    if not in_clone():
        raise ValueError(f"repository: no pyproject.toml beside {Path(__file__).parent}; {CLONE}")
    return Path(__file__).resolve().parents[1]


def data_folder() -> Path:
    """Return the folder of the shipped data: `CCA_LAB_DATA`, else the clone's, else the wheel's."""
    chosen = os.environ.get("CCA_LAB_DATA")
    packed = Path(__file__).resolve().parent / "_data"
    folder = Path(chosen).resolve() if chosen else repository() / "data" if in_clone() else packed
    if not folder.is_dir():
        source = "CCA_LAB_DATA" if chosen else "the clone" if in_clone() else "the package"
        raise ValueError(f"data folder: {folder} (from {source}) is not a folder; {ADVICE}")
    return folder


def shipped_model(path: Path) -> Path:
    """Return the path of a shipped model, `data/models/NAME`, or adapter; any other unchanged."""
    if path.parent not in (SHIPPED, ADAPTERS) or path.exists():
        return path
    return data_folder() / path.parent.name / path.name


def models_folder() -> Path:
    """Return the folder of the shipped base models, one subfolder each."""
    return data_folder() / "models"


def results_folder() -> Path:
    """Return the folder of the shipped measurements, JSON files."""
    return data_folder() / "results"


def new_result(name: str) -> Path:
    """Return the path of a new measurement: in the results folder of a clone, else `name`."""
    return results_folder() / name if in_clone() or "CCA_LAB_DATA" in os.environ else Path(name)


def course_folder() -> Path:
    """Return the folder of the course in the clone, `lab/`."""
    return repository() / "lab"


def notebooks_folder() -> Path:
    """Return the folder of the notebooks of the clone."""
    return repository() / "notebooks"


def check_file(path: Path, name: str = "out") -> Path:
    """Return the path of a file to write or replace, after checking that this is possible."""
    _check_ordinary(path, name)
    _check_writable(path.resolve().parent, path, name)
    return path


def check_folder(path: Path, name: str = "out") -> Path:
    """Return the path of a folder to write to, after checking that this is possible."""
    if path.exists() and not path.is_dir():
        raise ValueError(f"{name}: {path} is a file, wanted a folder; choose another name")
    _check_writable(path, path, name)
    return path


def check_apart(out: Path, model: str | Path) -> None:
    """Refuse an output in the folder of the model of the same command."""
    target, folder = out.resolve(), Path(model).expanduser().resolve()
    if folder.is_dir() and folder in (target, *target.parents):
        raise ValueError(f"out: {out} is in the folder of the model itself; choose another place")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, which replaces it unless an error ends the block.

    A link stays one: the file that it names is replaced.

    Raises:
        ValueError: for a device, a pipe or a socket, which a file would replace for all who use it,
            and for a name that is too long.
    """
    _check_ordinary(path)
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_of(path)  # overwrites what a killed command left
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """Yield a new folder beside `folder`, which replaces it unless an error ends the block.

    At every moment one of the two is there: a kill between the two renames is undone by the next
    call, or by `put_back`.
    """
    new, old = temporary_of(folder), folder.with_name(f".{folder.name}.old")
    put_back(folder)
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        yield new
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
    finally:
        put_back(folder)
        shutil.rmtree(new, ignore_errors=True)


def put_back(folder: Path) -> None:
    """Put back what `replacing_folder` had moved away when it was killed."""
    old = folder.with_name(f".{folder.name}.old")
    if old.exists() and not folder.exists():
        old.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def held(path: Path, name: str = "out") -> Iterator[None]:
    """Keep other commands from writing to a file or a folder within the context.

    The lock is a file beside it; that of a folder holds for all that is in it. The system frees
    that of a command that was killed.

    Raises:
        ValueError: if another command writes there; it is named.
    """
    lock = _lock_of(path.absolute())
    missing = [folder for folder in lock.parents if not folder.exists()]
    guard = FileLock(lock)
    try:
        for folder in lock.parents:
            if folder.name and _lock_of(folder).is_file():
                with FileLock(_lock_of(folder), blocking=False):
                    pass
        lock.parent.mkdir(parents=True, exist_ok=True)
        guard.acquire(blocking=False)
    except Timeout as error:
        raise ValueError(f"{name}: {path} is being written by {Path(error.lock_file).read_text()}; "
                         "wait until that ends, or choose another name") from error
    try:
        lock.write_text(f"process {os.getpid()} on {platform.node()}")
        yield
    finally:
        with suppress(OSError):  # on Windows an open file stays
            lock.unlink()  # while it is held: who waits for the removed file asks again
        guard.release()
        for folder in missing:
            with suppress(OSError):  # it holds what was written
                folder.rmdir()


def _lock_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def temporary_of(path: Path) -> Path:
    """Return where what replaces a file or a folder is written first."""
    return path.with_name(f".{path.name}.part")


def _check_ordinary(path: Path, name: str = "out") -> None:
    """Refuse a path that has too long a name for its temporary, or that is there and no file."""
    length = len(os.fsencode(temporary_of(path.resolve()).name))
    if length > LONGEST_NAME:
        raise ValueError(f"{name}: {path.name[:20]}... is {length - LONGEST_NAME} bytes too long "
                         "for a file's name; choose a shorter one")
    if path.exists() and not path.is_file():
        raise ValueError(f"{name}: {path} is a device, a pipe or a folder, wanted a file; "
                         "choose another name")


def _check_writable(folder: Path, path: Path, name: str) -> None:
    """Write and remove a file in the nearest existing folder, to see that writing works."""
    nearest = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not nearest.is_dir():
        raise ValueError(
            f"{name}: {path} is below {nearest}, which is a file; choose another place")
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise ValueError(
            f"{name}: {path} cannot be written ({error.strerror}); choose another place") from error


def covered_files(data: Path) -> list[str]:
    """List the files that the checksums cover, as sorted POSIX paths below the data folder."""
    paths = (path for folder in COVERED for path in (data / folder).rglob("*"))
    return sorted(path.relative_to(data).as_posix() for path in paths
                  if path.is_file() and not path.name.startswith("."))


def digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_checksums(data: Path) -> Path:
    """Write the checksums of the covered files and return the path."""
    target = data / CHECKSUMS
    lines = [f"{digest(data / name)}  {name}\n" for name in covered_files(data)]
    target.write_text("".join(lines), encoding="utf-8", newline="\n")
    return target


def checksum_problems(data: Path) -> list[str]:
    """Return one line for each file of the data folder that is missing, changed or not listed."""
    listing = data / CHECKSUMS
    if not listing.is_file():
        raise ValueError(f"checksums: {CHECKSUMS} is missing in {data}; get it with git, or write "
                         "it again with `cca-lab checksums --write`")
    expected = {}
    for line in listing.read_text(encoding="utf-8").splitlines():
        recorded, separator, name = line.partition("  ")
        if not separator or len(recorded) != 64:
            raise ValueError(f"checksums: {line!r} in {CHECKSUMS}, wanted '<sha256>  <path>'; "
                             "restore the file with git")
        expected[name] = recorded
    present = set(covered_files(data))
    problems = [f"missing: {name}" for name in sorted(expected.keys() - present)]
    problems += [f"changed: {name}" for name in sorted(expected.keys() & present)
                 if digest(data / name) != expected[name]]
    return problems + [f"not listed: {name}" for name in sorted(present - expected.keys())]
