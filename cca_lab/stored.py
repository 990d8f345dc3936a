"""A file of text or JSON is read again; an error is a ValueError that names the file."""

import json
import math
from pathlib import Path
from typing import Any

LONGEST = 60  # characters of a number in a message


def read_text(path: Path, name: str, advice: str = "") -> str:
    """Return the text of a file; `name` and `advice` begin and end the message of an error.

    Raises:
        ValueError: for a folder, a pipe or a device, which is not opened, and for other encodings.
        OSError: for a file that is not there or cannot be read.
    """
    end = f"; {advice}" if advice else ""
    if path.exists() and not path.is_file():
        raise ValueError(f"{name}: {path} is a device, a pipe or a folder, wanted a file{end}")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: {path} is no text in UTF-8 (byte {error.start}){end}") from error


def read_json(path: Path, name: str, advice: str = "") -> Any:
    """Return the value in a file of JSON; ValueError for NaN and infinities, which JSON has not."""
    text = read_text(path, name, advice)
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        end = f"; {advice}" if advice else ""
        raise ValueError(f"{name}: {path} is no JSON ({error}){end}") from error


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:LONGEST]} is no finite number")
    return number
