"""A class of eight, as submissions are handed in, with what each of them must get."""

import json
from pathlib import Path

from cca_lab.course.registry import assignment_of
from tests.course import handed_in, matrix

PART = "a5"
# A right answer by other means: rows one after the other, in numpy.
OTHER = '''import numpy as np

def intervals(length, sinks, group, window):
    row = np.arange(length)
    n = np.maximum(0, (row + 1 - sinks - window) // group)
    c, zero = n[-1], np.zeros_like(row)
    start = c + np.minimum(row + 1, sinks + group * n)
    return np.stack([zero, n, zero + c, c + np.minimum(row + 1, sinks), start, c + row + 1],
                    axis=1).reshape(length, 3, 2)
'''
WRONG = OTHER.replace("c + row + 1]", "c + np.minimum(row + 2, length)]")  # a token of the future
LOST = 2  # points, by it


def colab() -> dict:
    """Return solved work as Colab saves it: no ids, none of nbgrader's metadata, its own lines."""
    notebook = handed_in.solved(PART)
    for cell in notebook["cells"]:
        del cell["id"]
        cell["metadata"] = {"id": "x7Fq", "executionInfo": {"status": "ok"}}
    notebook["cells"].insert(0, cell_of("!pip install torch\nfrom google.colab import drive"))
    return notebook | {"nbformat_minor": 0}


def noisy(source: str) -> str:
    """Return the cell of a5.2 with a warning, a progress bar and a magic."""
    return "%matplotlib inline\n" + source.replace("\n    row = torch.arange(length)", '''
    import sys, warnings
    warnings.warn("this prints a line")
    print("\\r1 of 3 |###   |", end="", file=sys.stderr)
    row = torch.arange(length)''')


def accidents() -> dict:
    """Return right work with another's line breaks, a cell of the shell, and helpers and output.

    Helpers stand in cells that are not run as they were handed in.
    """
    black = matrix.solved(PART)["a5-2-answer"].replace("(row + 1 - sinks - window) // group", """(
        (int(np.zeros(1)[0]) + row + 1 - sinks - window)
        % 2**40
    ).where(row + 1 > sinks + window, ZERO) // divisor(group)""")
    assert "divisor" in black
    notebook = handed_in.solved(PART, {"a5.2": noisy(black)})
    added = {"given-setup": "\nimport numpy as np\n", "a5-3-check": "\nZERO = 0\n",
             "a5-1-check": "\ndef divisor(x):\n    return x\n"}
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"]).replace("\n", "\r\n") + added.get(cell["id"], "")
    notebook["cells"].insert(3, cell_of("%%bash\nls | wc"))
    return notebook


def cell_of(source: str) -> dict:
    """Return a student's own cell."""
    return {"cell_type": "code", "id": "own", "source": source, "metadata": {}, "outputs": [],
            "execution_count": None}


def build(folder: Path, lab: Path) -> dict[str, tuple[float, float]]:
    """Write submissions into a folder and students.csv into `lab`.

    Returns for each student the points of a5.2 and of the whole assignment.
    """
    edited, whole = handed_in.solved(PART, {"a5.2": WRONG}), assignment_of(PART).points
    for cell in edited["cells"]:
        if cell["id"] in ("a5-2-check", "given-setup"):
            cell["source"] = "check = print\npoints = lambda *args: 6"
    class_ = {"ann": (handed_in.solved(PART, {"a5.2": OTHER}), 6, whole),
              "bob": (colab(), 6, whole),
              "cem": (handed_in.solved(PART), 0, 0),  # late
              "eve": (edited, 6 - LOST, whole - LOST), "fay": (handed_in.released(PART), 0, 0),
              "gus": ("This is no notebook.", 0, 0), "hal": (accidents(), 6, whole)}
    for student, (notebook, *_) in class_.items():
        if student == "hal":
            text, name = "\ufeff" + json.dumps(notebook), "Copy of a5 (1).ipynb"
        else:
            text, name = notebook, ""
        work = handed_in.hand_in(folder, student, PART, text, name)
        if student in ("ann", "cem"):
            day = 1 if student == "ann" else 2
            (work / "timestamp.txt").write_text(f"2026-10-0{day} 09:00:00.000000 UTC")
    (lab / "students.csv").write_text("id,first_name,last_name,email\n" + "".join(
        f"{student},{student.title()},X,\n" for student in [*class_, "dave"]))
    return {name: (some, whole) for name, (_, some, whole) in class_.items()} | {"dave": (0, 0)}


DUE = f'nbgrader db assignment add {assignment_of(PART).name} --duedate="2026-10-01 18:00 UTC"'
PENALTY = 'c.LateSubmissionPlugin.penalty_method = "zero"\n'
