"""Points of a task: every property, checked on an answer, whoever runs the answer."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from cca_lab.course.tasks import Answer, Draw, GraderError, Mistake, Property, Task, clean

PUBLIC = "shown"  # the seed of the inputs that a cell uses


@dataclass(frozen=True)
class Finding:
    """What one property earned.

    Attributes:
        property: that was checked.
        earned: points.
        message: what is wrong, for the author of the answer; empty if nothing is.
        shown: the message came from inputs that a cell shows too.
        error: exception of the answer itself, if it raised one.
    """

    property: Property
    earned: float
    message: str = ""
    shown: bool = True
    error: BaseException | None = field(default=None, compare=False)

    @property
    def full(self) -> bool:
        """Return True if all points were earned."""
        return self.earned >= self.property.points


def findings(task: Task, answer: Answer, secret: str | None = None) -> Iterator[Finding]:
    """Yield what each property earned.

    Args:
        task: with its properties.
        answer: function or folder that is checked.
        secret: the instructor's seed; without it, only what a cell shows is checked. With it, a property earns the
            less of what it earns on the inputs that are shown and on those of the seed.
    """
    known = shown(task, answer)
    return iter(known.values()) if secret is None else unseen(task, answer, secret, known)


def shown(task: Task, answer: Answer) -> dict[str, Finding]:
    """Return what each property that is not hidden earned on the inputs that a cell shows, by its name."""
    return {part.name: _check(task, part, answer, Draw(PUBLIC, task.id, part.name))
            for part in task.properties if not part.hidden}


def unseen(task: Task, answer: Answer, secret: str, known: dict[str, Finding]) -> Iterator[Finding]:
    """Yield what each property earned, on the inputs of a seed too; arguments as for `findings`, and what is known."""
    for part in task.properties:
        found = known.get(part.name)
        if found is None or found.earned > 0:
            other = _check(task, part, answer, Draw(secret, task.id, part.name, secret=True), shown=False)
            found = other if found is None or other.earned < found.earned else found
        yield found


def _check(task: Task, part: Property, answer: Answer, draw: Draw, shown: bool = True) -> Finding:
    try:
        share = part.check(answer, draw)
    except Mistake as mistake:
        return Finding(part, 0.0, clean(str(mistake), 1200), shown)
    except GraderError:
        raise
    except NotImplementedError as error:
        return Finding(part, 0.0, f"{task.answer} is not written yet", shown, error)
    except Exception as error:  # the answer's own
        return Finding(part, 0.0, clean(f"{task.answer} raised {type(error).__name__}: {error}"), shown, error)
    if share is None:
        return Finding(part, float(part.points))
    return Finding(part, round(part.points * min(max(share.earned, 0.0), 1.0), 2), clean(share.message, 1200), shown)
