"""A folder of files that belong together: no part of it is taken for the whole."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """Yield the folder to write to: a new one is made beside `out`, and becomes it at the end.

    Raises:
        ValueError: if the system refuses something, such as on a full disk: a new folder is not
            there then, and of one that was there the message says that it holds a part.
    """
    new = not out.exists()
    try:
        if not new:
            yield out
            return
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=out.parent) as beside:
            made = Path(beside, "whole")  # with the usual rights, which the one around it has not
            made.mkdir()
            yield made
            made.rename(out)
    except OSError as error:
        left = "was not made" if new else "holds a part of the new files"
        raise ValueError(f"out: {out} {left}: {error}; see to that, and run this again") from error
