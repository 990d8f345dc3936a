"""Tools for notebooks: checks, headline results, the source of a function, a progress bar.

`check` and `result` also store their facts in the notebook file, for `cca-lab walkthrough`.
"""

import ast
import inspect
import os
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from typing import Any

from IPython.display import Markdown, Pretty, display

from cca_lab.views.reader import is_done, source_of

CHECK_TYPE = "application/vnd.cca-lab.check+json"
RESULT_TYPE = "application/vnd.cca-lab.result+json"
BAR = 30  # characters of a progress bar


@dataclass(frozen=True)
class Check:
    """A statement that a notebook tested, in words, and the evidence."""

    name: str
    passed: bool
    detail: str = ""

    def __repr__(self) -> str:
        verdict = "[ok]  " if self.passed else "[fail]"
        return f"{verdict} {self.name}" + (f": {self.detail}" if self.detail else "")

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"text/plain": repr(self), CHECK_TYPE: asdict(self)}


@dataclass(frozen=True)
class Result:
    """A headline number of a notebook; ratios and counts have no unit."""

    name: str
    value: float | int
    unit: str = ""

    def __repr__(self) -> str:
        number = str(self.value) if isinstance(self.value, int) else f"{self.value:.4g}"
        return f"{self.name} = {number} {self.unit}".rstrip()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"text/plain": repr(self), RESULT_TYPE: asdict(self)}


def check(name: str, passed: Any, detail: Any = "") -> None:
    """Show and record whether a statement holds, and stop the notebook if it does not.

    `detail` is the evidence, shown after the name: f"largest difference {error:.1e}".
    """
    outcome = Check(name, bool(passed), str(detail))
    display(outcome)
    if not outcome.passed:
        raise AssertionError(f"{name}: {detail}" if detail else name)


def result(name: str, value: Any, unit: str = "") -> None:
    """Show a number, or a tensor or array with one element, and record it for the walkthrough."""
    number = value.item() if hasattr(value, "item") else value
    number = number if isinstance(number, int) else float(number)
    display(Result(name, number, unit))


def show_source(thing: Any, *, after: str = "") -> None:
    """Show the source, with syntax colours, of a function, class, module or Triton kernel.

    `after` names a turn, such as "03.6": the source is shown once that turn is done, and as its
    difference from what the reader wrote there, if a quarter of the reader's lines recur in it.
    """
    if after and not is_done(after):
        print(f"The package's version is shown once your turn {after} is done; run this again then")
        return
    # a kernel keeps its function as fn; a method is moved to the margin, as the reader's stands
    source = textwrap.dedent(inspect.getsource(getattr(thing, "fn", thing)))
    lines, language = source.rstrip().splitlines(), "python"
    if after and (compared := _difference(source_of(after), source)):
        lines, language = ["- yours, + the package's", *compared], "diff"
    display(Markdown(fenced("\n".join(lines), language)))


def fenced(text: str, language: str) -> str:
    """Return Markdown that shows a text as it is, whatever backticks it holds."""
    fence = "`" * max([3, *(1 + len(run) for run in re.findall("`+", text))])
    return f"{fence}{language}\n{text}\n{fence}"


def _difference(own: str, package: str) -> list[str]:
    """Return the lines of both, marked - and +, but for docstrings and comments; or nothing.

    Lines that differ in their comments, or in spaces behind their indentation, stand once, as the
    package has them.
    """
    sides = [[line for line in _without_docstrings(text) if re.sub("#.*", "", line).strip()]
             for text in (own, package)]
    bare = [[re.sub(r"(?<=\S)\s+|#.*", "", line) for line in side] for side in sides]
    matcher = SequenceMatcher(None, bare[0], bare[1], autojunk=False)
    shared, lines = 0, []
    for tag, *own_part, first, end in matcher.get_opcodes():
        if tag == "equal":
            shared += end - first
            lines += [f"  {line}" for line in sides[1][first:end]]
        else:
            lines += [f"- {line}" for line in sides[0][slice(*own_part)]]
            lines += [f"+ {line}" for line in sides[1][first:end]]
    return lines if shared and 4 * shared >= len(sides[0]) else []


def _without_docstrings(source: str) -> list[str]:
    lines, documented = source.splitlines(), (ast.Module, ast.ClassDef, ast.FunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and ast.get_docstring(node):
            text = node.body[0]
            for number in range(text.lineno - 1, text.end_lineno or 0):
                lines[number] = ""
    return lines


@contextmanager
def live_progress(title: str, total: int) -> Iterator[Callable[[int, str], None]]:
    """Show a progress bar while a cell runs, moved by report(done, text); at the end one line."""
    handle, start = display(Pretty(f"{title}: 0 of {total}"), display_id=True), time.perf_counter()
    done = 0

    def report(now: int, text: str = "") -> None:
        nonlocal done
        done = now
        left = (time.perf_counter() - start) * (total - done) / max(1, done)
        bar = "#" * round(BAR * done / total)
        handle.update(
            Pretty(f"{title} [{bar:.<{BAR}}] {done} of {total}  {text}  {left:.0f} s left"))

    yield report
    handle.update(Pretty(f"{title}: {done} of {total} done"))


def interpret_kernels() -> None:
    """Set this process to interpret kernels on the CPU, without Triton by the lab's interpreter.

    Call it in the first cell: Triton reads the setting when it, or PyTorch, imports it.
    """
    from cca_lab.attention.fused import installed, interpreted

    if sys.modules.get("triton") is not None and not interpreted():
        raise RuntimeError(
            "triton was imported already, to compile kernels; restart the notebook's kernel and "
            "run its cells from the first, which calls interpret_kernels()")
    os.environ["TRITON_INTERPRET"] = "1"
    if not installed():
        print("Triton is not installed, which exists for Linux only: the lab's own interpreter "
              "runs the kernels.")
