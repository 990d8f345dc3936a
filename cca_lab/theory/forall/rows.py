"""What each row reads, for all integers: statements on the functions of `mechanisms.indices`.

A statement is a function of symbolic integers; it assumes hypotheses and returns what follows.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

from cca_lab.attention import intervals as checks
from cca_lab.mechanisms import indices
from cca_lab.theory.forall.core import theorem
from cca_lab.theory.forall.terms import Truth, assume, divided_by, every, most, number, some, where

INDICES = "cca_lab.mechanisms.indices."
CHECKS = tuple(f"cca_lab.attention.intervals.{name}"
               for name in ("is_reversed", "is_outside", "is_empty", "moves_back", "overlap"))
Intervals = Sequence[tuple[Any, Any]]


def names(*short: str) -> tuple[str, ...]:
    """Return the dotted names of functions of `mechanisms.indices`."""
    return tuple(INDICES + name for name in short)


def positive(*sizes: Any) -> None:
    """Assume that sizes are 1 or more."""
    assume(*(size >= 1 for size in sizes))


def within(column, interval: tuple[Any, Any]) -> Truth:
    """Return whether a column is in a half-open interval."""
    return every(number(interval[0]) <= column, column < interval[1])


def read_once(past, readings) -> Mapping[str, Truth]:
    """Return that a token of the past is read in one of the ways, and another in none."""
    twice = some(*(every(a, b) for a, b in combinations(readings, 2)))
    return {"past": past.implies(some(*readings) & ~twice), "future": past | ~some(*readings)}


def accepted(seen: Callable[[Any], Intervals], row, rows, columns):
    """Return that the lab's check refuses neither a row's intervals nor the next row's after it."""
    here = [(number(start), number(end)) for start, end in seen(row)]
    after = [(number(start), number(end)) for start, end in seen(row + 1)]
    return {"ordered": ~some(*(checks.is_reversed(*interval) for interval in here)),
            "in range": ~some(*(checks.is_outside(*interval, columns) for interval in here)),
            "never empty": ~every(*(checks.is_empty(*interval) for interval in here)),
            "disjoint": ~some(False, *(checks.overlap(a, b) for a, b in combinations(here, 2))),
            "never moves back": (row + 1 < rows).implies(
                ~some(*(checks.moves_back(*pair) for pair in zip(here, after, strict=True))))}


# ------------------------------------------------------------------------------ CCA-Attention

ROW = names("cca_columns", "raw_column", "core_count", "first_raw")


def cca_row(row, length, g, s, start=0) -> Intervals:
    """Return the intervals of a row of tokens [start, length)."""
    return indices.cca_columns(row, indices.raw_column(start, length, g, s), g, s)


@theorem("CCA's cover", *ROW,
         by_hand="the columns [cores ; raw tokens], in which `CCA.columns` puts keys and values")
def cca_cover(L, g, s, i, t):
    """each row reads each token of its past once, in a core or raw, and no later token."""
    positive(L, g, s)
    assume(0 <= i, i < L, 0 <= t, t < L)
    cores, raw = cca_row(i, L, g, s)
    return read_once(t <= i, [within(t // g, cores), within(indices.core_count(L, g, s) + t, raw)])


@theorem("CCA's window", *ROW)
def cca_window(L, g, s, i):
    """min(s, i + 1) to s + g - 1 raw tokens, and s + ((i + 1 - s) mod g) once there are s;
    cores end s tokens before the row's end; no row sees more cores than the last.
    """
    positive(L, g, s)
    assume(0 <= i, i < L)
    (first, n), (start, end) = cca_row(i, L, g, s)
    raw, count = end - start, indices.core_count(L, g, s)
    return {"raw and pooled tokens are the past": every(first == 0, raw + g * n == i + 1),
            "bounds": every(some(s <= raw, i + 1 <= raw), raw <= s + g - 1),
            "formula": (i + 1 >= s).implies(raw == s + (i + 1 - s) % g),
            "cores are older than the window": some(n == 0, g * n + s <= i + 1),
            "cores before the last row's": every(0 <= number(n), n <= number(count)),
            "the last row sees all": (i == L - 1).implies(number(n) == count)}


@theorem("CCA's cores", *names("core_count"))
def cca_growth(g, s, i):
    """from row to row one more core is seen, or none."""
    positive(g, s)
    assume(0 <= i)
    before, after = (number(indices.core_count(i + k, g, s)) for k in (1, 2))
    return some(after == before, after == before + 1)


@theorem("CCA's chunks", *ROW,
         by_hand="the columns of a chunk: its cores, then the raw tokens from g n(start) on")
def cca_chunk(start, stop, g, s, i):
    """a chunk's intervals show its rows the cores and raw tokens that the whole text's show
    them, and none that was dropped.
    """
    positive(g, s)
    assume(0 <= start, start <= i, i < stop)
    (first, n), raw = cca_row(i, stop, g, s)
    (chunk_first, chunk_n), chunk_raw = cca_row(i, stop, g, s, start)
    cores, dropped = indices.core_count(stop, g, s), indices.first_raw(start, g, s)
    return {"cores": every(first == chunk_first, number(n) == chunk_n),
            "raw tokens": every(raw[0] == chunk_raw[0] + dropped, raw[1] == chunk_raw[1] + dropped),
            "none was dropped": raw[0] - cores >= dropped}


@theorem("CCA is full attention", *names("cca_is_full", "core_count"))
def cca_exact(L, g, s):
    """`exact_when` is true exactly if no row reads a core of two tokens or more."""
    positive(L, g, s)
    full = bool(indices.cca_is_full(L, g, s))
    return every(number(indices.core_count(L, g, s)) >= 1, g >= 2).iff(not full)


@theorem("CCA's entries", *names("cca_entries", "first_raw", "core_count"))
def cca_entries(L, g, s):
    """a decoder keeps floor(L/g) cores and the raw tokens that row L reads, at most s + g - 2."""
    positive(L, g, s)
    raw = indices.cca_entries(L, g, s) - L // g
    return {"raw tokens of the next row": raw == L - g * indices.core_count(L + 1, g, s),
            "bound": every(0 <= raw, raw <= s + g - 2)}


@theorem("CCA's pairs", *names("cca_pairs", "cca_columns", "core_count"),
         by_hand="the induction over rows is in words; so is that a (a - 1) is even")
def cca_pairs(L, g, s):
    """the closed form of the scored pairs grows by the columns that each new row sees."""
    positive(L, g, s)
    assume(L < s)
    return {"before the first core": grows(L, g, s)}


@cca_pairs.also
def cca_pairs_inside(g, s, a, b):
    positive(g, s)
    assume(a >= 0, 0 <= b, b + 1 < g)
    length = s + a * g + b
    divided_by(length - s, g, a, b)
    divided_by(length + 1 - s, g, a, b + 1)
    return {"inside of a group": grows(length, g, s)}


@cca_pairs.also
def cca_pairs_at_the_end(g, s, a, half):
    positive(g, s)
    assume(a >= 0, a * (a - 1) == 2 * half)
    length = s + a * g + g - 1
    divided_by(length - s, g, a, g - 1)
    divided_by(length + 1 - s, g, a + 1, 0)
    divided_by(g * a * (a - 1), 2, g * half, 0)
    divided_by(g * (a + 1) * a, 2, g * half + g * a, 0)
    return {"at the end of a group": grows(length, g, s)}


def grows(length, g, s) -> Truth:
    """Return that one row more adds the columns that it sees."""
    (first, n), (start, end) = indices.cca_columns(length, 0, g, s)
    before, after = (indices.cca_pairs(rows, g, s) for rows in (length, length + 1))
    return after == before + (n - first) + (end - start)


SINK_ROW = *names("cca_sink_columns", "behind_sinks"), *ROW


@theorem("CCA behind sinks", *SINK_ROW,
         by_hand="the columns [cores ; sinks ; raw tokens behind the sinks] of a text or a chunk; "
                 "that a cache behind its sinks is that of a text without any, as "
                 "`CCAState.step` calls `cca_step`")
def cca_behind_sinks(start, stop, g, s, S, i, t):
    """with S first tokens that stay raw, each row of a text, or of a chunk in a cache, reads each
    token of its past once, as a sink, in a core of tokens behind the sinks, or raw, and no later
    token.
    """
    positive(g, s)
    assume(S >= 0, 0 <= start, start <= i, i < stop, 0 <= t, t < stop)
    cores, sinks, raw = indices.cca_sink_columns(i, start, stop, g, s, S)
    last = number(indices.behind_sinks(stop, S))
    held, first = stop - last, indices.first_raw(indices.behind_sinks(start, S), g, s)
    count = indices.core_count(last, g, s)
    behind = held + count - first  # the column of token S, dropped or not
    return {"sinks": (t < S).implies(within(count + t, sinks).iff(t <= i)),
            "no other token is a sink": (t >= S).implies(~within(count + t, sinks)),
            **read_once(t <= i, [within(count + t, sinks),
                                 (t >= S) & within((t - S) // g, cores),
                                 (t >= S) & within(behind + t - S, raw)])}


# -------------------------------------------- DeepSeek-V4: a window beside entries of closed groups


@theorem("DeepSeek-V4's reads", *names("entry_columns", "closed_groups", "read_twice", "unread"),
         by_hand="the columns [raw tokens ; entries]; no overlap and no choice of entries")
def production_reads(L, w, m, i, t):
    """with every closed entry visible, row i reads max(0, w - r) tokens twice and max(0, r - w)
    not at all, r = (i + 1) mod m, once the window is full: those between the window's first
    token and the open group's, in this order or the other.
    """
    positive(L, w, m)
    assume(0 <= i, i < L, 0 <= t, t < L)
    visible, entries = indices.entry_columns(i, w, m, L)
    raw, pooled = within(t, visible), within(L + t // m, entries)
    window, closed = most(0, i + 1 - w), i + 1 - (i + 1) % m  # first raw token, first in no entry
    r = (i + 1) % m
    twice, none = (number(count(i, w, m)) for count in (indices.read_twice, indices.unread))
    return {"raw": raw.iff((window <= t) & (t <= i)),
            "in an entry": pooled.iff(t < closed),
            "twice": (raw & pooled).iff((window <= t) & (t < closed)),
            "not at all": ((t <= i) & ~raw & ~pooled).iff((closed <= t) & (t < window)),
            "future": (t > i).implies(~raw & ~pooled),
            "how many": (twice == most(0, closed - window)) & (none == most(0, window - closed)),
            "full window": (i + 1 >= w).implies((twice == most(0, w - r))
                                                & (none == most(0, r - w))),
            "never both": every(some(twice == 0, none == 0), twice <= w, twice <= i + 1, none < m)}


@theorem("DeepSeek-V4's chunks", *names("entry_columns", "closed_groups"),
         by_hand="a chunk's columns: the last w - 1 raw tokens before it, its own, then all "
                 "entries")
def production_chunk(w, m, first, rows, i):
    """a chunk's rows see the raw tokens and entries that they see in the whole text, and none
    that was dropped.
    """
    positive(w, m, rows)
    assume(0 <= first, 0 <= i, i < rows)
    kept, length = where(first < w - 1, first, w - 1), first + rows
    raw, entries = indices.entry_columns(first + i, w, m, length)
    chunk_raw, chunk_entries = indices.entry_columns(first + i, w, m, rows, first, kept)
    return {"raw tokens": every(*(a == b + first - kept
                                  for a, b in zip(raw, chunk_raw, strict=True))),
            "none was dropped": chunk_raw[0] >= 0,
            "entries": every(*(a - length == b - kept - rows
                               for a, b in zip(entries, chunk_entries, strict=True)))}


# ------------------------------------------------------------ tables that the lab's check accepts


@theorem("intervals of CCA are accepted", *CHECKS, *ROW)
def cca_check(L, g, s, i):
    """the lab's check never refuses them, nor a chunk's: in range, ordered, disjoint, never
    empty, and never moving back.
    """
    positive(L, g, s)
    assume(0 <= i, i < L)
    return accepted(lambda row: cca_row(row, L, g, s), i, L, indices.core_count(L, g, s) + L)


@cca_check.also
def cca_check_chunk(start, stop, g, s, i):
    positive(g, s)
    assume(0 <= start, start <= i, i < stop)
    columns = indices.core_count(stop, g, s) + stop - indices.first_raw(start, g, s)
    return accepted(lambda row: cca_row(row, stop, g, s, start), i, stop, columns)


@theorem("intervals of CCA behind sinks are accepted", *CHECKS, *SINK_ROW)
def cca_sinks_check(start, stop, g, s, S, i):
    """the lab's check never refuses them, nor a chunk's."""
    positive(g, s)
    assume(S >= 0, 0 <= start, start <= i, i < stop)
    first, last = (number(indices.behind_sinks(end, S)) for end in (start, stop))
    columns = stop - indices.first_raw(first, g, s) + indices.core_count(last, g, s)
    return accepted(lambda row: indices.cca_sink_columns(row, start, stop, g, s, S), i, stop,
                    columns)


CAUSAL = "cca_lab.attention.intervals.causal_end"


@theorem("causal intervals are accepted", *CHECKS[:-1], CAUSAL)
def causal_check(rows, columns, i):
    """the lab's check never refuses them, for rows after a cache too."""
    assume(rows <= columns, 0 <= i, i < rows)
    return accepted(lambda row: [(0, checks.causal_end(row, rows, columns))], i, rows, columns)


@theorem("causal intervals", CAUSAL)
def causal(rows, columns, i, j):
    """row i of a chunk sees the columns before it and its own, and no other."""
    assume(rows <= columns, 0 <= i, i < rows, 0 <= j, j < columns)
    return within(j, (0, checks.causal_end(i, rows, columns))).iff(j <= columns - rows + i)


SINKS = names("sink_columns")


@theorem("intervals of sinks are accepted", *CHECKS, *SINKS)
def sinks_check(L, sinks, near, i):
    """the lab's check never refuses those of StreamingLLM, LM-Infinite and the A-shape."""
    positive(L, near)
    assume(sinks >= 0, 0 <= i, i < L)
    return accepted(lambda row: indices.sink_columns(row, sinks, near), i, L, L)


@theorem("sinks and nearest tokens", *SINKS)
def sinks_and_nearest(L, sinks, near, i, t):
    """a row reads the first tokens and its nearest ones, each once, and no other."""
    positive(L, near)
    assume(sinks >= 0, 0 <= i, i < L, 0 <= t, t < L)
    wanted = every(t <= i, some(t < sinks, i - t < near))
    intervals = indices.sink_columns(i, sinks, near)
    return read_once(wanted, [within(t, interval) for interval in intervals])


@theorem("intervals of LongLoRA are accepted", *CHECKS[:-1], *names("block_columns", "head_shift"))
def longlora_check(L, G, heads, h, i):
    """the lab's check never refuses them, for any number of heads."""
    positive(L, G, heads)
    assume(0 <= h, h < heads, 0 <= i, i < L)
    shift = indices.head_shift(h, heads, G)
    return accepted(lambda row: [indices.block_columns(row, shift, G)], i, L, L)


@theorem("LongLoRA's blocks", *names("block_columns", "head_shift"),
         by_hand="the borders, from the specification's loop")
def longlora_blocks(L, G, heads, h, i, t):
    """a row reads from the last border to itself; borders are 0, and shift + k G."""
    positive(L, G, heads)
    assume(0 <= h, h < heads, 0 <= i, i < L)
    start, end = indices.block_columns(i, indices.head_shift(h, heads, G), G)
    start, shift = number(start), where(2 * h >= heads, G // 2, 0)
    return {"begins at a border": some(start == 0, (start - shift) % G == 0),
            "no border inside": every(start < t, t < end).implies((t - shift) % G != 0),
            "ends with the row": every(end == i + 1, start <= i)}
