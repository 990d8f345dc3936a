"""Answers of a known kind, made from the solved notebook.

Right but different, or wrong in one place.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Right:
    """Another right answer.

    Attributes:
        what: makes it different, such as "loops instead of tensors".
        cells: source by the task's id, such as "a5.2"; the other answers stay those of the solved
            notebook.
    """

    what: str
    cells: dict[str, str]


@dataclass(frozen=True)
class Wrong:
    """A plausible mistake.

    Attributes:
        what: the mistake, in a few words.
        task: id of the task whose answer is changed.
        old, new: what is replaced in the solved answer, once; or `old` is empty and `new` the whole
            cell.
        lost: points that the assignment loses, by the property's name; all other properties keep
            theirs.
        says: words of the message that the author gets.
    """

    what: str
    task: str
    old: str
    new: str
    lost: dict[str, float]
    says: str = ""
