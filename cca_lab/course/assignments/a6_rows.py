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
    """Return the answer's table, bool (length, K + length).

    Raises:
        Mistake: if it is none, or if groups are never read pooled though some row should.
    """
    got = need_tensor(answer(length, groups, window), (length, len(groups) + length), "the table", "bool")
    if groups and groups[0][-1] + window < length and not got[:, : len(groups)].any():
        raise Mistake("no row reads a group pooled: that is full attention, not DGA")
    return got


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
    """Pooled groups are those behind the window."""
    for division in divisions(draw, 6):
        length, groups, window = division
        with case(named(*division)):
            got = table(answer, *division)[:, : len(groups)]
            wrong = got != pooled_from(length, groups, window)
            if wrong.any():
                row, number = wrong.nonzero()[0].tolist()
                how = ("reads group {} pooled, though its last member {} is one of the window's tokens or later"
                       if got[row, number] else "does not read group {} pooled, though its last member {} lies "
                       "behind the window")
                raise Mistake(f"row {row} " + how.format(number, groups[number][-1]))


def no_future(answer: Answer, draw: Draw) -> None:
    """No row reads a later token; and each reads at least itself."""
    for division in divisions(draw, 6):
        with case(named(*division)):
            counts = read_counts(table(answer, *division), division[1])
            if counts.triu(1).any():
                row, token = counts.triu(1).nonzero()[0].tolist()
                raise Mistake(f"row {row} reads token {token}, which comes later: is a group read before all of its "
                              "members are past, or are its members not cut at the row?")
            if not counts.diagonal().all():
                raise Mistake(f"row {int(counts.diagonal().argmin())} does not read its own token")


def once(answer: Answer, draw: Draw) -> None:
    """Every token of the past is read exactly once, for every set of focal tokens."""
    for division in divisions(draw, 9 if draw.secret else 6):
        with case(named(*division)):
            counts = read_counts(table(answer, *division), division[1])
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
        judge = q[members[0 if how == "first" else -1]] * (0 if how == "mean" else 1 if how == "unscaled" else scale)
        weights = (k[own] @ judge).softmax(0)
        keys.append(weights @ k[own])
        values.append(weights @ v[own])
    seen = torch.cat([pooled_from(len(q), groups, window), torch.ones(len(q), len(q), dtype=torch.bool).tril()], dim=1)
    for number, members in enumerate(groups):
        seen[:, [len(groups) + t for t in members]] &= ~seen[:, number, None]
    scores = (scale * q @ torch.stack([*keys, *k]).T).masked_fill(~seen, float("-inf"))
    return scores.softmax(-1) @ torch.stack([*values, *v])


def compared(answer: Answer, draw: Draw, large: float) -> None:
    """Compare outputs with the oracle."""
    kinds = {"a group's first member judges, instead of its last": "first", "all members weigh the same": "mean",
             "focal tokens between the members are pooled too": "slice",
             "the judge's scores are not scaled": "unscaled"}
    cases = [(1, [], 1), (4, [[1, 2]], 1), (5, [[1, 3]], 1), (8, [[1, 2, 5], [6]], 1), (9, [[0, 2], [3, 5], [7]], 2)]
    for length, groups, window in cases + divisions(draw, 4)[-3:]:
        q, k, v = draw.normal(length, 4, scale=large), draw.normal(length, 4), draw.normal(length, 3)
        with case(named(length, groups, window)):
            wanted = oracle(q, k, v, groups, window, 0.5)
            need_close(answer(q, k, v, groups, window, 0.5), wanted, "the output",
                       causes={why: oracle(q, k, v, groups, window, 0.5, how) for why, how in kinds.items()})


def attends(answer: Answer, draw: Draw) -> None:
    """Ordinary scores."""
    compared(answer, draw, 1.0)


def attends_large(answer: Answer, draw: Draw) -> None:
    """Scores of several thousand."""
    compared(answer, draw, 4000.0)
