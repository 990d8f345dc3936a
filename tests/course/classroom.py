"""A class: one submission of every kind that is handed in, with the points that each must get.

Right, wrong and cheating answers by the dozen are judged in test_answers.py and test_grading.py.
Points are worked out by hand: those of the assignment (20) less what the mistake costs.
"""

import json
from pathlib import Path

from tests.course import handed_in, matrix
from tests.course.cheats import CHEATS, HEAD

PART = "a5"


def build(folder: Path) -> dict[str, float | None]:
    """Write the submissions, and return each student's points, None for one that is refused."""
    right, wrong = ({entry.what: entry for part, entry in entries if part == PART}
                    for entries in matrix.entries())
    points: dict[str, float | None] = {}

    def student(earned: float | None, notebook: dict | str, name: str = "") -> Path:
        who = f"s{len(points) + 1:02}"
        points[who] = earned
        return handed_in.hand_in(folder, who, PART, notebook, name)

    def instead(*lines: str) -> dict:
        return handed_in.solved(PART, {"a5.2": HEAD + "".join(f"    {line}\n" for line in lines)})

    student(20, handed_in.solved(PART, right[
        "loops instead of tensors, and another example"].cells))
    student(0, handed_in.released(PART))
    student(18, handed_in.solved(PART, matrix.spoilt(PART, wrong["one token of the future"])))
    for what in ("forge the printed result", "write the marks"):
        student(0, handed_in.filled(PART, {"a5.2": CHEATS[what]}))

    student(None, "")
    student(None, "This is no notebook.")
    student(None, json.dumps(handed_in.solved(PART)), "a5_cca.txt")
    student(20, handed_in.solved(PART), "Copy of a5 (final).ipynb")
    student(14, instead("while True:", "    pass"))
    student(14, instead("import os, signal", "os.kill(os.getpid(), 9)"))
    student(14, handed_in.solved(PART, {"a5.2": "while True:\n    pass\n"}))
    student(14, instead("hoard = []", "while True:", "    hoard.append(bytearray(10**8))"))
    student(14, instead("import os, time", "while True:", "    if os.fork() == 0:",
                        "        time.sleep(60)", "        os._exit(0)"))
    solution = matrix.solved(PART)["a5-2-answer"]
    noisy = solution.replace("    row = torch.arange(length)", '''
    import sys, warnings
    warnings.warn("this prints a line")
    for i in range(3):
        print(f"\\r{i} of 3 |###   |", end="", file=sys.stderr)
    print("done")
    row = torch.arange(length)''')
    student(20, handed_in.solved(PART, {"a5.2": "%matplotlib inline\n!pip --version\n" + noisy}))
    # accidents that cost nothing: a mark of Windows before the text, black's line breaks, a cell of
    # the shell, and helpers in cells that are not run as they were handed in
    black = solution.replace("(row + 1 - sinks - window) // group", """(
        (int(np.zeros(1)[0]) + row + 1 - sinks - window)
        % 2**40
    ).where(row + 1 > sinks + window, ZERO) // divisor(group)""")
    assert black != solution
    slips = handed_in.solved(PART, {"a5.2": black})
    added = {"given-setup": "\nimport numpy as np\n", "a5-3-check": "\nZERO = 0\n",
             "a5-1-check": "\ndef divisor(x):\n    return x\n"}
    for cell in slips["cells"]:
        cell["source"] = "".join(cell["source"]) + added.get(cell["id"], "")
    slips["cells"].insert(3, {"cell_type": "code", "id": "x", "source": "%%bash\nls | wc",
                              "metadata": {}, "outputs": [], "execution_count": None})
    (student(20, "\ufeff" + json.dumps(slips)) / "helper.py").symlink_to("/etc/hostname")
    gone = handed_in.solved(PART)
    gone["cells"] = [cell for cell in gone["cells"]
                     if cell["id"] not in ("a5-2-check", "given-setup", "a5-4-answer")]
    student(18, gone)
    edited = handed_in.solved(PART, matrix.spoilt(PART, wrong["one token of the future"]))
    for cell in edited["cells"]:
        if cell["id"] in ("a5-2-check", "given-setup"):
            cell["source"] = "check = print\npoints = lambda *args: 6"
    student(18, edited)
    return points
