"""Who is in the class and when work is due, and what that makes of points.

Both stand in the course's folder: `students.csv` in the format of `nbgrader db student import`, and
`deadlines.csv`. Without them nobody is missing or late.
"""

import csv
import io
import math
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from cca_lab.course.registry import assignment_of
from cca_lab.stored import read_text

STUDENTS, DEADLINES = "students.csv", "deadlines.csv"
Record = dict[str, Any]  # as `grading.RecordFile` says
Given = dict[tuple[str, str], dict[str, float | None]]  # by student and assignment, then by task


@dataclass(frozen=True)
class Deadline:
    """When an assignment is due, and what a day costs."""

    due: datetime
    percent: float  # of the points that were earned, for each day that has begun


@dataclass(frozen=True)
class Classlist:
    """The students by their folders' names, and deadlines by assignment and student ("": all)."""

    students: dict[str, dict[str, str]] = field(default_factory=dict)
    deadlines: dict[tuple[str, str], Deadline] = field(default_factory=dict)

    def late(self, record: Record) -> tuple[int, float]:
        """Return the days, begun ones included, that a record is late, and the share they cost."""
        deadline = self.deadlines.get((record["assignment"], record["student"]),
                                      self.deadlines.get((record["assignment"], "")))
        if deadline is None or "handed_in" not in record:
            return 0, 0.0
        over = datetime.fromisoformat(record["handed_in"]) - deadline.due
        days = max(0, math.ceil(over / timedelta(days=1)))
        return days, min(1.0, days * deadline.percent / 100)


def read(course: Path) -> Classlist:
    """Return the class of a course's folder; ValueError names what is wrong in its files."""
    students = {row["id"]: row for row in _rows(course / STUDENTS, "id")}
    deadlines = {}
    for row in _rows(course / DEADLINES, "assignment", "due", "percent"):
        try:
            name, due = assignment_of(row["assignment"]).name, datetime.fromisoformat(row["due"])
            if len(row["due"]) == len("2026-10-01"):  # the end of that day
                due += timedelta(days=1)
            deadline = Deadline(due.astimezone(), float(row["percent"]))
            if not 0 <= deadline.percent <= 100:
                raise ValueError(f"percent: got {row['percent']}, wanted 0 to 100")
        except ValueError as error:
            raise ValueError(f"{course / DEADLINES}: {error}; a line is such as "
                             "a5,2026-10-01 18:00,10") from error
        deadlines[name, row.get("student", "")] = deadline
    return Classlist(students, deadlines)


def _rows(path: Path, *needed: str) -> list[dict[str, str]]:
    """Return the lines of a table by its head, without spaces around; none if there is no file."""
    if not path.exists():
        return []
    text = read_text(path, path.name).removeprefix("\ufeff")  # spreadsheets begin with a mark
    lines = csv.DictReader(io.StringIO(text), restval="", skipinitialspace=True)
    rows = [{str(name).strip(): str(value).strip() for name, value in line.items()}
            for line in lines]
    for row in rows:
        if missing := [name for name in needed if not row.get(name)]:
            raise ValueError(f"{path}: a line has no {', '.join(missing)}, wanted the columns "
                             f"{', '.join(needed)}; write them into its first line")
    return rows


def marked(records: list[Record], people: Classlist, given: Given) -> list[Record]:
    """Return records with "mark", "texts" (None while they wait), "late" (days) and "lost".

    What a person gave in nbgrader counts in the place of our points. A mark is None if the grading
    failed: that is nobody's 0.
    """
    made = []
    for record in records:
        by_hand = given.get((record["student"], record["assignment"]), {})
        tasks = [task | {"earned": score if (score := by_hand.get(task["id"])) is not None
                         and not task["read"] else task["earned"],
                         "text": by_hand.get(task["id"]) if task["read"] else None}
                 for task in record["tasks"]]
        texts = [task["text"] for task in tasks if task["read"]]
        earned = sum(task["earned"] for task in tasks) + sum(text or 0.0 for text in texts)
        days, share = people.late(record)
        failed = record["status"] == "failed"
        made.append(record | {
            "tasks": tasks, "late": days, "lost": round(earned * share, 2),
            "texts": sum(text or 0.0 for text in texts) if any(
                text is not None for text in texts) else None,
            "waiting": sum(text is None for text in texts) if record["status"] == "graded" else 0,
            "mark": None if failed else round(earned * (1 - share), 2)})
    return made


def notes(record: Record) -> list[str]:
    """Return what has to be said about a marked record beside its number."""
    about = {"absent": "absent", "refused": f"refused: {'; '.join(record['notes'])}",
             "failed": "the grader failed, grade again"}.get(record["status"])
    said = [about] if about else []
    if record["late"]:
        days = "1 day" if record["late"] == 1 else f"{record['late']} days"
        said.append(f"{days} late, {record['lost']:g} points lost")
    if record["waiting"]:
        said.append("texts to be read")
    return [f"{record['assignment']} {text}" for text in said]
