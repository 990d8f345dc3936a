"""Answers made from the solved notebook: right but different, or wrong in one place."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Right:
    """Another right answer."""

    what: str  # makes it different, such as "loops instead of tensors"
    cells: dict[str, str]  # by the task's id, such as "a5.2"; the other answers stay


@dataclass(frozen=True)
class Wrong:
    """A plausible mistake."""

    what: str  # the mistake, in a few words
    task: str  # whose answer is changed
    old: str  # what is replaced in the solved answer, once; if empty, `new` is the whole cell
    new: str
    lost: dict[str, float]  # points, by the property's name; all other properties keep theirs
    says: str = ""  # words of the message that the author gets
