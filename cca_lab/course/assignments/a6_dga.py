"""a6: Dynamic groups with a span and a local window, and a detector of leaks from the future.

The variant: token 0 is always focal and of equal scores the later token wins; a group stretches over at most `span`
tokens; a row reads a group pooled once all members lie before its `window` nearest tokens, and raw until then.
"""

import torch
from torch import Tensor

from cca_lab.course.assignments.a6_detect import caught, found_first, no_tiny_edit, vote_seen
from cca_lab.course.assignments.a6_groups import choose, cut, whole
from cca_lab.course.assignments.a6_leaks import CAUSAL_DIRECT, CAUSAL_OTHERS, CAUSAL_STEPS, DIRECT, OTHERS, STEPS
from cca_lab.course.assignments.a6_rows import attends, attends_large, behind_window, no_future, once
from cca_lab.course.compare import describe
from cca_lab.course.tasks import Answer, Assignment, Draw, Mistake, Property, Share, Task, case

# a6.1: by hand


def by_hand(answer: Answer, draw: Draw) -> Share | None:
    """Check what was worked out for one example."""
    got = answer()
    wanted: dict[str, list[object]] = {"groups": [[1, 2], [3], [6, 7], [8]], "pooled": [0, 1],
                                       "raw": [0, 4, 5, 6, 7, 8], "leaking rows": [1, 6]}
    if not isinstance(got, dict) or set(got) != set(wanted):
        raise Mistake(f"the result is {describe(got)}, wanted a dict with the keys {', '.join(wanted)}")

    def plain(value: object) -> object:
        value = value.tolist() if isinstance(value, Tensor) else value
        return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value

    wrong = [key for key in wanted if plain(got[key]) != wanted[key]]
    return Share(1 - len(wrong) / len(wanted), f"not right yet: {', '.join(wrong)}") if wrong else None


# a6.2: choice


def chosen(answer: Answer, scores: Tensor, every: int) -> None:
    """Compare the answer for some scores with sorting.

    Raises:
        Mistake: naming the example.
    """
    with case(f"scores {[round(x, 2) for x in scores.tolist()]}, every {every}"):
        got, wanted = whole(answer(scores, every), "the focal tokens"), choose(scores.tolist(), every)
        if got == wanted:
            return
        causes = {"of equal scores the earlier token wins": choose(scores.tolist(), every, later=False),
                  "token 0 has no place of its own": choose(scores.tolist(), every, first=False),
                  "token 0 is not counted in the number": choose(scores.tolist(), every, counted=False),
                  "the number is rounded down": choose(scores.tolist(), every, up=False),
                  "the tokens are not in ascending order": got if sorted(got) == wanted else None}
        ends = [f". This is what comes out when {cause}" for cause, other in causes.items() if got == other]
        raise Mistake(f"the focal tokens are {got}, wanted {wanted}{ends[0] if ends else ''}")


def choice_sizes(draw: Draw) -> list[tuple[int, int]]:
    """Return (length, every)."""
    if not draw.secret:
        return [(1, 3), (4, 2), (5, 2), (9, 3), (7, 1), (10, 20)]
    return sorted((draw.randint(1, 40), draw.randint(1, 8)) for _ in range(12)) + [(30, 10), (21, 4)]


def choice_distinct(answer: Answer, draw: Draw) -> None:
    """Scores without ties."""
    for length, every in choice_sizes(draw):
        chosen(answer, draw.normal(length).abs(), every)


def choice_ties(answer: Answer, draw: Draw) -> None:
    """Scores with many ties."""
    chosen(answer, torch.tensor([0.5, 0.2, 0.4, 0.2, 0.2], dtype=torch.float64), 2)
    for length, every in choice_sizes(draw):
        chosen(answer, draw.integers(1, 4, length).double() / 4, every)
    chosen(answer, torch.full((12,), 0.25, dtype=torch.float64), 3)


# a6.3: groups


def grouped(answer: Answer, draw: Draw, most_span: int | None) -> None:
    """Compare the groups of random sets of focal tokens with a loop.

    Args:
        answer: of the student.
        draw: of the inputs.
        most_span: the longest span; None for the length of the text, which closes no group.
    """
    cases = [(6, 2, [0, 3], 4), (7, 3, [0, 2, 3], 3), (5, 2, [0, 1, 2, 3, 4], 2), (9, 5, [0, 5, 6], 2),
             (9, 3, [0, 3, 4, 7], 4), (1, 2, [0], 1)]
    if draw.secret:
        cases = [(length, draw.randint(1, 5), sorted({0, *draw.sample(range(length), length // 3)}), 0)
                 for length in sorted(draw.randint(3, 30) for _ in range(12))]
    for length, group, focal, span in cases:
        span = length if most_span is None else span or draw.randint(1, most_span)
        with case(f"focal {focal}, length {length}, group {group}, span {span}"):
            got = answer(focal, length, group, span)
            if not isinstance(got, (list, tuple)):
                raise Mistake(f"the groups are {describe(got)}, wanted a list of lists")
            found, wanted = [whole(members, "a group") for members in got], cut(focal, length, group, span)
            if found == wanted:
                continue
            causes = {"the last group is lost when it is not full": [g for g in wanted if len(g) == group],
                      "groups may stretch over span + 1 tokens": cut(focal, length, group, span + 1),
                      "groups may stretch over span - 1 tokens only": cut(focal, length, group, max(1, span - 1)),
                      "the span counts from the last member of the group; it counts from the first":
                          cut(focal, length, group, span, start=-1),
                      "the span closes no group": cut(focal, length, group, length)}
            ends = " or when ".join(cause for cause, other in causes.items() if found == other)
            raise Mistake(f"the groups are {found}, wanted {wanted}"
                          + f". This is what comes out when {ends}" * bool(ends))


def groups_full(answer: Answer, draw: Draw) -> None:
    """Without a limit on the span."""
    grouped(answer, draw, None)


def groups_span(answer: Answer, draw: Draw) -> None:
    """With a limit."""
    grouped(answer, draw, 7)


ASSIGNMENT = Assignment("a6", "dga", "DGA without leaks, and a leak detector", ("06", "09"), (
    Task("a6.1", "by_hand", "Nine tokens by hand", 10, 1, 3, (Property("the numbers of the example", 2, by_hand),)),
    Task("a6.2", "choose_focal", "Which tokens are focal", 10, 2, 3, (
        Property("the highest scores are chosen", 1, choice_distinct),
        Property("of equal scores the later token wins", 1, choice_ties))),
    Task("a6.3", "cut_groups", "Groups that do not stretch too far", 15, 2, 3, (
        Property("full groups, and a short one at the end", 1, groups_full),
        Property("no group is longer than the span", 1, groups_span))),
    Task("a6.4", "reads", "What a row reads", 25, 3, 5, (
        Property("a group is pooled when its last member is before the window", 1, behind_window),
        Property("no row reads a later token", 1, no_future),
        Property("every earlier token is read exactly once", 1, once))),
    Task("a6.5", "attend", "One softmax over groups and tokens", 20, 3, 4, (
        Property("the output equals one matrix", 1, attends),
        Property("large scores do no harm", 1, attends_large))),
    Task("a6.6", "leaks", "A leak detector", 45, 4, 5, (
        Property("direct leaks are found", 2, caught(DIRECT, CAUSAL_DIRECT)),
        Property("leaks that appear at a step are found", 2, caught(STEPS, CAUSAL_STEPS)),
        Property("other leaks are found", 1, caught(OTHERS, CAUSAL_OTHERS), hidden=True))),
    Task("a6.7", "first_leak", "Where does it leak?", 20, 3, 4, (
        Property("the first leaking row and its token", 2, found_first),)),
    Task("a6.8", "late_vote", "A vote from the future", 35, 4, 4, (
        Property("a later token changes what a row reads", 1, vote_seen),
        Property("no tiny edit shows it", 1, no_tiny_edit))),
))
