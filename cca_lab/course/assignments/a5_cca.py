"""a5: CCA-Attention with a third interval. Which columns each row reads, how often, in blocks, and at what cost.

The variant: the first `sinks` tokens stay raw for every row, groups begin after them. Row i then reads the cores of
n(i) = max(0, floor((i + 1 - sinks - window) / group)) groups.
"""

from torch import Tensor

from cca_lab.course.assignments.a5_tables import (
    blocked_large,
    blocked_reads,
    blocked_right,
    cores_of,
    name,
    no_future,
    once,
    reads,
    right_table,
    sizes,
    window_size,
)
from cca_lab.course.compare import describe, need_equal, need_number, need_same
from cca_lab.course.tasks import Answer, Assignment, Draw, Mistake, Property, Share, Task, case

# a5.1: by hand


def by_hand(answer: Answer, draw: Draw) -> Share | None:
    """Check the numbers that were worked out for one example."""
    got = answer()
    wanted: dict[str, object] = {"cores": 2, "raw": [0, 7, 8, 9], "first row with a core": 5, "most raw tokens": 5}
    if not isinstance(got, dict) or set(got) != set(wanted):
        raise Mistake(f"the result is {describe(got)}, wanted a dict with the keys {', '.join(wanted)}")
    raw = got["raw"].tolist() if isinstance(got["raw"], Tensor) else got["raw"]
    if not isinstance(raw, (list, tuple)):
        raise Mistake(f"raw is {describe(raw)}, wanted a list of tokens")
    got = got | {"raw": list(raw)}
    wrong = [key for key in wanted if got[key] != wanted[key]]
    return Share(1 - len(wrong) / len(wanted), f"not right yet: {', '.join(wrong)}") if wrong else None


# a5.3 and a5.4: read counts and a counterexample


def counted(answer: Answer, draw: Draw) -> None:
    """The counts of right tables and of wrong ones."""
    for size in sizes(draw):
        good, cores = right_table(*size)
        shifted = good.clone()
        shifted[:, 2, 0] = (shifted[:, 2, 0] - 1).clamp(min=cores)
        for intervals, what in ((good, "a right table"), (shifted, "windows that start one column early")):
            with case(f"{name(*size)}, {what}"):
                inside, raw = reads(intervals, size)
                need_same(answer(intervals, *size), inside + raw, "counts",
                          causes={"tokens inside cores are not counted": raw, "raw tokens are not counted": inside,
                                  "a token is read or not, instead of how often": (inside + raw).clamp(max=1)})


def printed(answer: Answer, draw: Draw) -> None:
    """The example must break Eq. 4 as printed: a token that is read twice or never."""
    got = answer()
    keys = ("group", "window", "row", "token")
    if not isinstance(got, dict) or set(got) != set(keys) or not all(type(got[key]) is int for key in keys):
        raise Mistake(f"the result is {describe(got)}, wanted a dict of the integers {', '.join(keys)}")
    g, s, i, t = (got[key] for key in keys)
    if g < 3 or s < 1 or s % g == 0:
        raise Mistake(f"group {g}, window {s}: wanted a group of 3 or more that does not divide the window")
    if not 1 <= t <= i <= 10**6:
        raise Mistake("wanted 1 <= token <= row <= 1000000, counted from 1 as in the paper")
    times = int(t <= g * max(0, (i - s) // g)) + int(t >= max(1, i - s - (i - s) % g))
    if times == 1:
        raise Mistake(f"with group {g} and window {s}, row {i} reads token {t} exactly once by the printed formulas; "
                      "look near the border between the cores and the window")


# a5.6 and a5.7: cost


def pairs_of(length: int, sinks: int, group: int, window: int) -> int:
    """Return how many columns all rows read together, in closed form."""
    raw_only = min(length, sinks + window + group - 1)
    total = raw_only * (raw_only + 1) // 2
    rows = length - raw_only                       # rows with cores; the k-th has 1 + k // group of them
    whole, rest = divmod(rows, group)
    cores = group * whole * (whole + 1) // 2 + rest * (whole + 1)
    near = whole * (group * (2 * window + group - 1) // 2) + rest * (2 * window + rest - 1) // 2
    return total + cores + rows * sinks + near


def pairs_small(answer: Answer, draw: Draw) -> None:
    """Against counting."""
    for size in sizes(draw):
        length, sinks, group, window = size
        counts = [min(row + 1, n + sinks + row + 1 - sinks - group * n) for row in range(length)
                  for n in [cores_of(row, sinks, group, window)]]
        with case(name(*size)):
            need_equal(answer(*size), sum(counts), "pairs")


def pairs_large(answer: Answer, draw: Draw) -> None:
    """Lengths at which nobody counts: the closed form, in integers."""
    for size in [(10**9, 4, 16, 1024), (10**12 + 7, 3, 17, 255)]:
        size = (draw.randint(10**11, 10**12), *size[1:]) if draw.secret else size
        with case(name(*size)):
            got = answer(*size)
            if not isinstance(got, int):
                raise Mistake(f"pairs is {describe(got)}, wanted an integer: divide with //")
            need_equal(got, pairs_of(*size), "pairs")


def best_group(answer: Answer, draw: Draw) -> None:
    """A group size with the fewest pairs, for a given length and window."""
    for length, sinks, window in [(64, 0, 4), (500, 4, 300), (2000, 1, 64)]:
        length = length + draw.randint(1, 200) if draw.secret else length
        counts = {group: pairs_of(length, sinks, group, window) for group in range(1, length + 1)}
        with case(f"length {length}, sinks {sinks}, window {window}"):
            got = int(need_number(answer(length, sinks, window), "the group size"))
            if got not in counts or counts[got] != min(counts.values()):
                best = min(counts, key=counts.__getitem__)
                raise Mistake(f"group {got} takes {counts.get(got, 'no')} pairs; group {best} takes {counts[best]}")


ASSIGNMENT = Assignment("a5", "cca", "CCA-Attention with a third interval", ("05", "10"), (
    Task("a5.1", "by_hand", "One row by hand", 10, 1, 3, (Property("the numbers of the example", 2, by_hand),)),
    Task("a5.2", "intervals", "Which columns a row reads", 30, 3, 5, (
        Property("no row reads a later token", 2, no_future),
        Property("every earlier token is read exactly once", 2, once),
        Property("the window is as long as it should be", 2, window_size))),
    Task("a5.3", "read_counts", "How often each token is read", 20, 2, 4, (
        Property("tokens are counted, inside cores and raw", 2, counted),)),
    Task("a5.4", "printed_formula", "An example against the printed formula", 15, 2, 3, (
        Property("the printed formulas read a token twice or never", 2, printed),)),
    Task("a5.5", "blocked", "One softmax over tiles", 35, 4, 5, (
        Property("the output equals one matrix", 3, blocked_right),
        Property("large scores do no harm", 1, blocked_large),
        Property("only what a row reads is loaded", 1, blocked_reads, hidden=True))),
    Task("a5.6", "pairs", "What it costs, without counting", 25, 3, 3, (
        Property("equal to counting", 1, pairs_small),
        Property("right for a trillion tokens", 1, pairs_large, hidden=True))),
    Task("a5.7", "best_group", "The cheapest group", 10, 2, 2, (
        Property("no other group takes fewer pairs", 1, best_group),)),
))
