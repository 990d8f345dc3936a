"""Who is in the class, and what a person's points make of marks."""

import csv
import io
from pathlib import Path
from typing import Any

from cca_lab.stored import read_text

STUDENTS = "students.csv"  # in the course's folder, as `nbgrader db student import` takes it
LATE = "late"  # beside the tasks of a submission: the points that nbgrader takes off for lateness
Record = dict[str, Any]  # as `grading` writes it
Given = dict[tuple[str, str], dict[str, float | None]]  # by student and assignment, then by task


def roster(course: Path) -> list[str]:
    """Return the names of the students' folders in `students.csv`; none if there is no such file.

    Raises:
        ValueError: if a line has no id.
    """
    path = course / STUDENTS
    if not path.exists():
        return []
    text = read_text(path, path.name).removeprefix("\ufeff")  # spreadsheets begin with a mark
    students = [(line.get("id") or "").strip() for line in csv.DictReader(io.StringIO(text))]
    if not all(students):
        raise ValueError(f"{path}: a line has no id; the first line names the columns, separated "
                         "by commas, and one of them is id")
    return students


def marked(records: list[Record], given: Given) -> list[Record]:
    """Return records with "mark", "texts" (None while they wait), "waiting" and "late".

    What a person gave in nbgrader counts in the place of our points, and "late" is what nbgrader
    took off. A mark is None if the grading failed: that is nobody's 0.
    """
    made = []
    for record in records:
        theirs = given.get((record["student"], record["assignment"]), {})
        tasks = [task | {"earned": score if (score := theirs.get(task["id"])) is not None
                         and not task["read"] else task["earned"],
                         "text": theirs.get(task["id"]) if task["read"] else None}
                 for task in record["tasks"]]
        texts = [task["text"] for task in tasks if task["read"]]
        read = [text for text in texts if text is not None]
        late = theirs.get(LATE) or 0.0
        earned = sum(task["earned"] for task in tasks) + sum(read) - late
        made.append(record | {
            "tasks": tasks, "late": late, "texts": sum(read) if read else None,
            "waiting": len(texts) - len(read) if record["status"] == "graded" else 0,
            "mark": None if record["status"] == "failed" else round(earned, 2)})
    return made


def notes(record: Record) -> list[str]:
    """Return what has to be said about a marked record beside its number."""
    about = {"absent": "absent", "refused": f"refused: {'; '.join(record['notes'])}",
             "failed": "the grader failed, grade again"}.get(record["status"])
    said = [about] if about else []
    if record["late"]:
        said.append(f"late, {record['late']:g} points lost")
    if record["waiting"]:
        said.append("texts to be read")
    return [f"{record['assignment']} {text}" for text in said]
