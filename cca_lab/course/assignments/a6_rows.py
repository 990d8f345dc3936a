"""Checks of a6 for the rows: which groups and tokens they read, and the attention over both."""

import torch
from torch import Tensor

from cca_lab.course.assignments.a6_groups import cut, pooled_from
from cca_lab.course.compare import need_close, need_tensor
from cca_lab.course.tasks import Answer, Draw, Mistake, case

# a6.4: what a row reads


def divisions(draw: Draw, length: int) -> list[tuple[int, list[list[int]], int]]:
    """Return (length, groups, window) for every set of focal tokens of a short text, and some longer texts."""
    found = []
    for bits in range(2**length):
        focal = [token for token in range(length) if bits >> token & 1]
        span = draw.randint(2, length) if draw.secret else length
        found.append((length, cut(focal, length, 2 + bits % 2, span), draw.randint(1, 3) if draw.secret else 1))
    for longer in (11, 16, 23):
        focal = sorted(draw.sample(range(longer), longer // 3))
        found.append((longer, cut(focal, longer, draw.randint(1, 4), draw.randint(2, 6)), draw.randint(1, 6)))
    return sorted(found, key=lambda division: (division[0], len(division[1])))


def table(answer: Answer, length: int, groups: list[list[int]], window: int) -> Tensor:
    """Return the answer's table, bool (length, K + length); zeros and ones are taken for truth values.

    Raises:
        Mistake: if it is none.
    """
    got = answer(length, groups, window)
    if isinstance(got, Tensor) and ((got == 0) | (got == 1)).all():
        got = got.bool()
    return need_tensor(got, (length, len(groups) + length), "the table", "bool")


def all_counts(answer: Answer, found: list[tuple[int, list[list[int]], int]]) -> list[Tensor]:
    """Return `read_counts` of the answer's table of each division.

    Raises:
        Mistake: if the tables together are those of full attention, or almost empty.
    """
    counts, pooled = [], False
    for division in found:
        with case(named(*division)):
            seen = table(answer, *division)
        pooled |= bool(seen[:, : len(division[1])].any())
        counts.append(read_counts(seen, division[1]))
    if not pooled:
        raise Mistake(f"in {len(found)} examples no row reads a group pooled: that is full attention, not DGA")
    if 2 * sum(int((each > 0).tril().sum()) for each in counts) < sum(int((each >= 0).tril().sum()) for each in counts):
        raise Mistake("the rows read fewer than half of the tokens up to themselves")
    return counts


def read_counts(seen: Tensor, groups: list[list[int]]) -> Tensor:
    """Return how often each row reads each token, pooled or raw, (L, L)."""
    counts = seen[:, len(groups) :].long().clone()
    for number, members in enumerate(groups):
        counts[:, members] += seen[:, number, None].long()
    return counts


def named(length: int, groups: list[list[int]], window: int) -> str:
    """Return a division for a message."""
    return f"length {length}, groups {groups}, window {window}"


def behind_window(answer: Answer, draw: Draw) -> None:
    """Pooled groups are those before the window."""
    for division in divisions(draw, 6):
        length, groups, window = division
        with case(named(*division)):
            got = table(answer, *division)[:, : len(groups)]
            wrong = got != pooled_from(length, groups, window)
            if wrong.any():
                row, number = wrong.nonzero()[0].tolist()
                member = f"its last member {groups[number][-1]}"
                raise Mistake(f"row {row} must not read group {number} pooled yet: {member} is in the window or later"
                              if got[row, number] else
                              f"row {row} must read group {number} pooled: {member} lies before the window")


def no_future(answer: Answer, draw: Draw) -> None:
    """No row reads a later token."""
    found = divisions(draw, 6)
    for division, counts in zip(found, all_counts(answer, found), strict=True):
        with case(named(*division)):
            if counts.triu(1).any():
                row, token = counts.triu(1).nonzero()[0].tolist()
                raise Mistake(f"row {row} reads token {token}, which comes later: is a group read before all of its "
                              "members are past, or are its members not cut at the row?")


def once(answer: Answer, draw: Draw) -> None:
    """Every token of the past is read exactly once, for every set of focal tokens."""
    found = divisions(draw, 9 if draw.secret else 6)
    for division, counts in zip(found, all_counts(answer, found), strict=True):
        with case(named(*division)):
            wrong = (counts != 1).tril()
            if wrong.any():
                row, token = wrong.nonzero()[0].tolist()
                times = int(counts[row, token])
                why = ("is it focal, or in a group that is not pooled yet?" if times == 0 else
                       "both pooled and raw? A group that is pooled is not read through its members")
                raise Mistake(f"row {row} reads token {token} {times or 'no'} times: {why}")


# a6.5: attention


def oracle(q: Tensor, k: Tensor, v: Tensor, groups: list[list[int]], window: int, scale: float,
           how: str = "") -> Tensor:
    """Return the outputs by one masked matrix; `how` names a mistake to make."""
    keys, values = [], []
    for members in groups:
        own = list(range(members[0], members[-1] + 1)) if how == "slice" else members
        judge = q[members[0 if how == "first" else -1]] * (1 if how == "unscaled" else scale)
        weights = (k[own] @ judge).softmax(0)
        keys.append(k[own].mean(0) if how in ("mean", "mean key") else weights @ k[own])
        values.append(v[own].mean(0) if how in ("mean", "mean value") else weights @ v[own])
    shown = pooled_from(len(q), groups, window + (how == "late") - (how == "early"))
    seen = torch.cat([shown, torch.ones(len(q), len(q), dtype=torch.bool).tril()], dim=1)
    for number, members in enumerate(groups):
        seen[:, [len(groups) + t for t in members]] &= ~seen[:, number, None] | (how in ("twice", "raw"))
    seen[:, : len(groups)] &= how not in ("unread", "raw")
    seen |= how == "open"
    scores = ((1 if how == "bare" else scale) * q @ torch.stack([*keys, *k]).T).masked_fill(~seen, float("-inf"))
    return scores.softmax(-1) @ torch.stack([*values, *v])


def compared(answer: Answer, draw: Draw, large: float) -> None:
    """Compare outputs with the oracle."""
    kinds = {"a group's first member judges, instead of its last": "first", "all members weigh the same": "mean",
             "the group's key is the plain mean of its members' keys": "mean key",
             "the group's value is the plain mean of its members' values": "mean value",
             "focal tokens between the members are pooled too": "slice",
             "the judge's scores are not scaled": "unscaled", "the pooled columns are not read": "unread",
             "the members of a pooled group are read raw too": "twice",
             "no row reads a group pooled, as in full attention": "raw",
             "a group is pooled one row too late": "late", "a group is pooled one row too early": "early",
             "no column is masked": "open", "the rows' scores are not scaled": "bare"}
    kinds = kinds if large == 1 else {}  # with large scores one weight is 1, and many mistakes look alike
    why = ("scores are small, so this is no overflow: does a row read no column at all, or is -inf multiplied by 0?"
           if large == 1 else "scores are several thousand here, and exp of them is infinite: is the maximum "
           "subtracted before each exp, in the groups' weights too?")
    cases = [(1, [], 1), (5, [[1, 2]], 1), (5, [[1, 3]], 1), (8, [[1, 2, 5], [6]], 1), (9, [[0, 2], [3, 5], [7]], 2)]
    for length, groups, window in cases + divisions(draw, 4)[-3:]:
        q, k, v = draw.normal(length, 4, scale=large), draw.normal(length, 4), draw.normal(length, 3)
        with case(named(length, groups, window)):
            given = q, k, v, groups, window, 0.5
            need_close(answer(*given), oracle(*given), "the output", why=why, causes={
                cause: oracle(*given, how) for cause, how in kinds.items()})


def attends(answer: Answer, draw: Draw) -> None:
    """Ordinary scores."""
    compared(answer, draw, 1.0)


def attends_large(answer: Answer, draw: Draw) -> None:
    """Scores of several thousand."""
    try:
        compared(answer, draw, 4000.0)
    except Mistake:
        try:
            compared(answer, draw, 1.0)
        except Mistake:
            raise Mistake("the output is wrong with ordinary scores too, so this is no overflow: mend that "
                          "first") from None
        raise
