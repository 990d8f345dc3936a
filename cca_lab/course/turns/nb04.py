"""What the reader writes in notebook 04_dynamic_groups; rows, tokens and groups count from 0."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import cause_of, describe, need_close, need_items
from cca_lab.course.tasks import Answer, CourseTask, Draw, Mistake, Property, case


# 04.2: importance
def _attention(draw: Draw, length: int) -> Tensor:
    """Return random weights of full causal attention, (L, L)."""
    later = torch.ones(length, length).triu(1).bool()
    return draw.normal(length, length, scale=2.0).masked_fill(later, float("-inf")).softmax(1)


def received(answer: Answer, draw: Draw) -> None:
    """Against the mean of each column from the diagonal down."""
    for length in (3, 7, 12, 1):
        attention = _attention(draw, length)
        wanted = torch.stack([attention[t:, t].mean() for t in range(length)])
        with case(f"{length} tokens"):
            need_close(answer(attention), wanted, "the importance", causes={
                "the column is divided by L; only L - t rows can see token t": attention.mean(0),
                "the column is only added up, and not divided": attention.sum(0),
                "the rows are added up, which always gives 1": attention.sum(1),
                "the mean of a row is taken; a token is a column": attention.mean(1),
                "the divisor is t + 1, the tokens that row t sees; it is L - t, the rows that see "
                "token t":
                    attention.sum(0) / torch.arange(1, length + 1),
                "the token's own row is not counted in the divisor":
                    attention.sum(0) / torch.arange(length - 1, -1, -1).clamp(min=1)})


def rounded(answer: Answer, draw: Draw) -> None:
    """Weights that are 0 although the row can see the token."""
    attention = _attention(draw, 6)
    attention[4] = torch.tensor([1.0, 0, 0, 0, 0, 0])
    wanted = torch.stack([attention[t:, t].mean() for t in range(6)])
    with case("a row of six tokens that gives all its weight to token 0"):
        need_close(answer(attention), wanted, "the importance", causes={
            "only weights above 0 are counted; a row sees a token also if its weight has rounded "
            "to 0":
                attention.sum(0) / (attention > 0).sum(0).clamp(min=1)})


# 04.4: what a row reads

Members = list[int]
Rule = Callable[[int, Members], bool]


def _reads(row: int, focal: list[int], groups: list[Members], *,
           pooled: Rule = lambda i, members: members[-1] < i,
           raw: Rule = lambda i, members: members[0] <= i <= members[-1],
           token: Callable[[int, int], bool] = lambda i, t: t <= i) -> list[list[int]]:
    """Return focal tokens, numbers of groups and raw tokens of a row, for given rules."""
    return [[t for t in focal if t <= row],
            [z for z, members in enumerate(groups) if pooled(row, members)],
            [t for members in groups if raw(row, members) for t in members if token(row, t)]]


WRONG_RULES: dict[str, dict[str, Any]] = {
    "a group is read as soon as one member is past: this reads the future":
        {"pooled": lambda i, G: G[0] <= i},
    "the last row of a group gets the group and its members: it counts them twice":
        {"pooled": lambda i, G: G[-1] <= i},
    "the last row of a group gets neither the group nor its members: it loses them, itself "
    "included":
        {"raw": lambda i, G: G[0] <= i < G[-1]},
    "the last row of a group reads the pooled group; Eq. 15 gives it the members":
        {"pooled": lambda i, G: G[-1] <= i, "raw": lambda i, G: G[0] <= i < G[-1]},
    "all members of the open group are read: those behind the row are its future":
        {"token": lambda i, t: True},
    "a row does not read itself": {"token": lambda i, t: t < i},
    "a focal row inside an open group does not get the members: it needs them too":
        {"raw": lambda i, G: i in G},
    "no members are read raw: the open group is lost": {"raw": lambda i, G: False},
}


def _three(got: Any) -> list[list[int]]:
    """Return the answer as three lists in ascending order."""
    need_items(got, 3, "three lists: focal tokens, groups, raw tokens")
    lists = [numbers.tolist() if isinstance(numbers, Tensor) else numbers for numbers in got]
    if not all(isinstance(numbers, (list, tuple)) and all(type(item) is int for item in numbers)
               for numbers in lists):
        raise Mistake("one of the three is no list of integers")
    return [sorted(numbers) for numbers in lists]


def reading(answer: Answer, draw: Draw) -> None:
    """Every row of the example in the notebook and of random divisions."""
    divisions = [(7, 2, [0, 2, 5])]
    for _ in range(6):
        group, groups = draw.randint(2, 4), draw.randint(1, 3)
        length = group * groups + draw.randint(1, 4)
        divisions.append((length, group,
                          sorted(draw.sample(range(length), length - group * groups))))
    for length, group, focal in divisions:
        others = [t for t in range(length) if t not in focal]
        groups_of = [others[first : first + group] for first in range(0, len(others), group)]
        got = [_three(answer(row, focal, groups_of)) for row in range(length)]
        wanted = [_reads(row, focal, groups_of) for row in range(length)]
        if got == wanted:
            continue
        row = next(row for row in range(length) if got[row] != wanted[row])
        side = next(side for side in range(3) if got[row][side] != wanted[row][side])
        what = ("the focal tokens", "the groups", "the raw tokens")[side]
        causes = {cause: [_reads(i, focal, groups_of, **rule) for i in range(length)]
                  for cause, rule in WRONG_RULES.items()}
        with case(f"focal {focal}, groups {groups_of}, row {row}"):
            raise Mistake(f"{what} are {got[row][side]}, wanted {wanted[row][side]}"
                          + cause_of(causes, got.__eq__))


# 04.7: importance from some rows
def sampled(answer: Answer, draw: Draw) -> None:
    """Against counting; tokens that no sampled row can see must be infinite."""
    for length, rows in [(4, [0, 2]), (9, [2, 5, 6]), (12, [11]), (10, [0, 1, 9])]:
        some, index = _attention(draw, length)[rows], torch.tensor(rows)
        seen_by = torch.tensor([sum(row >= t for row in rows) for t in range(length)])
        unseen, total = seen_by == 0, some.sum(0)
        with case(f"rows {rows} of {length} tokens"):
            got = answer(some, index)
            if not isinstance(got, Tensor) or got.shape != (length,) or not got.is_floating_point():
                raise Mistake(f"the result is {describe(got)}, wanted a tensor of {length} numbers")
            if not (got[unseen] == torch.inf).all():
                token = int((unseen & (got != torch.inf)).nonzero()[0])
                why = ("0/0 is not a number: give these tokens infinity" if got[token].isnan() else
                       "it was not measured, so it is kept: its score is infinity")
                raise Mistake(f"no sampled row can see token {token}, and its score is "
                              f"{describe(got[token].item())}: {why}")
            wanted = (total / seen_by)[~unseen]
            need_close(got[~unseen], wanted, "the scores", causes={
                "the divisor is the number of sampled rows; not all of them can see the token":
                    (total / len(rows))[~unseen],
                "the divisor is L - t, as if all rows were sampled":
                    (total / torch.arange(length, 0, -1))[~unseen],
                "row t is not counted for token t: a row sees its own token":
                    (total / torch.tensor([max(1, sum(row > t for row in rows))
                                           for t in range(length)]))[~unseen]})


TURNS: tuple[CourseTask, ...] = (
    CourseTask("04.2", "importance_of", "The importance of each token", 5, 2, 4, (
        Property("the mean of a column over the rows that see it", 1, received),
        Property("a weight that rounds to 0 counts too", 1, rounded))),
    CourseTask("04.4", "reads_of", "What a row of DGA reads", 8, 3, 5, (
        Property("every past token once, and no later one", 1, reading),)),
    CourseTask("04.7", "sampled_importance", "Importance from some rows", 5, 3, 3, (
        Property("divided by the sampled rows that see the token", 1, sampled),)),
)
