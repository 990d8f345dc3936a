"""What the reader writes in notebook 04_dynamic_groups; rows, tokens and groups count from 0."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import need_items, plain
from cca_lab.course.exercise import equals, examples, forward, mistakes
from cca_lab.course.tasks import Answer, CourseTask, Draw
from cca_lab.course.turns.nb02 import causal

Rule = Callable[[int, list[int]], bool]  # whether a row does something with a group, by its members


# 04.2: importance
def importance(weights: Tensor) -> Tensor:
    """Return the mean of each column from the diagonal down."""
    return torch.stack([weights[t:, t].mean() for t in range(len(weights))])


def rounded(draw: Draw, tokens: int, row: int) -> tuple[Any, ...]:
    """Return weights of which a row gives all to token 0."""
    weights = causal(draw.normal(tokens, tokens, scale=2.0))
    weights[row] = torch.eye(tokens)[0]
    return (weights,)


# 04.4: what a row reads
def reads_of(row: int, focal: list[int], groups: list[list[int]], *,
             pooled: Rule = lambda i, members: members[-1] < i,
             raw: Rule = lambda i, members: members[0] <= i <= members[-1],
             ahead: int = 0) -> tuple[list[int], ...]:
    """Return focal tokens, numbers of groups and raw tokens of a row; the keywords are mistakes."""
    return ([t for t in focal if t <= row],
            [z for z, members in enumerate(groups) if pooled(row, members)],
            [t for members in groups if raw(row, members) for t in members if t <= row + ahead])


RULES: dict[str, dict[str, Any]] = {
    "a group is read as soon as one member is past: this reads the future":
        {"pooled": lambda i, G: G[0] <= i},
    "the last row of a group gets the group and its members: it counts them twice":
        {"pooled": lambda i, G: G[-1] <= i},
    "the last row of a group gets neither the group nor its members: it loses them, itself "
    "included": {"raw": lambda i, G: G[0] <= i < G[-1]},
    "the last row of a group reads the pooled group; Eq. 15 gives it the members":
        {"pooled": lambda i, G: G[-1] <= i, "raw": lambda i, G: G[0] <= i < G[-1]},
    "all members of the open group are read: those behind the row are its future":
        {"ahead": 10**6},
    "a row does not read itself": {"ahead": -1},
    "a focal row inside an open group does not get the members: it needs them too":
        {"raw": lambda i, G: i in G},
    "no members are read raw: the open group is lost": {"raw": lambda i, G: False}}


def in_order(answer: Answer) -> Answer:
    """Return an answer whose three lists are sorted."""
    def reads(*args: Any) -> Any:
        got = need_items(answer(*args), 3, "three lists: focal tokens, groups, raw tokens")
        return tuple(sorted(items) if isinstance(items, list) else items
                     for items in map(plain, got))

    return reads


Division = tuple[list[int], list[list[int]]]  # focal tokens, groups


def divided(length: int, group: int, focal: list[int]) -> Division:
    """Return a division of a text by its focal tokens."""
    others = [t for t in range(length) if t not in focal]
    return focal, [others[z : z + group] for z in range(0, len(others), group)]


def division(draw: Draw, length: int, group: int) -> Division:
    """Return a random division of a text into focal tokens and groups of one size."""
    count = length % group + group * draw.randint(0, length // group // 2)
    return divided(length, group, sorted(draw.sample(range(length), count)))


def divisions(draw: Draw) -> Iterator[tuple[int, Division]]:
    """Yield the example of the notebook, texts of one kind of token only, and random divisions."""
    yield 7, divided(7, 2, [0, 2, 5])
    yield 6, divided(6, 3, [])
    yield 4, divided(4, 2, [0, 1, 2, 3])
    for length, group in ((9, 2), (11, 3), (14, 3), (12, 4)):
        yield length, division(draw, length, group)


def every_row(draw: Draw) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield each row of each division."""
    for length, (focal, groups) in divisions(draw):
        for row in range(length):
            yield f"focal {focal}, groups {groups}, row {row}", (row, focal, groups)


# 04.5: the loops
def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, focal: list[int],
           groups: list[list[int]], *, judge: int = -1, even: bool = False, judged: float = 1.0,
           scored: float = 1.0, **rules: Any) -> Tensor:
    """Return DGA of one head, row by row; the keywords are mistakes, `rules` those of a row."""
    pooled = []
    for members in groups:
        scores = scale**judged * (k[members] @ q[members[judge]])
        weights = (scores * (not even)).softmax(0)
        pooled.append((weights @ k[members], weights @ v[members]))
    rows = []
    for i in range(len(q)):
        seen, closed, raw = reads_of(i, focal, groups, **rules)
        keys, values = (torch.cat([x[seen], *(pooled[z][side][None] for z in closed), x[raw]])
                        for side, x in enumerate((k, v)))
        rows.append((scale**scored * (keys @ q[i])).softmax(0) @ values)
    return torch.stack(rows)


def heads(draw: Draw) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield inputs for each division."""
    for length, (focal, groups) in divisions(draw):
        yield (f"{length} tokens, focal {focal}, groups {groups}",
               (*(draw.normal(length, 3) for _ in "qkv"), 0.7, focal, groups))


# 04.7: the table
def group_table(length: int, focal: list[int], groups: list[list[int]], *,
                closes: Rule = lambda i, members: members[-1] < i, order: int = 1,
                again: bool = False, back: bool = False, own: int = 0) -> Tensor:
    """Return the intervals of the columns [focal ; pooled ; raw]; the keywords are mistakes."""
    size = len(groups[0]) if groups else 0
    pooled, raw = order * len(focal), order * (len(focal) + len(groups))
    rows = []
    for i in range(length):
        closed = sum(closes(i, members) for members in groups)
        opened = sum(t <= i - own for t in groups[closed]) if closed < len(groups) else 0
        start, end = raw + closed * size, raw + closed * size + opened
        if back and start == end:
            start = end = 0
        rows.append([[0, sum(t <= i - own for t in focal)], [pooled, pooled + closed],
                     [raw if again else start, end]])
    return torch.tensor(rows)


def texts(draw: Draw) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield each division."""
    for length, (focal, groups) in divisions(draw):
        yield f"{length} tokens, focal {focal}, groups {groups}", (length, focal, groups)


TURNS: tuple[CourseTask, ...] = (
    CourseTask("04.2", "importance_of", "The importance of each token", 5, 2, (
        equals("the mean of a column over the rows that see it", importance,
               examples(lambda draw, tokens: (causal(draw.normal(tokens, tokens, scale=2.0)),),
                        3, 7, 12, 1),
               "the importance", wrong={
            "the column is divided by L; only L - t rows can see token t": lambda a: a.mean(0),
            "the column is only added up, and not divided": lambda a: a.sum(0),
            "the rows are added up, which always gives 1": lambda a: a.sum(1),
            "the mean of a row is taken; a token is a column": lambda a: a.mean(1),
            "the divisor is t + 1, the tokens that row t sees; it is L - t, the rows that see "
            "token t": lambda a: a.sum(0) / torch.arange(1, len(a) + 1),
            "the token's own row is not counted in the divisor":
                lambda a: a.sum(0) / torch.arange(len(a) - 1, -1, -1).clamp(min=1)}),
        equals("a weight that rounds to 0 counts too", importance, examples(rounded, (6, 4)),
               "the importance", wrong={
            "only weights above 0 are counted; a row sees a token also if its weight has rounded "
            "to 0": lambda a: a.sum(0) / (a > 0).sum(0).clamp(min=1)}))),
    CourseTask("04.4", "reads_of", "What a row of DGA reads", 8, 3, (
        equals("every past token once, and no later one", reads_of, every_row, "the focal tokens",
               "the groups", "the raw tokens", wrong=mistakes(reads_of, RULES)),), drive=in_order),
    CourseTask("04.5", "attend_groups", "DGA as loops", 15, 4, (
        equals("equal to the definition, row by row", attend, heads, "the output",
               why="does a row read nothing at all? Each reads at least its own token",
               wrong=mistakes(attend, RULES | {
            "members stay raw after their group has closed, and are read twice":
                {"raw": lambda i, G: True},
            "the first member judges; it is the last one, which has seen the whole group":
                {"judge": 0},
            "the judge's scores have no scale": {"judged": 0.0},
            "the rows' scores have no scale": {"scored": 0.0},
            "nobody judges: the groups are plain means": {"even": True}})),)),
    CourseTask("04.7", "group_table", "DGA as a table of intervals", 12, 4, (
        equals("the columns of the definition, moving forward", forward(group_table), texts,
               "the table", wrong=mistakes(group_table, {
            "the group of which a row is the last member counts as closed; the row reads it raw":
                {"closes": lambda i, G: G[-1] <= i},
            "pooled columns begin behind the focal ones, and raw ones behind both": {"order": 0},
            "members of closed groups are read raw too": {"again": True},
            "a row does not read its own token": {"own": 1},
            "moves back; where it is empty, let it wait where it is": {"back": True}})),),
               drive=forward),
)
