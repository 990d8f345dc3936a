"""Options of commands: a dataclass or a function read from a command line by tyro.

A field's or parameter's docstring is its help. An option that holds several values takes them in a
row, `--group 8 4`. A nested dataclass adds its fields as options of their own.
"""

import io
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import tyro

HOME = re.compile(r"^(--[\w-]+=)?~(?=/)")  # a shell expands `--out ~/r`, but not `--out=~/r`
CONFIG = (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes)


def at_least(least: int) -> Any:
    """Return the mark of an integer option that is `least` or more."""
    def read(words: list[str]) -> int:
        if (value := int(words[0])) < least:
            raise ValueError(f"got {value}, wanted {least} or more")
        return value

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1, metavar=f"INT>={least}", instance_from_str=read,
        is_instance=lambda each: type(each) is int, str_from_instance=lambda each: [str(each)])


def _finite(words: list[str]) -> float:
    if not math.isfinite(value := float(words[0])):
        raise ValueError(f"got {value}, wanted a finite number")
    return value


Count = Annotated[int, at_least(1)]
Natural = Annotated[int, at_least(0)]
Finite = Annotated[float, tyro.constructors.PrimitiveConstructorSpec(
    nargs=1, metavar="FLOAT", instance_from_str=_finite,
    is_instance=lambda each: isinstance(each, int | float),
    str_from_instance=lambda each: [str(each)])]


def parsed(kind: Callable[..., Any], words: Sequence[str], command: str) -> Any:
    """Return an instance of a dataclass, or the result of a function, for the words of a command.

    Raises:
        ValueError: in one line, for words that do not fit.
        SystemExit: after `--help`.
    """
    words = [HOME.sub(lambda found: f"{found[1] or ''}{Path.home()}", word) for word in words]
    if empty := [before for before, word in pairwise(["", *words]) if not word]:
        raise ValueError(f"{empty[0]}: got an empty text; give a value, or leave the option out")
    options = Counter(word.partition("=")[0] for word in words if word.startswith("--"))
    if twice := [name for name, times in options.items() if times > 1]:
        raise ValueError(f"{twice[0]}: given {options[twice[0]]} times; give several values in a "
                         "row, behind one")  # tyro would take the last without a word
    message = io.StringIO()
    try:
        with redirect_stderr(message):
            return tyro.cli(kind, args=list(words), prog=command, config=CONFIG)
    except SystemExit as end:
        if end.code:
            raise ValueError(_line(message.getvalue())) from None
        raise


def _line(box: str) -> str:
    """Return the line for an error in the frame that tyro draws: the option, and what is wrong."""
    rows = (row.strip("\u2502\u256d\u256e\u2570\u256f\u2500 \t") for row in box.splitlines())
    words = " ".join(row for row in rows if row.strip("-")).partition(" For full helptext")[0]
    wrong = re.search(r"Error parsing (\S+): (.*?)(?: Got errors| Argument helptext|$)", words)
    if wrong is None:
        return words
    what = re.sub(r"no type matching (?:\{None\}\|)?(\S+) could be instantiated from \['(.*)'\]",
                  r"got '\2', wanted \1", wrong[2])  # of an option that may be left out
    return f"{wrong[1]}: {what.rstrip('.')}"
