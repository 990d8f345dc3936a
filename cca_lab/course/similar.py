"""How much of two submissions is the same code, however variables are named and lines are set.

What stands in the released notebook does not count, nor what most of a class wrote. A short task
has few right answers, so two honest ones can be alike: a number is a reason to look, no more.
"""

import csv
from collections import Counter
from dataclasses import astuple, dataclass
from itertools import combinations
from pathlib import Path

from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Name, String, Text

from cca_lab.course import grading
from cca_lab.files import replacing

RUN = 12  # tokens that follow each other
FEWEST = 40  # runs of a submission that can be compared
LONGEST = 200_000  # characters of a submission that are compared
SHARE = 0.5  # from which on a pair stands in the table
SOLVED = "the solved notebook"  # which is public, and compared like a student's


@dataclass(frozen=True)
class Pair:
    """Two submissions, and the share of the shorter one that stands in the other."""

    assignment: str
    student: str
    other: str
    share: float


def write(submitted: Path, course: Path, path: Path) -> list[Pair]:
    """Compare all submissions of each assignment; write and return the pairs, closest first."""
    pairs = []
    entries = grading.submissions(submitted)
    for part in dict.fromkeys(part for _, part, _ in entries):
        file = Path(part.name, f"{part.name}.ipynb")
        given = runs(code_of(course / "release" / file)) | runs(code_of(course / grading.ADAPTERS))
        codes = {name: code_of(work) for name, each, folder in entries if each == part
                 if (work := grading.work_in(part, folder))}
        codes[SOLVED] = code_of(course / "source" / file)
        pairs += [Pair(part.name, *pair) for pair in alike(codes, given)]
    pairs.sort(key=lambda pair: -pair.share)
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as table:
        csv.writer(table, lineterminator="\n").writerows(
            [["assignment", "student", "other", "share"], *map(astuple, pairs)])
    return pairs


def code_of(path: Path) -> str:
    """Return the code of a notebook or a Python file; none of one that cannot be read."""
    try:
        if path.name == grading.ADAPTERS:
            return grading.plain_text(path)[:LONGEST]
        return "\n".join(cell["source"] for cell in grading.notebook(path))[:LONGEST]
    except (grading.Refused, OSError):
        return ""


def alike(codes: dict[str, str], given: frozenset[int]) -> list[tuple[str, str, float]]:
    """Return the pairs of names whose codes share `SHARE` or more of what is not `given`."""
    prints = {name: runs(code) - given for name, code in codes.items()}
    usual = Counter(run for found in prints.values() for run in found)
    most = max(3, len(prints) / 2)
    prints = {name: frozenset(run for run in found if usual[run] <= most)
              for name, found in prints.items()}
    shares = ((one, other, round(len(prints[one] & prints[other])
                                 / min(len(prints[one]), len(prints[other])), 2))
              for one, other in combinations(prints, 2)
              if min(len(prints[one]), len(prints[other])) >= FEWEST)
    return [pair for pair in shares if pair[2] >= SHARE]


def runs(code: str) -> frozenset[int]:
    """Return every run of `RUN` tokens; names count only after a dot, texts and comments never."""
    words = [""]
    for kind, text in PythonLexer().get_tokens(code):
        if kind in Comment or kind in Text or kind in String.Doc:
            continue
        plain = kind in Name and kind not in Name.Builtin and words[-1] != "."
        words.append("name" if plain else "text" if kind in String else text)
    return frozenset(hash(tuple(words[at:at + RUN])) for at in range(1, len(words) - RUN + 1))
