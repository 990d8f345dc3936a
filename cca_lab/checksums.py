"""Checksums of the shipped data, in the format of `sha256sum`.

`CHECKSUMS.sha256` is in the data folder; `cd data && sha256sum -c CHECKSUMS.sha256`
checks the listed files without this package.
"""

import hashlib
from pathlib import Path

FILE_NAME = "CHECKSUMS.sha256"
COVERED = ("models", "results")


def covered_files(data: Path) -> list[str]:
    """List the files that the checksums cover, as sorted POSIX paths relative to the data folder."""
    paths = (path for folder in COVERED for path in (data / folder).rglob("*"))
    return sorted(path.relative_to(data).as_posix() for path in paths
                  if path.is_file() and not path.name.startswith("."))


def digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write(data: Path) -> Path:
    """Write the checksums of the covered files and return the path."""
    target = data / FILE_NAME
    lines = [f"{digest(data / name)}  {name}\n" for name in covered_files(data)]
    target.write_text("".join(lines), encoding="utf-8", newline="\n")
    return target


def problems(data: Path) -> list[str]:
    """Compare the data folder with its checksums.

    Args:
        data: the data folder.

    Returns:
        One line for each file that is missing, changed or not listed; empty if all files are as shipped.

    Raises:
        ValueError: if there is no checksum file, or one of its lines is not "<sha256>  <path>".
    """
    listing = data / FILE_NAME
    if not listing.is_file():
        raise ValueError(f"checksums: {FILE_NAME} is missing in {data}; "
                         "get it with git, or write it again with `cca-lab checksums --write`")
    expected = {}
    for line in listing.read_text(encoding="utf-8").splitlines():
        recorded, separator, name = line.partition("  ")
        if not separator or len(recorded) != 64:
            raise ValueError(f"checksums: {line!r} in {FILE_NAME}, wanted '<sha256>  <path>'; "
                             "restore the file with git")
        expected[name] = recorded
    present = set(covered_files(data))
    found = [f"missing: {name}" for name in sorted(expected.keys() - present)]
    found += [f"changed: {name}" for name in sorted(expected.keys() & present)
              if digest(data / name) != expected[name]]
    return found + [f"not listed: {name}" for name in sorted(present - expected.keys())]
