"""Bad command lines, made from the definitions of all commands and options, and what they may do.

    python -m tests.bad_lines FOLDER SEED COUNT

runs COUNT lines, each in a process that was forked after the imports, and prints those that fall
short as JSON. A line holds a bad value for one option; the others are those of a small call. It
must be refused: with exit status 2 and a message of one line that names the option or the value,
within `PATIENCE` seconds, with nothing written and nothing that was there changed.
"""

import json
import os
import random
import shlex
import shutil
import signal
import stat
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import typer.main

PATIENCE = 30  # seconds
PARSER = ("Usage:", "\u256d\u2500 Error")  # how messages of the parser begin
LONG = "n" * 250 + ".json"
WORDS = {"int": ("x", "1.5", "nan", str(10**30), str(-10**30), "-1", ""),
         "float": ("x", "nan", "inf", "-inf", "1e400", "-1", ""), "text": ("", "~nobody-here/x"),
         "path": ("", "~nobody-here/x", "pipe", "loop", "text.txt/below"),
         "file": ("", "~nobody-here/x.json", "pipe", "loop", "text.txt/below", LONG, "base",
                  "/dev/null"),
         "folder": ("", "~nobody-here/x", "pipe", "loop", "text.txt/below", "text.txt")}
BAD = {"model": ("nowhere/at/all", "text.txt", "pipe", "loop", "empty", ""),
       "text": ("nowhere", "pipe", "loop", "empty", "binary", ""),
       "attention": ("nonsense", "CCA", ""), "mechanism": ("nonsense", ""),
       "option": ("x", "=8", "nonsense=1", "group=", ""), "task": ("nonsense", "pipe", ""),
       "difficulty": ("nonsense", "x=1", ""), "only": ("a99", "99", "nonsense", ""),
       "assignment": ("a99", "nonsense", ""), "restate": ("nonsense", "t1", ""),
       "start": ("99", "nonsense", ""), "ids": ("nonsense", "t1", ""), "names": ("nonsense", ""),
       "trained": ("x", "=base", "x=nowhere/at/all", "cca=base", ""), "source": ("binary", "pipe"),
       "folder": ("nowhere", "text.txt", "pipe", "empty", ""), "repository": ("",),
       "papers": ("nowhere", "text.txt", "empty", ""), "submitted": ("nowhere", "text.txt", ""),
       "gradebook": ("binary", "pipe", "base", ""), "file": ("nowhere", "pipe", "binary", "")}
# beside what is required: sizes with which an option that is refused late is refused soon
SMALL = {"evaluate": "--text text.txt --length 64 --windows 1 --questions 0",
         "finetune": "--text text.txt --length 64 --steps 1 --rows 2",
         "pretrain": "--text text.txt --context 64 --width 32 --layers 1 --heads 2 "
                     "--vocabulary 600 --tokens 500",
         "study recover": "--text text.txt --length 64 --steps 1 --rows 2 --seeds 1",
         "study sweep": "--text text.txt", "study compare": "--text text.txt --length 64 "
                                                            "--windows 1 --questions 0",
         "study heads": "--text text.txt --texts 1", "study sparsity": "--text text.txt --texts 1",
         "study lengths": "--text text.txt --length 256 --windows 1",
         "study noise": "--text text.txt --texts 2 --length 64 --seeds 1 --steps 0"}
NEEDS = {"option": ["--attention", "cca"], "group": ["--attention", "cca"],
         "window": ["--attention", "cca"], "difficulty": ["--task", "niah_single"]}
GIVEN = {"model": "base", "out": "new", "file": "a5_cca.ipynb", "submitted": "submitted",
         "recipe": "x", "name": "smollm2", "assignment": "a5"}


@dataclass(frozen=True)
class Line:
    """A command line, and the bad value in it."""

    words: tuple[str, ...]
    option: str
    value: str

    def __str__(self) -> str:
        return f"cca-lab {shlex.join(self.words)}"


@dataclass(frozen=True)
class Outcome:
    """What a line did."""

    status: int | None  # None: killed after `PATIENCE` seconds
    told: str  # what it wrote to stdout and stderr
    changed: tuple[str, ...]  # what is new, gone or other in the folder


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command that runs, with its words."""
    from cca_lab.cli import app

    yield from _below((), typer.main.get_command(app))


def _below(words: tuple[str, ...], command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "list_commands"):
        yield " ".join(words), command
        return
    context = command.make_context(" ".join(words), [], resilient_parsing=True)
    for name in command.list_commands(context):
        _, inner, _ = command.resolve_command(context, [name])
        yield from _below((*words, name), inner)


def kind_of(parameter: Any) -> str | None:
    """Return the kind of an option's value; None for a switch."""
    kind, helped = parameter.type_descriptor.annotation, (parameter.help or "").lower()
    if getattr(parameter, "is_flag", False):  # an argument has none
        return None
    if kind is Path:
        if parameter.name not in ("out", "figure", "student"):
            return "path"
        return "folder" if "folder" in helped else "file"
    return {int: "int", float: "float"}.get(get_args(kind)[0] if get_args(kind) else kind, "text")


def every_line() -> Iterator[Line]:
    """Yield every command with every bad value of every option, given twice, or unknown."""
    for name, command in commands():
        given = SMALL.get(name, "").split()
        flags = {each for parameter in command.params for each in parameter.opts}
        for parameter in command.params:
            if parameter.name == "help":
                continue
            others = _required(command, parameter)
            needed = NEEDS.get(parameter.name, [])
            if needed and needed[0] in flags:
                others += needed
            kind = kind_of(parameter)
            flag = next((each for each in parameter.opts if each.startswith("--")), None)
            kept = _without(given, flag)
            if kind is None:
                yield Line((*name.split(), *others, *kept, f"{flag}=maybe"), flag, "maybe")
                continue
            bad = BAD.get(parameter.name, ()) if kind in ("text", "path") else ()
            for value in bad or WORDS[kind]:
                word = [value] if flag is None else [flag, value]
                yield Line((*name.split(), *others, *kept, *word), flag or parameter.name, value)
            if flag and not parameter.multiple:
                yield Line((*name.split(), *others, *kept, flag, "1", flag, "1"), flag, "1")
        others = _required(command, None)
        yield Line((*name.split(), *others, *given, "--nonsense", "1"), "--nonsense", "1")


def _required(command: Any, except_for: Any) -> list[str]:
    """Return what must be given beside one parameter."""
    words = []
    for parameter in command.params:
        if parameter is not except_for and (parameter.required or parameter.name == "out"):
            flag = [each for each in parameter.opts if each.startswith("--")][:1]
            words += [*flag, GIVEN[parameter.name]]
    return words


def _without(words: list[str], flag: str | None) -> list[str]:
    if flag in words:
        at = words.index(flag)
        return words[:at] + words[at + 2:]
    return words


def problem_of(line: Line, outcome: Outcome) -> str | None:
    """Return in which way a line falls short; None for one that is answered as it should be."""
    told = outcome.told.strip()
    if outcome.status is None:
        return f"no answer within {PATIENCE} s"
    if "Traceback" in told:
        return "a traceback"
    if outcome.changed:
        return f"changed: {', '.join(outcome.changed)}"
    if outcome.status != 2:
        return f"exit status {outcome.status}"
    named = [line.option.lstrip("-"), line.option.lstrip("-").replace("-", "_"),
             *filter(None, line.value.split("="))]
    if not any(words in told for words in named):
        return "a message that names neither the option nor the value"
    if not told.startswith(PARSER) and len(told.splitlines()) > 1:
        return "a message of several lines"
    return None


def make_folder(folder: Path) -> None:
    """Make the files that the lines name."""
    from cca_lab.models import save_pretrained
    from tests.studies import small

    save_pretrained(small.model(context=512), folder / "base", small.tokenizer())
    (folder / "text.txt").write_text(small.corpus().train[0])
    (folder / "binary").write_bytes(bytes(range(256)) * 100)
    (folder / "a5_cca.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, '
                                         '"nbformat_minor": 5}')
    for name in ("empty", "submitted/al/a5_cca"):
        (folder / name).mkdir(parents=True)
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to("loop")


def state_of(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return type, size and time of change of everything in a folder, and of /dev/null."""
    paths = {str(path.relative_to(folder)): path.lstat() for path in folder.rglob("*")}
    paths["/dev/null"] = os.lstat("/dev/null")
    return {name: (stat.S_IFMT(each.st_mode), 0 if name == "/dev/null" else each.st_size,
                   0 if stat.S_ISDIR(each.st_mode) or name == "/dev/null" else each.st_mtime_ns)
            for name, each in paths.items()}


def run(line: Line, folder: Path) -> Outcome:
    """Run a line in a forked process, in the folder."""
    before, told = state_of(folder), folder.with_name(f"{folder.name}.told")
    child = os.fork()
    if child == 0:
        _be_the_command(line, folder, told)
    status, end = None, time.monotonic() + PATIENCE
    while status is None and time.monotonic() < end:
        ended, code = os.waitpid(child, os.WNOHANG)
        status = os.waitstatus_to_exitcode(code) if ended else None
        time.sleep(0.01)
    if status is None:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    after = state_of(folder)
    changed = sorted(name for name in before.keys() | after.keys()
                     if before.get(name) != after.get(name))
    return Outcome(status, told.read_text(errors="replace"), tuple(changed))


def _be_the_command(line: Line, folder: Path, told: Path) -> None:
    os.setsid()
    output = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(folder)
    sys.argv = ["cca-lab", *line.words]
    status = 70
    try:
        from cca_lab.cli import app

        app(list(line.words))
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    """Run lines and print what falls short."""
    folder, seed, number = Path(sys.argv[1]).resolve(), sys.argv[2], int(sys.argv[3])
    os.environ["COLUMNS"] = "1000"  # a message of the parser is not broken into lines
    lines = list(every_line())
    chosen = random.Random(seed).sample(lines, min(number, len(lines)))
    folder.mkdir(parents=True, exist_ok=True)
    make_folder(folder)
    short, there = [], set(folder.iterdir())
    for line in chosen:
        outcome = run(line, folder)
        if problem := problem_of(line, outcome):
            short.append({"line": str(line), "problem": problem, "told": outcome.told[-600:]})
        for path in set(folder.iterdir()) - there:  # the next line begins anew
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    print(json.dumps({"lines": len(chosen), "of": len(lines), "short": short}, indent=1))


if __name__ == "__main__":
    main()
