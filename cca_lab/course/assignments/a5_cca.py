"""a5: CCA-Attention with a third interval: columns, read counts, tiles, costs.

The variant: the first `sinks` tokens stay raw for every row, groups begin after them. Row i then
reads the cores of n(i) = max(0, floor((i + 1 - sinks - window) / group)) groups.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import by_hand, describe, need_keys, need_number, need_tensor
from cca_lab.course.exercise import equals, examples, holds, slips
from cca_lab.course.tasks import Answer, Assignment, CourseTask, Draw, Mistake, Property, case

# Length, sinks, group, window. The group divides the length, or what the sinks leave, or neither.
SIZES = ((1, 0, 1, 1), (6, 0, 2, 2), (8, 1, 2, 2), (9, 2, 3, 1), (12, 0, 4, 3), (13, 1, 3, 4),
         (20, 4, 5, 12))
LARGER = ((1, 60), (0, 6), (1, 7), (1, 12))
NAMES = "length sinks group window"
TEXTS = examples(NAMES, *SIZES, larger=LARGER, count=12)


# a5.2: what a row reads, by intervals of columns
def cores_of(row: int, sinks: int, group: int, window: int) -> int:
    """Return how many cores a row reads."""
    return max(0, (row + 1 - sinks - window) // group)


def table_of(length: int, sinks: int, group: int, window: int) -> Tensor:
    """Return a right table."""
    cores = [cores_of(row, sinks, group, window) for row in range(length)]
    before, rows = cores[-1], []
    for row, n in enumerate(cores):
        start = min(row + 1, sinks + group * n)
        rows.append([[0, n], [before, before + min(sinks, row + 1)],
                     [before + start, before + row + 1]])
    return torch.tensor(rows)


def reads(answer: Answer) -> Answer:
    """Return a function of the sizes: how often each row reads each token in cores, and raw.

    The table's own C is where row 0 reads its token. It may be off by one, as it is if cores come a
    row late: then the window has the wrong length, and that is all that is wrong.
    """
    def read(*size: int) -> tuple[Tensor, Tensor, int]:
        length, sinks, group, window = size
        got = need_tensor(answer(*size), (length, 3, 2), "the table", "int")
        cores = right = cores_of(length - 1, sinks, group, window)
        full = got[..., 0] != got[..., 1]
        read_in_all, wanted = (int(got[:, 0].diff(dim=1).sum()),
                               sum(cores_of(row, *size[1:]) for row in range(length)))
        if wanted > 3 and 2 * read_in_all < wanted:  # full attention reads every token once, too
            raise Mistake(f"all rows together read {read_in_all} cores, wanted {wanted}: no group "
                          "is ever pooled, or hardly one")
        if full[0].any():
            raw = got[0, 1:][full[0, 1:]]  # or its token is read in a core only
            cores = int(raw.min()) if len(raw) else int(got[-1, 2, 1]) - length
        if abs(cores - right) > 1:
            raise Mistake(f"row 0 reads column {cores}, but its own token is column C = {right}: "
                          "how many cores does the *last* row read, with the sinks in no group?")
        low = torch.tensor([0, cores, cores])
        high = torch.tensor([cores, cores + length, cores + length])
        wrong = full & ((got[..., 0] > got[..., 1]) | (got[..., 0] < low) | (got[..., 1] > high))
        if wrong.any():
            row, interval = wrong.nonzero()[0].tolist()
            raise Mistake(f"row {row} has the interval {got[row, interval].tolist()} for its "
                          f"{('cores', 'sinks', 'window')[interval]}; an empty one has start == "
                          f"stop, cores are the columns before {cores}, and raw tokens those from "
                          f"{cores} to {cores + length - 1}")
        return *counts(got, cores, *size), cores - right

    return read


def counts(table: Tensor, cores: int, length: int, sinks: int, group: int,
           window: int) -> tuple[Tensor, Tensor]:
    """Return how often each row reads each token, (L, L) each: inside cores, and raw."""
    column = torch.arange(cores + length)
    seen = ((column >= table[..., :1]) & (column < table[..., 1:])).sum(dim=1)  # (L, C + L)
    inside = torch.zeros(length, length, dtype=torch.int64)
    for core in range(cores):
        inside[:, sinks + core * group : sinks + (core + 1) * group] += seen[:, core, None]
    return inside, seen[:, cores:]


def no_future(read: tuple[Tensor, Tensor, int], *size: int) -> None:
    """No row may read a later token, raw or inside a core."""
    inside, raw, _ = read
    if (early := (inside + raw).triu(1)).any():
        row, token = early.nonzero()[0].tolist()
        how = "raw" if raw[row, token] else "inside a core"
        raise Mistake(f"row {row} reads token {token}, which comes later, {how}")


def once(read: tuple[Tensor, Tensor, int], *size: int) -> None:
    """Every token of the past is read exactly once."""
    inside, raw, _ = read
    total = (inside + raw).tril()
    if (wrong := (total != 1).tril()).any():
        row, token = wrong.nonzero()[0].tolist()
        times = {0: "never", 2: "twice"}.get(int(total[row, token]), f"{total[row, token]} times")
        how = "" if times == "never" else (
            ", inside a core and raw" if inside[row, token] else ", as a sink and in the window")
        raise Mistake(f"row {row} reads token {token} {times}{how}")


def window_size(read: tuple[Tensor, Tensor, int], length: int, sinks: int, group: int,
                window: int) -> None:
    """The groups that a row reads as cores are the right ones, and C with them."""
    inside, _, off = read
    for row in range(length):
        got, right = int(inside[row].count_nonzero()) // group, cores_of(row, sinks, group, window)
        if got != right:
            raise Mistake(f"row {row} reads {got} cores, wanted {right}: a core appears too "
                          f"{'early' if got > right else 'late'}")
    if off:
        raise Mistake(f"raw token 0 is column C {off:+d}: how many cores does the *last* row read?")


# a5.3 and a5.4: read counts and a counterexample
def tables(draw: Draw, length: int, sinks: int, group: int, window: int,
           early: int) -> tuple[Any, ...]:
    """Return a right table, or one whose windows start too early, and its sizes."""
    table = table_of(length, sinks, group, window)
    cores = cores_of(length - 1, sinks, group, window)
    table[:, 2, 0] = (table[:, 2, 0] - early).clamp(min=cores)
    return table, length, sinks, group, window


def counted(table: Tensor, *size: int) -> Tensor:
    """Return how often each row reads each token, (L, L)."""
    inside, raw = counts(table, cores_of(size[0] - 1, *size[1:]), *size)
    return inside + raw


def printed(answer: Answer, draw: Draw) -> None:
    """The example must break Eq. 4 as printed: a token that is read twice or never."""
    got = need_keys(answer(), keys := ("group", "window", "row", "token"))
    g, s, i, t = (got[key] for key in keys)
    if not all(type(number) is int for number in (g, s, i, t)):
        raise Mistake(f"the result is {describe(got)}, wanted four integers")
    if g < 3 or s < 1 or s % g == 0:
        raise Mistake(f"group {g}, window {s}: wanted a group of 3 or more that does not divide "
                      "the window")
    if not 1 <= t <= i <= 10**6:
        raise Mistake("wanted 1 <= token <= row <= 1000000, counted from 1 as in the paper")
    if int(t <= g * max(0, (i - s) // g)) + int(t >= max(1, i - s - (i - s) % g)) == 1:
        raise Mistake(f"with group {g} and window {s}, row {i} reads token {t} exactly once by the "
                      "printed formulas; look near the border between the cores and the window")


# a5.5 and a5.6: cost
def pairs_of(length: int, sinks: int, group: int, window: int) -> int:
    """Return how many columns all rows read together, in closed form."""
    plain = min(length, sinks + window + group - 1)
    cycles, left = divmod(length - plain, group)
    total = plain * (plain + 1) // 2
    total += (length - plain) * sinks
    total += group * cycles * (cycles + 1) // 2 + left * (cycles + 1)
    total += cycles * (group * (2 * window + group - 1) // 2)
    total += left * (2 * window + left - 1) // 2
    return total


def by_counting(length: int, sinks: int, group: int, window: int) -> int:
    """Return the same, row after row."""
    return sum(row + 1 - (group - 1) * cores_of(row, sinks, group, window)
               for row in range(length))


def best_group(answer: Answer, draw: Draw) -> None:
    """A group size with the fewest pairs, for a given length and window."""
    for length, sinks, window in [(64, 0, 4), (500, 4, 300), (2000, 1, 64)]:
        length = length + draw.randint(1, 200) if draw.secret else length
        counts = {group: pairs_of(length, sinks, group, window) for group in range(1, length + 1)}
        with case(f"length {length}, sinks {sinks}, window {window}"):
            got = int(need_number(answer(length, sinks, window), "the group size"))
            if got not in counts or counts[got] != min(counts.values()):
                best = min(counts, key=counts.__getitem__)
                raise Mistake(f"group {got} takes {counts.get(got, 'no')} pairs; group {best} "
                              f"takes {counts[best]}")


CORES = "cores_of(row, sinks, group, window)"
ASSIGNMENT = Assignment("a5", "cca", "CCA-Attention with a third interval", ("03", "07"), (
    CourseTask("a5.1", "by_hand", "One row by hand", 10, 1, (
        by_hand("the numbers of the example",
                {"cores": 2, "raw": [0, 7, 8, 9], "first row with a core": 5, "most raw tokens": 5},
                {"most raw tokens": 4}),)),
    CourseTask("a5.2", "intervals", "Which columns a row reads", 30, 3, (
        holds("no row reads a later token", no_future, TEXTS, points=2, wrong=slips(
            table_of, {
                "the interval ends one column late":
                    ("before + row + 1]", "before + min(length, row + 2)]"),
                "the first rows have sinks that do not exist yet":
                    ("min(sinks, row + 1)", "sinks")})),
        holds("every earlier token is read exactly once", once, TEXTS, points=2,
                 wrong=slips(table_of, {
            "the window starts one token before sinks + group * n":
                ("sinks + group * n)", "max(0, sinks + group * n - 1))"),
            "the window starts one token late": ("group * n)", "group * n + 1)"),
            "the row's own token is left out": ("before + row + 1]", "before + max(start, row)]"),
            "the first rows read their sinks in the window, too":
                ("sinks + group * n)", "sinks + group * n if sinks + group * n > 6 else 0)")})),
        holds("the window is as long as it should be", window_size, TEXTS, points=2,
                 wrong=slips(table_of, {
            "a core comes one row early": (CORES, "cores_of(row + 1, sinks, group, window)"),
            "a core comes one row late: take row + 1":
                (CORES, "cores_of(row - 1, sinks, group, window)"),
            "a core appears before its whole group has left the window":
                (CORES, "max(0, -(-(row + 1 - sinks - window) // group))"),
            "the sinks are counted as members of the groups":
                (CORES, "cores_of(row, 0, group, window)"),
            "how many cores does the *last* row read": ("cores[-1]", "cores[-1] + 1"),
            "no group is ever pooled, or hardly one": (CORES, "0")}))), drive=reads),
    CourseTask("a5.3", "read_counts", "How often each token is read", 20, 2, (
        equals("tokens are counted, inside cores and raw", counted, examples(
            tables, *((*size, early) for size in SIZES for early in (0, 1)),
            larger=(*LARGER, (0, 1)), count=12), "counts", points=3, wrong=slips(counted, {
            "tokens inside cores are not counted": ("inside + raw", "raw"),
            "raw tokens are not counted": ("inside + raw", "inside"),
            "a token is read or not, instead of how often":
                ("inside + raw", "(inside + raw).clamp(max=1)")})),)),
    CourseTask("a5.4", "printed_formula", "An example against the printed formula", 15, 2, (
        Property("the printed formulas read a token twice or never", 3, printed, wrong={
            "reads token 4 exactly once": lambda: {"group": 3, "window": 4, "row": 8, "token": 4},
            "a group of 3 or more that does not divide the window":
                lambda: {"group": 2, "window": 4, "row": 8, "token": 3}}),)),
    CourseTask("a5.5", "pairs", "What it costs, without counting", 25, 3, (
        replace(equals("equal to counting", by_counting, TEXTS, "pairs", points=3, wrong=slips(
            pairs_of, {
            "the rows of the last cycle, which is not complete, are forgotten":
                ("left * (2 * window", "0 * (2 * window"),
            "the first rows are taken as a square; they are a triangle":
                ("plain * (plain + 1) // 2", "plain * plain"),
            "the sinks of the rows with cores are forgotten": ("(length - plain) * sinks", "0")})),
            right=pairs_of),
        equals("right for a trillion tokens", pairs_of, examples(
            NAMES, (10**9, 4, 16, 1024), (10**12 + 7, 3, 17, 255),
            larger=((10**11, 10**12), (0, 6), (5, 40), (90, 300))), "pairs", hidden=True,
               wrong=slips(pairs_of, {
                   "a float is computed on the way: divide with //":
                       ("return total", "return int(float(total))")})))),
    CourseTask("a5.6", "best_group", "The cheapest group", 10, 2, (
        Property("no other group takes fewer pairs", 2, best_group, wrong={
            "group 64 takes": lambda length, sinks, window: 64,
            "group 1 takes": lambda length, sinks, window: 1}),)),
))
