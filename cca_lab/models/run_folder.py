"""The folder of a training run: a log that is appended to, and folders that are replaced as a whole."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cca_lab.files import replacing


def replace_folder(new: Path, place: Path) -> None:
    """Replace the folder `place` by `new`; at every moment one of the two exists."""
    old = place.with_name(place.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if place.exists():
        place.rename(old)
    new.rename(place)
    shutil.rmtree(old, ignore_errors=True)


def put_back(place: Path) -> None:
    """Undo the first half of a `replace_folder` that was interrupted."""
    old = place.with_name(place.name + ".old")
    if old.exists() and not place.exists():
        old.rename(place)


def append_log(folder: Path, record: dict[str, Any]) -> None:
    """Append a record to a run's `log.jsonl`; the folder is made if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write(json.dumps(record) + "\n")


def read_log(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a run's `log.jsonl`; none if there is no log. A last line that was cut off is left out.

    Raises:
        ValueError: for a line before the last that is no record.
    """
    path = Path(folder) / "log.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for number, line in enumerate(lines, start=1):
        try:
            yield json.loads(line)
        except ValueError as error:  # a full disk, or a machine that stopped, cuts the last line
            if number < len(lines):
                raise ValueError(f"log: got line {number} of {path}, which is no record; remove it") from error


def trim_log(folder: Path, step: int) -> None:
    """Remove the records after a step from the log; they will be written again."""
    kept = [record for record in read_log(folder) if record["step"] <= step]
    if (folder / "log.jsonl").is_file():
        with replacing(folder / "log.jsonl") as temporary:
            temporary.write_text("".join(json.dumps(record) + "\n" for record in kept), encoding="utf-8")
