"""The course's commands: check one's own work, grade a class, make what students open."""

from pathlib import Path
from typing import Annotated

import tyro

from cca_lab.files import course_folder
from cca_lab.options import Count

Course = Annotated[Path | None, tyro.conf.arg(name="course")]


def check(file: tyro.conf.Positional[Path], *, task: str | None = None,
          folder: Course = None) -> int:
    """Check your own work, on the inputs that the notebook shows too.

    Args:
        file: A notebook of the course.
        task: One task, such as a5.2; by default all.
        folder: The course's folder; by default lab/ of the clone.
    """
    from cca_lab.course import front

    return 0 if front.check_notebook(file, folder or course_folder(), task) else 1


def grade(submitted: tyro.conf.Positional[Path], *, only: str | None = None,
          jobs: Count | None = None, student: str | None = None, unsafe: bool = False,
          folder: Course = None) -> int:
    """Grade a class into nbgrader's database; what was graded before and did not change is kept.

    The seed of the inputs, and what was graded, stand in marks/ beside the submissions.

    Args:
        submitted: Submissions: STUDENT/a5_cca/a5_cca.ipynb. One notebook is graded and printed.
        only: One assignment, such as a5.
        jobs: Submissions at a time; by default half the cores.
        student: One student's folder, which is graded again; by default all that changed.
        unsafe: Grade without bubblewrap, too, where a submission owns this account: its files,
            and all marks.
        folder: The course's folder; by default lab/ of the clone.
    """
    from cca_lab.course import front

    course = folder or course_folder()
    if submitted.is_file():
        well = front.check_notebook(submitted, course, secret=True, unsafe=unsafe)
    else:
        well = front.grade_class(submitted, course, only, jobs, student=student, unsafe=unsafe)
    return 0 if well else 1


def release(*, only: str | None = None, folder: Course = None) -> None:
    """Make the notebooks that students open from the solved ones.

    Args:
        only: One assignment, such as a5.
        folder: The course's folder; by default lab/ of the clone.
    """
    from cca_lab.course import front

    front.make(folder or course_folder(), only)


def solutions(*, only: str | None = None, folder: Course = None) -> None:
    """Make notebooks with folded hints and solutions in lab/solutions/, to learn alone.

    Args:
        only: One assignment, such as a5.
        folder: The course's folder; by default lab/ of the clone.
    """
    from cca_lab.course import front

    front.make(folder or course_folder(), only, solved=True)
