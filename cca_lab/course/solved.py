"""The solved cells of notebooks: where they are, and what of them is a hint and what is code."""

import json
import re

from cca_lab.files import notebooks_folder

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"


def solved_cells(number: str = "") -> dict[str, str]:
    """Return the cell of each turn in the committed notebooks, by the turn's id.

    `number`, such as "05", names one notebook.
    """
    found = {}
    for path in sorted(notebooks_folder().glob(f"{number}*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            if turn := re.search(r'^your_turn\("([\d.]+)"', source, re.MULTILINE):
                found[turn[1]] = source
    return found


def solution_of(source: str) -> tuple[list[str], str, str]:
    """Return what a solved cell says: hints, what helps who is lost, and the code without both.

    The comments that begin a solution say it: each "Hint:" begins a hint, "Lost:" the rest.
    """
    said: list[tuple[str, list[str]]] = []
    code, inside = [], ""
    for line in source.split("\n"):
        text = line.strip()
        kind = next((kind for kind in ("Hint:", "Lost:") if text.startswith(f"# {kind}")), "")
        if text in (BEGIN, END):
            inside = "start" if text == BEGIN else ""
        elif text.startswith("#") and (inside == "hint" or inside == "start" and kind):
            inside = "hint"
            if kind:
                said.append((kind, []))
            said[-1][1].append(text.removeprefix(f"# {kind}").lstrip("# "))
        else:
            inside = inside and "code"
            code.append(line)
    texts = [(kind, " ".join(lines).strip()) for kind, lines in said]
    lost = " ".join(text for kind, text in texts if kind == "Lost:")
    return [text for kind, text in texts if kind == "Hint:"], lost, "\n".join(code).strip("\n")
