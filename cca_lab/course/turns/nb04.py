"""What the reader writes in notebook 04_dynamic_groups; rows, tokens and groups count from 0."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import cause_of, describe, need_close, need_items, need_tensor
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


# 04.9: importance from some rows
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


# 04.5: the loops
Division = tuple[list[int], list[list[int]]]  # focal tokens, groups
Shows = Callable[[int, list[int]], bool]  # whether a row reads a group, by its members


def _division(draw: Draw, length: int, group: int) -> Division:
    """Return a random division of a text into focal tokens and groups of one size."""
    count = length % group + group * draw.randint(0, length // group // 2)
    focal = sorted(draw.sample(range(length), count))
    others = [t for t in range(length) if t not in focal]
    return focal, [others[z : z + group] for z in range(0, len(others), group)]


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, focal: list[int],
           groups: list[list[int]], *, judge: int = -1, even: bool = False,
           shows: Shows = lambda i, members: members[-1] < i,
           raw: Shows = lambda i, members: members[0] <= i <= members[-1]) -> Tensor:
    """Return DGA of one head, row by row; the options are mistakes."""
    pooled = []
    for members in groups:
        weights = (scale * (k[members] @ q[members[judge]]) * (not even)).softmax(0)
        pooled.append((weights @ k[members], weights @ v[members]))
    rows = []
    for i in range(len(q)):
        tokens = [t for t in focal if t <= i]
        tokens += [t for members in groups if raw(i, members) for t in members if t <= i]
        read = [pair for pair, members in zip(pooled, groups, strict=True) if shows(i, members)]
        keys = torch.stack([*(key for key, _ in read), *k[tokens], k[0] * 0])[:-1]
        values = torch.stack([*(value for _, value in read), *v[tokens], v[0] * 0])[:-1]
        rows.append((scale * (keys @ q[i])).softmax(0) @ values)
    return torch.stack(rows)


def check_loops(answer: Answer, draw: Draw) -> None:
    """The example's division first, then random ones, one without focal tokens."""
    divisions = [(7, ([0, 2, 5], [[1, 3], [4, 6]])), (6, ([], [[0, 1, 2], [3, 4, 5]])),
                 (4, ([0, 1, 2, 3], [])),
                 *((n, _division(draw, n, m)) for n, m in ((11, 3), (9, 2)))]
    for length, (focal, groups) in divisions:
        q, k, v = (draw.normal(length, 3) for _ in "qkv")
        given = (q, k, v, 0.7, focal, groups)
        causes = {
            "a group is shown as soon as any member is visible: it reads the future":
                attend(*given, shows=lambda i, members: members[0] <= i,
                       raw=lambda i, members: False),
            "the last row of a group reads it pooled and raw, so each member twice":
                attend(*given, shows=lambda i, members: members[-1] <= i),
            "the members of the open group are left out":
                attend(*given, raw=lambda i, members: False),
            "members stay raw after their group has closed, and are read twice":
                attend(*given, raw=lambda i, members: True),
            "the first member judges; it is the last one, which has seen the whole group":
                attend(*given, judge=0),
            "nobody judges: the groups are plain means": attend(*given, even=True),
        }
        with case(f"{length} tokens, focal {focal}, groups {groups}"):
            need_close(answer(*given), attend(*given), "the output", causes=causes,
                       why="does a row read nothing at all? Each reads at least its own token")


# 04.7: the table
def check_table(answer: Answer, draw: Draw) -> None:
    """Each row's columns, against the definition; intervals that the primitive accepts."""
    for length, (focal, groups) in [(7, ([0, 2, 5], [[1, 3], [4, 6]])),
                                    (6, ([], [[0, 1, 2], [3, 4, 5]])), (3, ([0, 1, 2], [])),
                                    *((n, _division(draw, n, m)) for n, m in ((14, 3), (12, 4)))]:
        size, first_raw = len(groups[0]) if groups else 0, len(focal) + len(groups)
        with case(f"{length} tokens, focal {focal}, groups {groups}"):
            table = need_tensor(answer(length, focal, groups), (length, 3, 2), "the table", "int")
            for row, intervals in enumerate(table.tolist()):
                closed = [z for z, members in enumerate(groups) if members[-1] < row]
                wanted = ([n for n, t in enumerate(focal) if t <= row],
                          [len(focal) + z for z in closed],
                          [first_raw + z * size + n for z, members in enumerate(groups)
                           if members[0] <= row <= members[-1]
                           for n, t in enumerate(members) if t <= row])
                for kind, (low, high), columns in zip(("focal", "pooled", "raw"), intervals, wanted,
                                                      strict=True):
                    if low > high:
                        raise Mistake(f"row {row}: the {kind} interval [{low}, {high}) ends before "
                                      "it starts; an empty one ends where it starts")
                    if list(range(low, high)) != columns:
                        raise Mistake(
                            f"row {row}: the {kind} interval is [{low}, {high}), wanted the "
                            f"columns {columns}"
                            + _why(kind, row, low, high, closed, groups, len(focal)))
            back = (table.diff(dim=0) < 0).nonzero().tolist()
            if back:
                row, kind_number, _ = back[0]
                raise Mistake(f"row {row + 1}: the {('focal', 'pooled', 'raw')[kind_number]} "
                              "interval moves back; where it is empty, let it wait where it is, or "
                              "where the next group begins")


def _why(kind: str, row: int, low: int, high: int, closed: list[int], groups: list[list[int]],
         focal: int) -> str:
    """Return the end of a message about a wrong interval, if its cause is known."""
    later = sum(members[-1] <= row for members in groups)
    causes = {
        "the group of which this row is the last member counts as closed; the row reads it raw":
            kind == "pooled" and high - low == later > len(closed),
        "pooled columns begin behind the focal ones, and raw ones behind both":
            kind != "focal" and low < focal,
        "members of closed groups are read raw too":
            kind == "raw" and bool(closed) and low == focal + len(groups),
    }
    return cause_of(causes, bool)


def check_rungs(answer: Answer, draw: Draw) -> None:
    """Attention with the table, on every rung that runs here, against the loop."""
    from cca_lab.attention import interval_attention
    from cca_lab.attention.fused import interpreted

    q, k, v = (draw.normal(20, 16) for _ in "qkv")
    focal, groups = _division(draw, 20, 3)
    others = [t for members in groups for t in members]
    keys, values = [], []
    for members in groups:
        weights = (k[members] @ q[members[-1]] / 4).softmax(0)
        keys.append(weights @ k[members])
        values.append(weights @ v[members])
    columns = [torch.cat([x[focal], torch.stack(pooled), x[others]])[None, None]
               for x, pooled in ((k, keys), (v, values))]
    wanted = attend(q, k, v, 0.25, focal, groups)
    table = answer(20, focal, groups)[None, None].long()  # (1, 1, L, 3, 2)
    for backend in ("dense", "blocked", *(["triton"] if interpreted() else [])):
        dtype = torch.float32 if backend == "triton" else torch.float64
        # float32: 16 products and up to 20 weights are added, and rounded once each
        tolerance = 36 * torch.finfo(dtype).eps if backend == "triton" else 1e-12
        with case(f"backend {backend}"):
            got = interval_attention(q[None, None].to(dtype), columns[0].to(dtype),
                                     columns[1].to(dtype), table, backend=backend)
            need_close(got[0, 0].to(wanted), wanted, "the output", tolerance=tolerance)


TURNS: tuple[CourseTask, ...] = (
    CourseTask("04.2", "importance_of", "The importance of each token", 5, 2, 4, (
        Property("the mean of a column over the rows that see it", 1, received),
        Property("a weight that rounds to 0 counts too", 1, rounded))),
    CourseTask("04.4", "reads_of", "What a row of DGA reads", 8, 3, 5, (
        Property("every past token once, and no later one", 1, reading),)),
    CourseTask("04.5", "attend_groups", "DGA as loops", 15, 4, 5, (
        Property("equal to the definition, row by row", 1, check_loops),)),
    CourseTask("04.7", "group_table", "DGA as a table of intervals", 12, 4, 5, (
        Property("the columns of the definition, moving forward", 1, check_table),
        Property("every rung that runs here equals the loop", 1, check_rungs))),
    CourseTask("04.9", "sampled_importance", "Importance from some rows", 5, 3, 3, (
        Property("divided by the sampled rows that see the token", 1, sampled),)),
)
