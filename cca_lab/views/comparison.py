"""Comparison of the outputs of a notebook that was run again with the committed outputs.

Words and integers, which are counts, must be the same. Decimals may differ by 1 %, by one unit of
the last digit shown, or by 1e-5: machines differ in the order of a sum. Pictures must be present.
A cell's tag weakens this: `trained` (on a model trained in the notebook: every number within 25 %
or 0.05) or `volatile` (timings, facts about the machine: only the kinds of output are compared).
"""

import json
import re
from dataclasses import dataclass
from itertools import zip_longest

from nbformat import NotebookNode

# Not inside a name or after a dot, so that gpt2 and 3.11.7 are not read as one number each.
NUMBER = re.compile(r"(?<![A-Za-z_\d.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


@dataclass(frozen=True)
class Tolerance:
    """The allowed difference between a number and the committed one."""

    relative: float  # as a share of the committed number
    absolute: float  # a difference up to this is always allowed
    counts: bool     # whether integers may differ as well

    def accepts(self, committed: str, fresh: str) -> bool:
        """Return whether two printed numbers agree."""
        if not self.counts and is_count(committed) and is_count(fresh):
            return committed == fresh
        allowed = max(self.relative * abs(float(committed)), self.absolute, last_place(committed))
        return abs(float(fresh) - float(committed)) <= allowed * (1 + 1e-9)


EXACT = Tolerance(relative=0.01, absolute=1e-5, counts=False)
TRAINED = Tolerance(relative=0.25, absolute=0.05, counts=True)


def is_count(number: str) -> bool:
    """Return whether a number is printed as an integer."""
    return number.lstrip("+-").isdigit()


def last_place(number: str) -> float:
    """Return one unit in the last digit printed: 0.01 for "2.35", 1e-08 for "3.1e-7"."""
    if is_count(number):
        return 0.0
    mantissa, _, exponent = number.lower().partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def compare_text(committed: str, fresh: str, tolerance: Tolerance = EXACT) -> str | None:
    """Return the first difference of two texts in words, numbers by tolerance, or None."""
    committed, fresh = (ADDRESS.sub("<address>", text) for text in (committed, fresh))
    words, fresh_words = (NUMBER.sub(" # ", text).split() for text in (committed, fresh))
    for word, fresh_word in zip_longest(words, fresh_words, fillvalue="(nothing)"):
        if word != fresh_word:
            return f"{word!r} became {fresh_word!r}"
    for number, fresh_number in zip(NUMBER.findall(committed), NUMBER.findall(fresh), strict=True):
        if not tolerance.accepts(number, fresh_number):
            return f"{number} became {fresh_number}"
    return None


def _content(output: NotebookNode) -> dict[str, str]:
    """Return the content of an output, text by kind; pictures and errors have an empty text."""
    if output.output_type == "stream":
        return {output.name: output.text}
    if output.output_type == "error":
        return {"error": ""}
    picture = any(kind.startswith("image/") for kind in output.data)  # its text is its size
    return {kind: "" if picture and kind != "text/html" else
            value if isinstance(value, str) else json.dumps(value, sort_keys=True)
            for kind, value in output.data.items()}


def compare_cells(committed: NotebookNode, fresh: NotebookNode) -> str | None:
    """Return the first difference of a cell's outputs, with the tolerance of its tags, or None."""
    tags = committed.metadata.get("tags", [])
    outputs, fresh_outputs = ([_content(output) for output in cell.outputs]
                              for cell in (committed, fresh))
    kinds, fresh_kinds = (list(map(sorted, contents)) for contents in (outputs, fresh_outputs))
    if kinds != fresh_kinds:
        return f"outputs {kinds} became {fresh_kinds}"
    if "volatile" in tags:
        return None
    tolerance = TRAINED if "trained" in tags else EXACT
    for content, fresh_content in zip(outputs, fresh_outputs, strict=True):
        for kind in sorted(content):
            difference = compare_text(content[kind], fresh_content[kind], tolerance)
            if difference:
                return f"{kind}: {difference}"
    return None


def compare_notebooks(committed: NotebookNode, fresh: NotebookNode) -> list[str]:
    """Return a line for each code cell whose outputs differ from the committed ones."""
    cells, fresh_cells = ([cell for cell in notebook.cells if cell.cell_type == "code"]
                          for notebook in (committed, fresh))
    if [cell.source for cell in cells] != [cell.source for cell in fresh_cells]:
        return ["the cells themselves differ"]
    differences = ((cell.execution_count, compare_cells(cell, fresh_cell))
                   for cell, fresh_cell in zip(cells, fresh_cells, strict=True))
    return [f"cell {count}: {difference}" for count, difference in differences if difference]
