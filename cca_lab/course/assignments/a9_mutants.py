"""a9: tests that catch wrong implementations and pass right ones, whatever they look like inside."""

from collections.abc import Callable, Sequence
from typing import Any

from cca_lab.course.assignments import a9_caches, a9_cores, a9_samples, a9_softmax
from cca_lab.course.assignments.a9_judge import Entry, judge
from cca_lab.course.tasks import Answer, Assignment, Draw, Property, Share, Task


def kills(legal: Callable[..., tuple[Any, ...]], right: Sequence[Entry], mutants: Sequence[Entry],
          shown: bool) -> Callable[[Answer, Draw], Share | None]:
    """Return the check of a test on some implementations; arguments as for `judge`."""
    return lambda answer, draw: judge(answer, draw, legal, right, mutants, shown)


def both(name: str, points: tuple[int, int], legal: Callable[..., tuple[Any, ...]], right: Sequence[Entry],
         shown: Sequence[Entry], hidden: Sequence[Entry]) -> tuple[Property, Property]:
    """Return the properties of one test: mutants that are spoken of, and mutants that are not.

    Args:
        name: of what is tested, such as "merges".
        points: of the two.
        legal, right: as for `judge`.
        shown, hidden: mutants.
    """
    return (Property(f"wrong {name} are caught, right ones pass", points[0], kills(legal, right, shown, True)),
            Property(f"wrong {name} of other kinds are caught", points[1], kills(legal, right, hidden, False),
                     hidden=True))


def as_it_is(*args: Any) -> tuple[Any, ...]:
    """Return the arguments; the cache looks at them itself, for it knows its states."""
    return args


ASSIGNMENT = Assignment("a9", "mutants", "Kill the mutants: write the tests", ("01", "05", "13"), (
    Task("a9.1", "merge_is_right", "A test for the merge of two parts", 20, 2, 4, both(
        "merges", (1, 2), a9_softmax.legal_parts, a9_softmax.MERGE_RIGHT, a9_softmax.MERGE_SHOWN,
        a9_softmax.MERGE_HIDDEN)),
    Task("a9.2", "attention_is_right", "A test for attention in a window", 40, 3, 5, both(
        "attentions", (1, 3), a9_softmax.legal_attention, a9_softmax.ATTENTION_RIGHT, a9_softmax.ATTENTION_SHOWN,
        a9_softmax.ATTENTION_HIDDEN)),
    Task("a9.3", "intervals_are_right", "A test for intervals of columns", 20, 2, 5, both(
        "tables", (1, 2), a9_cores.legal_sizes, a9_cores.TABLE_RIGHT, a9_cores.TABLE_SHOWN, a9_cores.TABLE_HIDDEN)),
    Task("a9.4", "pool_is_right", "A test for the cores of groups", 25, 3, 4, both(
        "cores", (1, 2), a9_cores.legal_pool, a9_cores.POOL_RIGHT, a9_cores.POOL_SHOWN, a9_cores.POOL_HIDDEN)),
    Task("a9.5", "step_is_right", "A test for a step of a cache", 40, 4, 5, both(
        "caches", (1, 3), as_it_is, a9_caches.CACHE_RIGHT, a9_caches.CACHE_SHOWN, a9_caches.CACHE_HIDDEN)),
    Task("a9.6", "sample_is_right", "A test for something random", 35, 5, 4, both(
        "samplers", (1, 2), a9_samples.legal_sample, a9_samples.SAMPLE_RIGHT, a9_samples.SAMPLE_SHOWN,
        a9_samples.SAMPLE_HIDDEN)),
), seconds=40.0)
