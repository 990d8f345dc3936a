"""What the reader writes in notebook 06: H2O's eviction and a table of intervals."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.exercise import equals, examples, forward, mistakes
from cca_lab.course.tasks import CourseTask, Draw


# 06.2: which tokens H2O keeps
def kept_places(scores: Sequence[float], heavy: int, recent: int, *, old_wins: bool = False,
                lightest: bool = False, in_order: bool = True, all_choose: bool = False,
                last: bool = True) -> list[int]:
    """Return the tokens that are kept; the keywords are mistakes."""
    older = range(max(0, len(scores) - recent))
    sign, chosen_of = 1 if lightest else -1, range(len(scores)) if all_choose else older
    chosen = sorted(chosen_of, key=lambda t: (sign * scores[t], t if old_wins else -t))[:heavy]
    newest = [t for t in range(len(older), len(scores)) if t not in chosen] if last else []
    return sorted([*chosen, *newest]) if in_order else [*chosen, *newest]


def scored(draw: Draw, scores: list[float], heavy: int, recent: int) -> tuple[Any, ...]:
    """Return scores, as H2O has added them up, and what is kept."""
    return list(scores), heavy, recent


SCORES = (([1.43, 1.47, 0.10], 1, 1), ([2.0, 0.5, 3.0, 1.0, 2.5], 2, 1),
          ([3.0, 1.0, 2.0, 5.0, 4.0, 0.2], 2, 2), ([1.0, 2.0], 3, 2), ([4.0], 1, 1),
          ([3.0, 2.0, 1.0], 0, 2), ([3.0, 1.0, 2.0], 2, 0), ([1.0, 3.0, 1.0, 2.0, 9.0], 2, 1),
          ([1.0, 1.0, 1.0, 1.0, 9.0], 2, 1), ([0.3, 4.1, 2.2, 0.7, 3.9, 1.8, 2.6, 0.4], 3, 3))


def all_of_zero(scores: Sequence[float], heavy: int, recent: int) -> list[int]:
    """Return what scores[-recent:] keeps."""
    places = range(len(scores))
    heaviest = sorted(places[:-recent], key=lambda t: (-scores[t], -t))[:heavy]
    return sorted([*heaviest, *places[-recent:]])


# 06.6: the intervals of StreamingLLM
def window_table(length: int, sinks: int, recent: int, *, first: int = 0, behind: bool = True,
                 end: int = 1, with_sinks: bool = True, cut: bool = True) -> Tensor:
    """Return the intervals of sinks and recent tokens, (L, 2, 2); the keywords are mistakes."""
    rows = []
    for i in range(length):
        start = max(sinks if behind else 0, i - recent + first)
        start = min(start, i + min(end, 1)) if cut else start
        rows.append([[0, min(sinks, i + 1) * with_sinks], [start, i + end]])
    return torch.tensor(rows)


TURNS: tuple[CourseTask, ...] = (
    CourseTask("06.2", "kept_places", "Which tokens H2O keeps", 6, 2, (
        equals("the recent ones, and the heaviest of the others", kept_places,
               examples(scored, *SCORES), "the list of places", wrong=mistakes(kept_places, {
            "the recent tokens take part in the choice of the heavy ones; those are chosen from "
            "the others": {"all_choose": True},
            "the lightest are kept, and the heaviest leave": {"lightest": True},
            "of equal scores the newer leaves; in H2O here it is the older": {"old_wins": True},
            "the places are in the order of their scores; they belong in the order of the text":
                {"in_order": False},
            "only the heavy ones are returned": {"last": False}}) | {
            "a recent token is chosen a second time; the heavy ones are chosen from the others":
                lambda scores, heavy, recent: sorted([
                    *kept_places(scores, heavy, 0), *kept_places(scores, 0, recent)]),
            "the recent tokens are not kept whatever their score": lambda scores, heavy, recent:
                kept_places(scores, heavy + recent, 0),
            "the scores are returned; their places are wanted": lambda scores, heavy, recent:
                [scores[t] for t in kept_places(scores, heavy, recent)],
            "scores[-0:] is the whole list": all_of_zero}),)),
    CourseTask("06.6", "window_table", "StreamingLLM as a table of intervals", 10, 3, (
        equals("the tokens of the definition, each once", forward(window_table),
               examples("tokens sinks recent",
                        (8, 1, 2), (6, 0, 0), (9, 3, 4), (5, 8, 1), (1, 2, 2), (12, 2, 20)),
               "the table", wrong=mistakes(window_table, {
            "a sink in the window is read twice; start the recent ones behind the sinks":
                {"behind": False},
            "the row's own token is counted among the recent ones; here it comes on top of them":
                {"first": 1},
            "ends before it starts": {"cut": False},
            "the interval ends one token late, in the future of the row": {"end": 2},
            "the interval ends before the row's own token": {"end": 0},
            "the sinks are left out": {"with_sinks": False}})),), drive=forward),
)
