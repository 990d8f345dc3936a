"""a5: CCA-Attention with a third interval: columns, read counts, blocks, costs.

The variant: the first `sinks` tokens stay raw for every row, groups begin after them. Row i then
reads the cores of n(i) = max(0, floor((i + 1 - sinks - window) / group)) groups.
"""

import torch
from torch import Tensor

from cca_lab.course.compare import (
    by_hand,
    describe,
    many,
    need_close,
    need_equal,
    need_keys,
    need_number,
    need_same,
    need_tensor,
)
from cca_lab.course.tasks import Answer, Assignment, CourseTask, Draw, Mistake, Property, case

# a5.2 and a5.5: what a row reads by intervals of columns, and attention over them

# Length, sinks, group, window. The group divides the length, or what the sinks leave, or neither.
SIZES: list[tuple[int, ...]] = [(1, 0, 1, 1), (6, 0, 2, 2), (8, 1, 2, 2), (9, 2, 3, 1),
                                (12, 0, 4, 3), (13, 1, 3, 4), (20, 4, 5, 12)]


def sizes(draw: Draw, most: int = 60) -> list[tuple[int, ...]]:
    """Return (length, sinks, group, window), small ones first."""
    return draw.sizes(12, (1, most), (0, 6), (1, 7), (1, 12)) if draw.secret else SIZES


def name(length: int, sinks: int, group: int, window: int) -> str:
    """Return the sizes for a message."""
    return f"length {length}, sinks {sinks}, group {group}, window {window}"


def cores_of(row: int, sinks: int, group: int, window: int) -> int:
    """Return how many cores a row reads."""
    return max(0, (row + 1 - sinks - window) // group)


def right_table(length: int, sinks: int, group: int, window: int) -> tuple[Tensor, int]:
    """Return a right table (length, 3, 2), and the number of core columns."""
    cores = cores_of(length - 1, sinks, group, window)
    return torch.tensor([[[0, n], [cores, cores + min(sinks, row + 1)],
                          [cores + min(row + 1, sinks + group * n), cores + row + 1]]
                         for row in range(length)
                         for n in [cores_of(row, sinks, group, window)]]), cores


def table(answer: Answer, size: tuple[int, ...]) -> tuple[Tensor, int]:
    """Return the answer's intervals for one size, and its own number C of core columns.

    That is the column of row 0's token. It may be off by one, as it is if cores come a row late:
    then the window has the wrong length, and that is all that is wrong.
    """
    length, sinks, group, window = size
    got = need_tensor(answer(*size), (length, 3, 2), "the table", "int")
    cores = right = cores_of(length - 1, sinks, group, window)
    full = got[..., 0] != got[..., 1]
    if full[0].any():
        raw = got[0, 1:][full[0, 1:]]  # or its token is read in a core only
        cores = int(raw.min()) if len(raw) else int(got[-1, 2, 1]) - length
    if abs(cores - right) > 1:
        raise Mistake(f"row 0 reads column {cores}, but its own token is column C = {right}: how "
                      "many cores does the *last* row read, with the sinks in no group?")
    if (backwards := got[..., 0] > got[..., 1]).any():
        row, interval = backwards.nonzero()[0].tolist()
        raise Mistake(f"row {row} has the interval {got[row, interval].tolist()}: an empty one has "
                      "start == stop")
    low, high = torch.tensor([0, cores, cores]), torch.tensor([cores, cores + length,
                                                               cores + length])
    if (outside := full & ((got[..., 0] < low) | (got[..., 1] > high))).any():
        row, interval = outside.nonzero()[0].tolist()
        raise Mistake(f"row {row} has the interval {got[row, interval].tolist()} for its "
                      f"{('cores', 'sinks', 'window')[interval]}, but cores are the columns before "
                      f"{cores}, and raw tokens those from {cores} to {cores + length - 1}")
    return got, cores


def reads(intervals: Tensor, cores: int, size: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return how often each row reads each token, (L, L) each: inside cores, and raw."""
    length, sinks, group, _ = size
    column = torch.arange(cores + length)
    # (L, C + L).
    counts = ((column >= intervals[..., :1]) & (column < intervals[..., 1:])).sum(dim=1)
    inside = torch.zeros(length, length, dtype=torch.int64)
    for core in range(cores):
        inside[:, sinks + core * group : sinks + (core + 1) * group] += counts[:, core, None]
    return inside, counts[:, cores:]


def no_future(answer: Answer, draw: Draw) -> None:
    """No row may read a later token, raw or inside a core."""
    for size in sizes(draw):
        with case(name(*size)):
            inside, raw = reads(*table(answer, size), size)
            if 3 * int((inside + raw).tril().sum()) < size[0] * (size[0] + 1) / 2 and size[0] > 1:
                raise Mistake("most earlier tokens are read by no row")
            early = (inside + raw).triu(1)
            if early.any():
                row, token = early.nonzero()[0].tolist()
                how = "raw" if raw[row, token] else "inside a core"
                raise Mistake(f"row {row} reads token {token}, which comes later, {how}: does the "
                              "interval end one column late, do the sinks go beyond the row, or "
                              "does a core appear before its group is complete?")


def once(answer: Answer, draw: Draw) -> None:
    """Every token of the past is read exactly once."""
    for size in sizes(draw):
        with case(name(*size)):
            inside, raw = reads(*table(answer, size), size)
            total = (inside + raw).tril()
            wrong = (total != 1) & torch.ones_like(total, dtype=torch.bool).tril()
            if not wrong.any():
                continue
            row, token = wrong.nonzero()[0].tolist()
            if total[row, token] == 0:
                raise Mistake(f"row {row} never reads token {token}: does the window start after "
                              "sinks + group * n, or did you forget the tokens between the last "
                              "whole group and the window?")
            how = "inside a core and raw" if inside[row, token] else "as a sink and in the window"
            times = {2: "twice"}.get(int(total[row, token]), f"{total[row, token]} times over")
            raise Mistake(f"row {row} reads token {token} {times}, {how}: does the window start "
                          "before sinks + group * n, or the sinks go beyond the row?")


def window_size(answer: Answer, draw: Draw) -> None:
    """At least the window is raw, and fewer than window + group tokens once there are cores.

    A token that is read inside a core as well does not count: it is a matter of `once`.
    """
    for size in sizes(draw):
        length, sinks, group, window = size
        with case(name(*size)):
            intervals, own = table(answer, size)
            inside, raw = reads(intervals, own, size)
            raw = raw * (inside == 0)
            for row in range(length):
                near = raw[row, max(sinks, row + 1 - window) : row + 1]
                if not near.all():
                    raise Mistake(f"row {row} does not read all of its {window} nearest tokens "
                                  "raw: does a core appear too early?")
                count = int(raw[row, sinks : row + 1].sum())
                if count >= window + group:
                    raise Mistake(f"row {row} keeps {count} raw tokens behind the sinks, though "
                                  f"{group} of them fill a group behind the window of {window}: "
                                  "does a core appear too late?")
            if own != (right := cores_of(length - 1, sinks, group, window)):
                raise Mistake(f"raw token 0 is column {own}, wanted C = {right}: how many cores "
                              "does the *last* row read?")


def run_blocked(answer: Answer, draw: Draw, scale_up: float, tile: int,
                more: tuple[tuple[int, ...], ...] = ()) -> list[tuple[str, int, int]]:
    """Compare with one matrix on right tables; return what was loaded, and what had to be."""
    loads = []
    for size in [*sizes(draw, most=20)[:7], *more]:
        what, (intervals, cores) = name(*size), right_table(*size)
        q = draw.normal(size[0], 4, scale=scale_up)
        keys, values = (draw.normal(cores + size[0], dim) for dim in (4, 3))
        loaded: list[int] = []

        def load(start: int, stop: int, keys: Tensor = keys, values: Tensor = values,
                 loaded: list[int] = loaded) -> tuple[Tensor, Tensor]:
            start, stop = int(start), int(stop)
            if not 0 <= start < stop <= len(keys) or stop - start > tile:
                raise Mistake(f"load({start}, {stop}): wanted at most {many(tile, 'column')} of "
                              f"the {len(keys)} that exist, and one at least")
            loaded.append(stop - start)
            return keys[start:stop], values[start:stop]

        with case(f"{what}, tiles of {tile}"):
            column = torch.arange(len(keys))
            seen = ((column >= intervals[..., :1]) & (column < intervals[..., 1:])).any(dim=1)
            scores = (0.5 * q @ keys.T).masked_fill(~seen, float("-inf"))
            got = answer(q, intervals, load, tile, 0.5)
            need_close(got, scores.softmax(-1) @ values, "the output")
        lengths = (intervals[..., 1] - intervals[..., 0]).clamp(min=0)
        loads.append((what, sum(loaded), int(lengths.sum() + 2 * tile * (lengths > 0).sum())))
    return loads


def blocked_right(answer: Answer, draw: Draw) -> None:
    """The output of the blocked form, for several tiles."""
    for tile in (1, 2, 5):
        run_blocked(answer, draw, 1.0, tile)


def blocked_large(answer: Answer, draw: Draw) -> None:
    """Scores of several thousand need the running maximum."""
    run_blocked(answer, draw, 4000.0, 3)


def blocked_reads(answer: Answer, draw: Draw) -> None:
    """Only columns near a row's intervals are loaded."""
    for what, loaded, allowed in run_blocked(answer, draw, 1.0, 2, ((40, 2, 4, 5),)):
        if loaded > allowed:
            raise Mistake(f"{what}: {loaded} columns were loaded, {allowed} are enough with two "
                          "tiles to spare for each interval: are tiles loaded that the row does "
                          "not read?")


# a5.3 and a5.4: read counts and a counterexample

def counted(answer: Answer, draw: Draw) -> None:
    """The counts of right tables and of wrong ones."""
    for size in sizes(draw):
        good, cores = right_table(*size)
        shifted = good.clone()
        shifted[:, 2, 0] = (shifted[:, 2, 0] - 1).clamp(min=cores)
        for intervals, what in ((good, "a right table"),
                                (shifted, "windows that start one column early")):
            with case(f"{name(*size)}, {what}"):
                inside, raw = reads(intervals, cores, size)
                need_same(answer(intervals, *size), inside + raw, "counts", causes={
                    "tokens inside cores are not counted": raw,
                    "raw tokens are not counted": inside,
                    "a token is read or not, instead of how often": (inside + raw).clamp(max=1)})


def printed(answer: Answer, draw: Draw) -> None:
    """The example must break Eq. 4 as printed: a token that is read twice or never."""
    got = answer()
    keys = ("group", "window", "row", "token")
    g, s, i, t = (need_keys(got, keys)[key] for key in keys)
    if not all(type(number) is int for number in (g, s, i, t)):
        raise Mistake(f"the result is {describe(got)}, wanted four integers")
    if g < 3 or s < 1 or s % g == 0:
        raise Mistake(f"group {g}, window {s}: wanted a group of 3 or more that does not divide "
                      "the window")
    if not 1 <= t <= i <= 10**6:
        raise Mistake("wanted 1 <= token <= row <= 1000000, counted from 1 as in the paper")
    times = int(t <= g * max(0, (i - s) // g)) + int(t >= max(1, i - s - (i - s) % g))
    if times == 1:
        raise Mistake(f"with group {g} and window {s}, row {i} reads token {t} exactly once by the "
                      "printed formulas; look near the border between the cores and the window")


# a5.6 and a5.7: cost

def pairs_of(length: int, sinks: int, group: int, window: int) -> int:
    """Return how many columns all rows read together, in closed form."""
    raw_only = min(length, sinks + window + group - 1)
    total = raw_only * (raw_only + 1) // 2
    rows = length - raw_only  # rows with cores; the k-th has 1 + k // group of them
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
                raise Mistake(f"group {got} takes {counts.get(got, 'no')} pairs; group {best} "
                              f"takes {counts[best]}")


ASSIGNMENT = Assignment("a5", "cca", "CCA-Attention with a third interval", ("03", "07"), (
    CourseTask("a5.1", "by_hand", "One row by hand", 10, 1, 3, (
        Property("the numbers of the example", 2, by_hand(
            {"cores": 2, "raw": [0, 7, 8, 9], "first row with a core": 5,
             "most raw tokens": 5})),)),
    CourseTask("a5.2", "intervals", "Which columns a row reads", 30, 3, 5, (
        Property("no row reads a later token", 2, no_future),
        Property("every earlier token is read exactly once", 2, once),
        Property("the window is as long as it should be", 2, window_size))),
    CourseTask("a5.3", "read_counts", "How often each token is read", 20, 2, 4, (
        Property("tokens are counted, inside cores and raw", 2, counted),)),
    CourseTask("a5.4", "printed_formula", "An example against the printed formula", 15, 2, 3, (
        Property("the printed formulas read a token twice or never", 2, printed),)),
    CourseTask("a5.5", "blocked", "One softmax over tiles", 35, 4, 5, (
        Property("the output equals one matrix", 3, blocked_right),
        Property("large scores do no harm", 1, blocked_large),
        Property("only what a row reads is loaded", 1, blocked_reads, hidden=True))),
    CourseTask("a5.6", "pairs", "What it costs, without counting", 25, 3, 3, (
        Property("equal to counting", 1, pairs_small),
        Property("right for a trillion tokens", 1, pairs_large, hidden=True))),
    CourseTask("a5.7", "best_group", "The cheapest group", 10, 2, 2, (
        Property("no other group takes fewer pairs", 1, best_group),)),
))
