"""The `cca-lab` command: a table of functions and of settings that run, read by tyro.

What a command needs is imported when it runs, so help is quick. Whatever goes wrong becomes one
line on stderr, here and nowhere else.
"""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

from cca_lab.cli import course, lab, theory
from cca_lab.extras import advice
from cca_lab.files import check_apart
from cca_lab.freed_memory import keep_freed_memory
from cca_lab.models.recipe import Diverged
from cca_lab.options import parsed
from cca_lab.studies.registry import COMMANDS as TRAINING
from cca_lab.studies.registry import STUDIES, sentence

Command = Callable[..., Any] | str  # or "module:Class" of settings
Table = dict[str, "Command | Table"]

TABLE: Table = {
    "doctor": lab.doctor, "walkthrough": lab.walkthrough, "notebooks": lab.notebooks,
    "site": lab.site, "native": lab.native, "model": lab.model,
    **TRAINING, "study": dict(STUDIES),
    "verify": theory.verify, "prove": theory.prove,
    "course": {"check": course.check, "grade": course.grade,
               "release": course.release, "solutions": course.solutions},
    "checksums": lab.checksums, "readme": lab.readme,
}
GROUPS = {"study": "Measure: every number of the lab, by the name of its study.",
          "course": "Check, grade and make the assignments in lab/."}
WRITTEN = ("out", "student")  # options for what a command writes
NO_MEMORY = ("allocate memory", "failed to map segment", "not enough memory", "out of memory",
             "Storage size calculation overflowed")
DIVERGED, INTERRUPTED, MISTAKE = 3, 130, 2


def app(words: Sequence[str] | None = None) -> None:
    """Run a command.

    Args:
        words: what stands behind `cca-lab`; by default that of this process. `--debug` among them
            shows the traceback of an error.

    Raises:
        SystemExit: always, with the status: what the command returns; 2 for a mistake in the
            input or a limit of the machine; 3 for a training that diverged; 130 after Ctrl-C.
    """
    words = list(sys.argv[1:] if words is None else words)
    keep_freed_memory()
    try:
        status = run([word for word in words if word != "--debug"])
        sys.stdout.flush()  # a full disk is noticed here, and not after the last line
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BrokenPipeError:  # nobody reads on, such as behind `| head`
        _discard_output()
        status = 0
    except Exception as error:
        if "--debug" in words:
            traceback.print_exc()
        print(line_of(error, words), file=sys.stderr)
        if isinstance(error, OSError):
            _discard_output()
        status = DIVERGED if isinstance(error, Diverged) else MISTAKE
    raise SystemExit(status)


def run(words: Sequence[str]) -> int:
    """Run the command that the words begin with, and return its status."""
    name, command, rest = found(words)
    if isinstance(command, dict):
        print(_listed(name, command))
        return 0
    call = prepared(name, command, rest)
    return int(call() or 0)


def found(words: Sequence[str]) -> tuple[str, Command | Table, list[str]]:
    """Return the longest name of a command among the first words, the command, and the rest."""
    name, table, rest = "cca-lab", TABLE, list(words)
    while rest and not rest[0].startswith("-"):
        if rest[0] not in table:
            raise ValueError(f"{name} {rest[0]}: is not a command; `{name}` lists those there are")
        word = rest.pop(0)
        name, command = f"{name} {word}", table[word]
        if not isinstance(command, dict):
            return name, command, rest
        table = command
    if set(rest) - {"--help", "-h"}:
        raise ValueError(f"{name}: got {rest[0]}, wanted the name of a command; `{name}` lists "
                         "them")
    return name, table, rest


def prepared(name: str, command: Command, words: Sequence[str]) -> Callable[[], Any]:
    """Return the call that runs a command with the options in some words, which are checked."""
    if isinstance(command, str):
        module, _, kind = command.partition(":")
        settings = parsed(getattr(import_module(module), kind), words, name)
        check_outputs(vars(settings))

        def call() -> None:  # the result is for callers in Python
            settings.run()

        return call
    return parsed(_later(command), words, name)  # type: ignore[no-any-return]


def _later(function: Callable[..., Any]) -> Callable[..., Callable[[], Any]]:
    """Return a function of the same signature that returns the call instead of making it."""
    @wraps(function)
    def later(*args: Any, **values: Any) -> Callable[[], Any]:
        check_outputs(values)
        return lambda: function(*args, **values)

    return later


def check_outputs(values: dict[str, Any]) -> None:
    """Raise ValueError for an output in the place of an input, which it would replace."""
    for written in WRITTEN:
        if (path := values.get(written)) is None:
            continue
        for name, value in values.items():
            given = value if isinstance(value, tuple) else (value,)
            if name != written and any(isinstance(each, str | Path) and Path(each).resolve()
                                       == Path(path).resolve() for each in given):
                raise ValueError(f"--{written}: {path} is also --{name.replace('_', '-')}, which "
                                 "it would replace; choose another name")
        for name in ("model", "adapter"):
            if isinstance(values.get(name), str):
                check_apart(Path(path), values[name])


def line_of(error: Exception, words: Sequence[str] = ()) -> str:
    """Return the line that tells of an error, with the option that named its file."""
    told = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, Diverged):
        return f"diverged: {told}"
    if isinstance(error, ModuleNotFoundError) and (todo := advice(error.name)):
        return f"error: {error.name}: is not installed; {todo}"
    if isinstance(error, MemoryError) or any(part in told for part in NO_MEMORY):
        return f"error: not enough memory for these sizes; ask for less ({told})"
    if isinstance(error, OSError) and error.filename is not None:
        told = f"{error.filename}: {error.strerror}"
        before = dict(zip(words[1:], words, strict=False)).get(str(error.filename), "")
        return f"error: {before}: {told}" if before.startswith("--") else f"error: {told}"
    if isinstance(error, ValueError | OSError):
        return f"error: {told}"
    return f"error: {type(error).__name__}: {told} (--debug shows where)"


def _listed(name: str, table: Table) -> str:
    """Return the names of a table, each with its sentence."""
    width = max(map(len, table)) + 2
    lines = [f"  {each:{width}}{_sentence(each, command)}" for each, command in table.items()]
    return "\n".join([f"usage: {name} COMMAND ...", "",
                      *lines, "", f"{name} COMMAND --help explains the options of a command."])


def _sentence(name: str, command: Command | Table) -> str:
    if isinstance(command, dict):
        return GROUPS[name]
    return sentence(command) if isinstance(command, str) else \
        (command.__doc__ or "").split("\n")[0]


def _discard_output() -> None:
    """Let what is still to be written go nowhere, so that Python does not try once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


__all__ = ["app"]
