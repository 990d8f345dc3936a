"""a5: what a row reads, by intervals of columns: right tables, and checks of tables and of attention over them."""

from collections.abc import Iterator

import torch
from torch import Tensor

from cca_lab.course.compare import need_close, need_tensor
from cca_lab.course.tasks import Answer, Draw, Mistake, case

SIZES = [(1, 0, 1, 1), (6, 0, 2, 2), (8, 1, 2, 2), (9, 2, 3, 1), (13, 1, 3, 4), (20, 4, 5, 12)]


def sizes(draw: Draw, most: int = 60) -> list[tuple[int, int, int, int]]:
    """Return (length, sinks, group, window), small ones first."""
    if not draw.secret:
        return SIZES
    drawn = [(draw.randint(1, most), draw.randint(0, 6), draw.randint(1, 7), draw.randint(1, 12)) for _ in range(12)]
    return sorted(drawn)


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
                         for row in range(length) for n in [cores_of(row, sinks, group, window)]]), cores


def table(answer: Answer, size: tuple[int, int, int, int]) -> tuple[Tensor, int]:
    """Return the answer's intervals for one size, and the number of core columns."""
    length, sinks, group, window = size
    got = need_tensor(answer(*size), (length, 3, 2), "the table", "int")
    cores = cores_of(length - 1, sinks, group, window)
    full = got[..., 0] != got[..., 1]
    if full[0].any() and (own := int(got[0, full[0]].min())) != cores:
        raise Mistake(f"row 0 reads column {own}, but its own token is column C = {cores}: how many cores does the "
                      "*last* row read, with the sinks in no group?")
    if (backwards := got[..., 0] > got[..., 1]).any():
        row, part = backwards.nonzero()[0].tolist()
        raise Mistake(f"row {row} has the interval {got[row, part].tolist()}: an empty one has start == stop")
    low, high = torch.tensor([0, cores, cores]), torch.tensor([cores, cores + length, cores + length])
    if (outside := full & ((got[..., 0] < low) | (got[..., 1] > high))).any():
        row, part = outside.nonzero()[0].tolist()
        raise Mistake(f"row {row} has the interval {got[row, part].tolist()} for its "
                      f"{('cores', 'sinks', 'window')[part]}, but cores are the columns before {cores}, and raw tokens "
                      f"those from {cores} to {cores + length - 1}")
    return got, cores


def reads(intervals: Tensor, size: tuple[int, int, int, int]) -> tuple[Tensor, Tensor]:
    """Return how often each row reads each token, (L, L) each: inside cores, and raw."""
    length, sinks, group, window = size
    cores = cores_of(length - 1, sinks, group, window)
    column = torch.arange(cores + length)
    counts = ((column >= intervals[..., :1]) & (column < intervals[..., 1:])).sum(dim=1)      # (L, C + L)
    inside = torch.zeros(length, length, dtype=torch.int64)
    for core in range(cores):
        inside[:, sinks + core * group : sinks + (core + 1) * group] += counts[:, core, None]
    return inside, counts[:, cores:]


def no_future(answer: Answer, draw: Draw) -> None:
    """No row may read a later token, raw or inside a core."""
    for size in sizes(draw):
        with case(name(*size)):
            inside, raw = reads(table(answer, size)[0], size)
            if 3 * int((inside + raw).tril().sum()) < size[0] * (size[0] + 1) / 2 and size[0] > 1:
                raise Mistake("most earlier tokens are read by no row")
            early = (inside + raw).triu(1)
            if early.any():
                row, token = early.nonzero()[0].tolist()
                how = "raw" if raw[row, token] else "inside a core"
                raise Mistake(f"row {row} reads token {token}, which comes later, {how}: does the interval end one "
                              "column late, do the sinks go beyond the row, or does a core appear before its group is "
                              "complete?")


def once(answer: Answer, draw: Draw) -> None:
    """Every token of the past is read exactly once."""
    for size in sizes(draw):
        with case(name(*size)):
            inside, raw = reads(table(answer, size)[0], size)
            total = (inside + raw).tril()
            wrong = (total != 1) & torch.ones_like(total, dtype=torch.bool).tril()
            if not wrong.any():
                continue
            row, token = wrong.nonzero()[0].tolist()
            if total[row, token] == 0:
                raise Mistake(f"row {row} never reads token {token}: does the window start after sinks + group * n, or "
                              "did you forget the tokens between the last whole group and the window?")
            how = "as a sink and in the window" if not inside[row, token] else "inside a core and raw"
            raise Mistake(f"row {row} reads token {token} {total[row, token]} times, {how}: does the window start "
                          "before sinks + group * n, or the sinks go beyond the row?")


def window_size(answer: Answer, draw: Draw) -> None:
    """The nearest tokens are raw: at least the window, and fewer than window + group once there are cores."""
    for size in sizes(draw):
        length, sinks, group, window = size
        with case(name(*size)):
            raw = reads(table(answer, size)[0], size)[1]
            for row in range(length):
                near = raw[row, max(sinks, row + 1 - window) : row + 1]
                if not near.all():
                    raise Mistake(f"row {row} does not read all of its {window} nearest tokens raw: does a core "
                                  "appear too early?")
                count = int(raw[row, sinks : row + 1].sum())
                if count >= window + group:
                    raise Mistake(f"row {row} keeps {count} raw tokens behind the sinks, though {group} of them fill a "
                                  f"group behind the window of {window}: does a core appear too late?")


def dense(q: Tensor, keys: Tensor, values: Tensor, intervals: Tensor, scale: float) -> Tensor:
    """Return attention over intervals of columns by one matrix, (L, D)."""
    column = torch.arange(len(keys))
    seen = ((column >= intervals[..., :1]) & (column < intervals[..., 1:])).any(dim=1)        # (L, N)
    return (scale * q @ keys.T).masked_fill(~seen, float("-inf")).softmax(-1) @ values


def blocked_inputs(draw: Draw, scale_up: float, more: tuple[tuple[int, int, int, int], ...]
                   ) -> Iterator[tuple[str, Tensor, Tensor, Tensor, Tensor]]:
    """Yield (name, q, keys, values, intervals) with the columns of right tables."""
    for size in [*sizes(draw, most=20)[:6], *more]:
        intervals, cores = right_table(*size)
        columns = cores + size[0]
        yield (name(*size), draw.normal(size[0], 4, scale=scale_up), draw.normal(columns, 4), draw.normal(columns, 3),
               intervals)


def run_blocked(answer: Answer, draw: Draw, scale_up: float, tile: int,
                more: tuple[tuple[int, int, int, int], ...] = ()) -> list[tuple[str, int, int]]:
    """Compare the answer with one matrix; return what it loaded, and what it had to."""
    loads = []
    for what, q, keys, values, intervals in blocked_inputs(draw, scale_up, more):
        loaded: list[int] = []

        def load(start: int, stop: int, keys: Tensor = keys, values: Tensor = values,
                 loaded: list[int] = loaded) -> tuple[Tensor, Tensor]:
            start, stop = int(start), int(stop)
            if not 0 <= start < stop <= len(keys) or stop - start > tile:
                raise Mistake(f"load({start}, {stop}): wanted 1 to {tile} columns of the {len(keys)} that exist")
            loaded.append(stop - start)
            return keys[start:stop], values[start:stop]

        with case(f"{what}, tiles of {tile}"):
            wanted = dense(q, keys, values, intervals, 0.5)
            got = answer(q, intervals, load, tile, 0.5)
            need_close(got, wanted, "the output")
        lengths = (intervals[..., 1] - intervals[..., 0]).clamp(min=0)
        loads.append((what, sum(loaded), int(lengths.sum() + 2 * tile * (lengths > 0).sum())))
    return loads


def blocked_right(answer: Answer, draw: Draw) -> None:
    """The output of the blocked form, for several tiles."""
    for tile in (1, 2, 5):
        run_blocked(answer, draw, 1.0, tile)


def blocked_large(answer: Answer, draw: Draw) -> None:
    """Scores of several thousand: the running maximum is needed."""
    run_blocked(answer, draw, 4000.0, 3)


def blocked_reads(answer: Answer, draw: Draw) -> None:
    """Only columns near a row's intervals are loaded."""
    for what, loaded, allowed in run_blocked(answer, draw, 1.0, 2, ((40, 2, 4, 5),)):
        if loaded > allowed:
            raise Mistake(f"{what}: {loaded} columns were loaded, {allowed} are enough with two tiles to spare for "
                          "each interval: are tiles loaded that the row does not read?")
