"""The course's commands: check one's own work, grade a class, make what students open."""

from pathlib import Path
from typing import Annotated

import typer

from cca_lab.cli.command import App

course = App(name="course", no_args_is_help=True,
             help="Check, grade and make the assignments in lab/.")

Only = Annotated[str | None, typer.Option(metavar="ASSIGNMENT", help="One assignment, such as a5.",
                                          show_default="all")]
Course = Annotated[Path | None, typer.Option("--course", help="The course's folder.",
                                             show_default="lab/ of the clone")]
File = Annotated[Path, typer.Argument(help="A notebook of the course.")]
Task = Annotated[str | None, typer.Option(help="One task, such as a5.2.", show_default="all")]
Submitted = Annotated[Path, typer.Argument(metavar="FOLDER",
                                           help="Submissions: STUDENT/a5_cca/a5_cca.ipynb.")]
Marks = Annotated[Path | None, typer.Option(help="Folder for marks and pages.",
                                            show_default="marks/ beside FOLDER")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Submissions at a time.",
                                          show_default="half the cores")]
Gradebook = Annotated[Path | None, typer.Option(help="nbgrader's database: marks go into it, and a "
                                                "person's points come from it.")]
Graded = Annotated[Path, typer.Argument(metavar="MARKS", help="The folder that `grade` wrote.")]
Student = Annotated[str | None, typer.Option(help="One student's folder, which is graded again.",
                                             show_default="all that changed")]
Unsafe = Annotated[bool, typer.Option("--unsafe", help="Grade without bubblewrap, too, where a "
                                      "submission owns this account: its files, and all marks.")]
Feedback = Annotated[Path | None, typer.Option(help="Copy each student's page to FOLDER/STUDENT/.",
                                               metavar="FOLDER")]
Check = Annotated[bool, typer.Option("--check",
                                     help="Write nothing; fail if something is not current.")]


@course.command()
def check(file: File, task: Task = None, folder: Course = None) -> int:
    """Check your own work, on the inputs that the notebook shows too."""
    from cca_lab.course import front
    from cca_lab.files import course_folder

    whole = front.check_file(file, folder or course_folder(), task)
    return 0 if whole else 1


@course.command()
def grade(submitted: Submitted, out: Marks = None, only: Only = None, jobs: Jobs = None,
          gradebook: Gradebook = None, student: Student = None, unsafe: Unsafe = False,
          folder: Course = None) -> int:
    """Grade a class; what was graded before and did not change is kept.

    Who is missing is told by students.csv in the course's folder.
    """
    from cca_lab.course import front
    from cca_lab.files import course_folder

    named = submitted.name not in ("", "..")  # beside "." is outside it
    beside = (submitted if named else submitted.resolve()).parent / "marks"
    whole = front.grade_class(submitted, out or beside,
                              folder or course_folder(), only, jobs, gradebook,
                              student=student, unsafe=unsafe)
    return 0 if whole else 1


@course.command()
def report(out: Graded, gradebook: Gradebook = None, feedback: Feedback = None,
           folder: Course = None) -> None:
    """Write the tables and pages again from what was graded, and hand the pages back."""
    from cca_lab.course import front
    from cca_lab.files import course_folder

    front.write_reports(out, folder or course_folder(), gradebook, feedback)


@course.command()
def release(only: Only = None, check: Check = False, folder: Course = None) -> int:
    """Make the notebooks that students open from the solved ones."""
    from cca_lab.course import front
    from cca_lab.files import course_folder

    current = front.make_release(folder or course_folder(), only, check=check)
    return 0 if current else 1


@course.command()
def solutions(only: Only = None, folder: Course = None) -> None:
    """Make notebooks with folded hints and solutions in lab/solutions/, to learn alone."""
    from cca_lab.course import front
    from cca_lab.files import course_folder

    front.make_solutions(folder or course_folder(), only)

