"""What each row reads, for all integers: statements on the functions of `mechanisms.indices`.

A statement is a function of symbolic integers; it assumes hypotheses and returns what follows.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from types import SimpleNamespace
from typing import Any

from cca_lab.attention import intervals as checks
from cca_lab.mechanisms import indices
from cca_lab.mechanisms.dga import row_reads
from cca_lab.mechanisms.lococo import segments
from cca_lab.theory.forall.core import Goals, theorem
from cca_lab.theory.forall.terms import (
    Truth,
    assume,
    every,
    function,
    lemma,
    most,
    number,
    rising,
    some,
    where,
)

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


def within(column: Any, interval: tuple[Any, Any]) -> Truth:
    """Return whether a column is in a half-open interval."""
    return every(number(interval[0]) <= column, column < interval[1])


def read_once(past: Truth, readings: Sequence[Truth]) -> Mapping[str, Truth]:
    """Return that a token of the past is read in one of the ways, and another in none."""
    twice = some(*(every(a, b) for a, b in combinations(readings, 2)))
    return {"past": past.implies(some(*readings) & ~twice), "future": past | ~some(*readings)}


def accepted(seen: Callable[[Any], Intervals], row: Any, rows: Any,
             columns: Any) -> Goals:
    """Return that the lab's check refuses neither a row's intervals nor the next row's after it.

    Args:
        seen: row -> intervals.
        row: any of the rows.
        rows: where they end.
        columns: how many there are.
    """
    here = [(number(start), number(end)) for start, end in seen(row)]
    after = [(number(start), number(end)) for start, end in seen(row + 1)]
    return {"ordered": ~some(*(checks.is_reversed(*one) for one in here)),
            "in range": ~some(*(checks.is_outside(*one, columns) for one in here)),
            "never empty": ~every(*(checks.is_empty(*one) for one in here)),
            "disjoint": ~some(False, *(checks.overlap(a, b) for a, b in combinations(here, 2))),
            "never moves back": (row + 1 < rows).implies(
                ~some(*(checks.moves_back(*pair) for pair in zip(here, after, strict=True))))}


# ------------------------------------------------------------------------------ CCA-Attention

ROW = names("cca_columns", "raw_column", "core_count", "first_raw")


def cca_row(row: Any, length: Any, g: Any, s: Any, start: Any = 0) -> Intervals:
    """Return the intervals of a row of tokens [start, length)."""
    return indices.cca_columns(row, indices.raw_column(start, length, g, s), g, s)


@theorem("CCA's cover", *ROW,
         by_hand="the columns [cores ; raw tokens], in which `CCA.columns` puts keys and values")
def cca_cover(L: Any, g: Any, s: Any, i: Any, t: Any) -> Goals:
    """each row reads each token of its past once, in a core or raw, and no later token."""
    positive(L, g, s)
    assume(0 <= i, i < L, 0 <= t, t < L)
    cores, raw = cca_row(i, L, g, s)
    return read_once(t <= i, [within(t // g, cores), within(indices.core_count(L, g, s) + t, raw)])


@theorem("CCA's window", *ROW)
def cca_window(L: Any, g: Any, s: Any, i: Any) -> Goals:
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
def cca_growth(g: Any, s: Any, i: Any) -> Truth:
    """from row to row one more core is seen, or none."""
    positive(g, s)
    assume(0 <= i)
    before, after = (number(indices.core_count(i + k, g, s)) for k in (1, 2))
    return some(after == before, after == before + 1)


@theorem("CCA's chunks", *ROW,
         by_hand="the columns of a chunk: its cores, then the raw tokens from g n(start) on")
def cca_chunk(start: Any, stop: Any, g: Any, s: Any, i: Any) -> Goals:
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
def cca_exact(L: Any, g: Any, s: Any) -> Truth:
    """`exact_when` is true exactly if no row reads a core of two tokens or more."""
    positive(L, g, s)
    full = bool(indices.cca_is_full(L, g, s))
    return every(number(indices.core_count(L, g, s)) >= 1, g >= 2).iff(not full)


@theorem("CCA's entries", *names("cca_entries", "first_raw", "core_count"))
def cca_entries(L: Any, g: Any, s: Any) -> Goals:
    """a decoder keeps floor(L/g) cores and the raw tokens that row L reads, at most s + g - 2."""
    positive(L, g, s)
    raw = indices.cca_entries(L, g, s) - L // g
    return {"raw tokens of the next row": raw == L - g * indices.core_count(L + 1, g, s),
            "bound": every(0 <= raw, raw <= s + g - 2)}


@theorem("CCA's pairs", *names("cca_pairs", "cca_columns", "core_count"),
         by_hand="the induction over rows is in words")
def cca_pairs(L: Any, g: Any, s: Any) -> Goals:
    """the closed form of the scored pairs grows by the columns that each new row sees."""
    positive(L, g, s)
    assume(L < s)
    return {"before the first core": grows(L, g, s)}


@cca_pairs.also
def cca_pairs_inside(g: Any, s: Any, a: Any, b: Any) -> Goals:
    positive(g, s)
    assume(a >= 0, 0 <= b, b + 1 < g)
    return {"inside of a group": grows(s + a * g + b, g, s)}


@cca_pairs.also
def cca_pairs_at_the_end(g: Any, s: Any, a: Any) -> Goals:
    positive(g, s)
    assume(a >= 0)
    return {"at the end of a group": grows(s + a * g + g - 1, g, s)}


def grows(length: Any, g: Any, s: Any) -> Truth:
    """Return that one row more adds the columns that it sees."""
    (first, n), (start, end) = indices.cca_columns(length, 0, g, s)
    before, after = (indices.cca_pairs(rows, g, s) for rows in (length, length + 1))
    return after == before + (n - first) + (end - start)


# ------------------------------------------------------------- DGA: the choice of tokens is any

PLACES = ("the columns [focal ; groups ; raw], and a token's place among the focal or the other ones, "
          "as in `divide`")


def chosen(L: Any, m: Any, *tokens: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return how many focal tokens come before one, and 1 if it is one: any that leave whole groups.

    Args:
        L, m: length and group size.
        tokens: of which these numbers are asked.
    """
    before = function("focal")
    assume(before(0) == 0, rising(before, [0, L, *(t + k for t in tokens for k in (0, 1))], 1),
           (L - before(L)) % m == 0)
    return before, lambda t: before(t + 1) - before(t)


def prompt_row(i: Any, before: Callable[[Any], Any], L: Any, m: Any) -> Intervals:
    """Return the intervals of a row, choose="prompt"."""
    return indices.prompt_columns(i, before(i + 1), before(i + 1) - before(i), L, before(L), m)


PROMPT = names("prompt_columns", "divided_tokens")


@theorem("DGA's cover", *PROMPT, by_hand=PLACES)
def dga_cover(L: Any, m: Any, i: Any, t: Any) -> Goals:
    """for any choice of focal tokens that leaves whole groups, each row reads each token of its
    past once and no later one, and at most one group is open.
    """
    positive(L, m)
    assume(0 <= i, i < L, 0 <= t, t < L)
    before, focal = chosen(L, m, i, t)
    kept, closed, raw = prompt_row(i, before, L, m)
    first_raw, others = indices.divided_tokens(L, before(L), m), t - before(t)
    marked = focal(t) == 1
    ways = [marked & within(before(t), kept), ~marked & within(before(L) + others // m, closed),
            ~marked & within(first_raw + others, raw)]
    return {**read_once(t <= i, ways),
            "one open group": every(raw[1] - raw[0] <= m, (raw[0] - first_raw) % m == 0)}


@theorem("DGA's intervals are accepted", *CHECKS, *PROMPT, by_hand=PLACES)
def dga_check(L: Any, m: Any, i: Any) -> Goals:
    """the lab's check never refuses those of choose='prompt'."""
    positive(L, m)
    assume(0 <= i, i < L)
    before, _ = chosen(L, m, i, i + 1)
    columns = indices.divided_tokens(L, before(L), m) + L - before(L)
    return accepted(lambda row: prompt_row(row, before, L, m), i, L, columns)


@theorem("DGA's columns by blocks", *names("blocks_columns", "blocks_before"),
         by_hand="every block has the same number of focal tokens, which `check_selection` "
                 "enforces")
def dga_blocks(L: Any, m: Any, focal: Any, groups: Any, i: Any) -> Goals:
    """a row sees the focal tokens and groups of the blocks before its own, then its own block
    up to itself.
    """
    block = focal + m * groups
    positive(L, m, block)
    assume(focal >= 0, groups >= 0, 0 <= i, i < L)
    count = (L - 1) // block
    if count >= 1:
        lemma((focal * count) // count == focal, (m * groups) // m == groups)
    kept, closed, raw = indices.blocks_columns(i, L, focal * count, m, block)
    before, total = i // block, (focal + groups) * count
    return {
        "focal": every(kept[0] == 0, kept[1] == focal * before),
        "groups": every(closed[0] == focal * count, closed[1] == focal * count + groups * before),
        "raw": every(raw[0] == total + block * before, raw[1] == total + i + 1)
    }


@theorem("DGA's cover by blocks",
         by_hand="all of it: the columns are those of the theorem before, the places as in "
                 "`divide`")
def dga_blocks_cover(L: Any, m: Any, focal: Any, groups: Any, i: Any, t: Any,
                     rank: Any) -> Goals:
    """in these columns a row reads each token of its past once, and no later one."""
    block = focal + m * groups
    positive(L, m, block)
    assume(focal >= 0, groups >= 0, 0 <= i, i < L, 0 <= t, t < L, 0 <= rank)
    before, home, count = i // block, t // block, (L - 1) // block
    raw = within(t, (block * before, i + 1))

    def read(share: Any) -> Truth:
        pooled = share * home + rank < share * before
        lemma((rank < share).implies(pooled.iff(home < before)))
        once = read_once(t <= i, [pooled, raw])
        return every(rank < share, home < count).implies(every(*once.values()))

    return {"focal token": read(focal), "grouped token": read(groups),
            "token of the last block": (home >= count).implies(raw.iff(t <= i))}


@theorem("DGA's specification", *PROMPT, "cca_lab.mechanisms.dga.mechanism.row_reads",
         by_hand="`row_reads` filters lists; it runs on one focal token and on three members of "
                 "one group")
def dga_specification(L: Any, m: Any, i: Any, t: Any, first: Any, last: Any) -> Goals:
    """the intervals show a row what `row_reads` lists."""
    positive(L, m)
    assume(0 <= i, i < L, 0 <= first, first <= t, t <= last, last < L)
    before, focal = chosen(L, m, i, t, first, last)
    kept, closed, raw = prompt_row(i, before, L, m)
    group, column = (t - before(t)) // m, indices.divided_tokens(L, before(L), m) + t - before(t)
    member = every(*(focal(x) == 0 for x in (first, t, last)), first - before(first) == m * group,
                   last - before(last) == m * group + m - 1)
    listed, groups, members = row_reads(i, [t], [[first, t, last]],
                                                 SimpleNamespace(choose="prompt"))
    complete = closed[1] - before(L)
    lemma(every(member, first <= i, i <= last).implies(complete == group),
          every(member, i > last).implies(complete >= group + 1),
          every(member, i > last).implies(m * complete >= m * group + m))
    return {
        "focal": (focal(t) == 1).implies(within(before(t), kept).iff(bool(listed))),
        "group": member.implies(within(before(L) + group, closed).iff(bool(groups))),
        "raw": member.implies(
            within(column, raw).iff(some(False, *(token == t for token in members))))
    }


@theorem("DGA's leftovers", *names("focal_count"),
         by_hand="floor(gamma L) is any number from 0 to L")
def dga_leftovers(span: Any, m: Any, floor: Any, share: Any) -> Truth:
    """the number of focal tokens leaves whole groups, is at least what share and floor ask for,
    and at most m - 1 more.
    """
    positive(span, m)
    assume(floor >= 0, 0 <= share, share <= span)
    focal = number(indices.focal_count(span, share, floor, m))
    return every((span - focal) % m == 0, focal <= span, share <= focal,
                 some(floor <= focal, focal == span), (share >= floor).implies(focal - share < m),
                 every(share < floor, floor <= span).implies(focal - floor < m))


@theorem("DGA's m'", *names("decode_span", "decode_focal"))
def dga_generated(m: Any) -> Truth:
    """the smallest integer that is 1.1 m or more, and so m + 1 or more."""
    positive(m)
    span = indices.decode_span(m)
    return every(10 * span >= 11 * m, 10 * (span - 1) < 11 * m, span >= m + 1,
                 indices.decode_focal(m) == span - m)


@theorem("DGA's entries",
         *names("dga_entries", "divided_tokens", "decode_span", "decode_focal", "focal_count"))
def dga_entries(times: Any, open: Any, stretch: Any, divided: Any) -> Goals:
    """the closed form counts the divided blocks, or stretches after the prompt, and raw tokens."""
    positive(stretch)
    assume(times >= 0, 0 <= open, open < stretch)
    lemma((times * stretch + open) // stretch == times)
    kept, raw = indices.dga_entries(times * stretch + open, stretch, divided)
    return {"stretches": every(kept == times * divided, raw == open)}


@dga_entries.also
def dga_divided(m: Any, span: Any, share: Any, floor: Any) -> Goals:
    positive(m, span)
    assume(0 <= share, share <= span, floor >= 0)
    focal = indices.focal_count(span, share, floor, m)
    generated = indices.divided_tokens(indices.decode_span(m), indices.decode_focal(m), m)
    return {
        "focal tokens and groups": (indices.divided_tokens(span, focal, m) - focal) * m +
        focal == span, "generated": generated == indices.decode_focal(m) + 1
    }


# ------------------------------------------------------------ LoCoCo: M slots, segments of B tokens

PASSES = "the induction over the passes of the loop is in words"


@theorem("LoCoCo's segments", *names("segment_end", "segment_size"),
         "cca_lab.mechanisms.lococo.segments.sizes_of",
         by_hand=PASSES + "; one size of segments, not a list")
def lococo_segments(L: Any, B: Any, n: Any) -> Goals:
    """segment n holds the tokens nB to min(L, (n + 1) B) - 1, until all are cut."""
    positive(L, B)
    assume(n >= 0)
    start = where(n * B < L, n * B, L)
    end = number(indices.segment_end(start, L, indices.segment_size(n, segments.sizes_of(B))))
    return {"begins at 0": (n == 0).implies(start == 0),
            "segment": end == where((n + 1) * B < L, (n + 1) * B, L),
            "until all are cut": (start < L).iff(start < end)}


@theorem("LoCoCo's compressions", *names("segment_step", "compresses", "held_columns"),
         by_hand=PASSES)
def lococo_compressions(B: Any, M: Any, b: Any, n: Any, size: Any) -> Goals:
    """the closed form of the columns is what the loop over segments makes; it compresses first
    at segment floor((M + b)/B) + 1, then every floor(b/B) + 1.
    """
    positive(B, M, size)
    assume(b >= 0, n >= 0)
    period, first = b // B + 1, (M + b) // B + 1
    columns = indices.held_columns(n - 1, B, M, b) + B if n >= 1 else 0
    full, after = indices.segment_step(columns, size, M, b)
    due = (n >= first) & ((n - first) % period == 0)
    return {"columns": number(after) == indices.held_columns(n, B, M, b) + size,
            "when": due.iff(bool(full))}


@lococo_compressions.also
def lococo_bound(B: Any, M: Any, b: Any, n: Any) -> Goals:
    positive(B, M)
    assume(b >= 0, n >= 0)
    return {"at most M + b": number(indices.held_columns(n, B, M, b)) <= M + b}


def passed(i: Any, n: Any, count: Any, border: Callable[[Any], Any]) -> Truth:
    """Return whether n of the compressions are made for row i.

    Those before the borders up to it.
    """
    return every(0 <= n, n <= count, some(n == 0, indices.has_passed(i, border(n - 1))),
                 some(n == count, ~indices.has_passed(i, border(n))))


def borders(L: Any, count: Any, *numbers: Any) -> Callable[[Any], Any]:
    """Return the borders of compressions: any that follow each other in the text."""
    border = function("border")
    assume(count >= 0, rising(border, [0, count - 1, *numbers]), border(0) >= 1,
           (count >= 1).implies(border(count - 1) < L))
    return border


BORDERS = ("the borders are any that follow each other in the text; columns are [slots of each "
           "compression ; raw]")


@theorem("LoCoCo's rows", *names("memory_columns", "has_passed"), by_hand=BORDERS)
def lococo_rows(L: Any, M: Any, count: Any, n: Any, i: Any, t: Any, k: Any) -> Goals:
    """a row reads the M slots of the last compression before it, and each raw token from its
    border to itself.
    """
    positive(L, M)
    assume(0 <= i, i < L, 0 <= t, t < L, 0 <= k, k < count)
    border = borders(L, count, n - 1, n, k)
    assume(passed(i, n, count, border))
    begin = where(n == 0, 0, border(n - 1))
    (first, end), raw = indices.memory_columns(i, n, begin, count, M)
    return {"slots": every(end == n * M, first == where(n == 0, 0, (n - 1) * M)),
            "raw": within(count * M + t, raw).iff((begin <= t) & (t <= i)),
            "the last compression": (k < n).iff(border(k) <= i),
            "slots come first": end <= count * M}


@theorem("LoCoCo's intervals are accepted", *CHECKS, *names("memory_columns", "has_passed"),
         by_hand="borders as above")
def lococo_check(L: Any, M: Any, count: Any, n: Any, after: Any, i: Any) -> Goals:
    """the lab's check never refuses them."""
    positive(L, M)
    assume(0 <= i, i < L)
    border = borders(L, count, n - 1, n, after - 1, after)
    assume(passed(i, n, count, border), passed(i + 1, after, count, border))
    lemma(n <= after)

    def seen(row: Any) -> Intervals:
        made = n if row is i else after
        return indices.memory_columns(row, made, where(made == 0, 0, border(made - 1)), count, M)

    return accepted(seen, i, L, count * M + L)


@theorem("LoCoCo's entries", *names("lococo_entries", "lococo_peak", "held_columns"))
def lococo_entries(L: Any, B: Any, M: Any, b: Any) -> Goals:
    """at most M + b between segments if eager; a lazy cache keeps as much or more, and never
    more than the peak, which is at most M + b + B.
    """
    positive(L, B, M)
    assume(b >= 0)
    options = {"slots": M, "segment": B, "buffer": b}
    eager, lazy = (indices.lococo_entries(L, when=when, **options) for when in ("eager", "lazy"))
    peak = number(indices.lococo_peak(**options))
    return {
        "lazy keeps as much or more": eager <= lazy, "peak": lazy <= peak, "bound": peak
        <= M + b + B, "eager is M + b between segments": (L % B == 0).implies(eager <= M + b)
    }


# -------------------------------------------- DeepSeek-V4: a window beside entries of closed groups


@theorem("DeepSeek-V4's reads", *names("entry_columns", "closed_groups", "read_twice", "unread"),
         by_hand="the columns [raw tokens ; entries]; no overlap and no choice of entries")
def production_reads(L: Any, w: Any, m: Any, i: Any, t: Any) -> Goals:
    """with every closed entry visible, row i reads max(0, w - r) tokens twice and max(0, r - w)
    not at all, r = (i + 1) mod m, once the window is full: those between the window's first
    token and the open group's, in this order or the other.
    """
    positive(L, w, m)
    assume(0 <= i, i < L, 0 <= t, t < L)
    visible, entries = indices.entry_columns(i, w, m, L)
    raw, pooled = within(t, visible), within(L + t // m, entries)
    window, closed = most(
        0, i + 1 - w), i + 1 - (i + 1) % m  # the first raw token, the first in no entry
    r = (i + 1) % m
    twice, none = (number(count(i, w, m)) for count in (indices.read_twice, indices.unread))
    return {
        "raw": raw.iff((window <= t) & (t <= i)), "in an entry": pooled.iff(t < closed),
        "twice": (raw & pooled).iff((window <= t) & (t < closed)),
        "not at all": ((t <= i) & ~raw & ~pooled).iff((closed <= t) & (t < window)),
        "future": (t > i).implies(~raw & ~pooled),
        "how many": (twice == most(0, closed - window)) & (none == most(0, window - closed)),
        "full window": (i + 1 >= w).implies((twice == most(0, w - r)) & (none == most(0, r - w))),
        "never both": every(some(twice == 0, none == 0), twice <= w, twice <= i + 1, none < m)
    }


@theorem("DeepSeek-V4's chunks", *names("entry_columns", "closed_groups"),
         by_hand="a chunk's columns: the last w - 1 raw tokens before it, its own, then all "
                 "entries")
def production_chunk(w: Any, m: Any, first: Any, rows: Any, i: Any) -> Goals:
    """a chunk's rows see the raw tokens and entries that they see in the whole text, and none
    that was dropped.
    """
    positive(w, m, rows)
    assume(0 <= first, 0 <= i, i < rows)
    kept, length = where(first < w - 1, first, w - 1), first + rows
    raw, entries = indices.entry_columns(first + i, w, m, length)
    chunk_raw, chunk_entries = indices.entry_columns(first + i, w, m, rows, first, kept)
    return {
        "raw tokens": every(*(a == b + first - kept for a, b in zip(raw, chunk_raw, strict=True))),
        "none was dropped": chunk_raw[0] >= 0,
        "entries": every(*(a - length == b - kept - rows
                           for a, b in zip(entries, chunk_entries, strict=True)))
    }


# ------------------------------------------------------------ tables that the lab's check accepts


@theorem("intervals of CCA are accepted", *CHECKS, *ROW)
def cca_check(L: Any, g: Any, s: Any, i: Any) -> Goals:
    """the lab's check never refuses them, nor a chunk's: in range, ordered, disjoint, never
    empty, and never moving back.
    """
    positive(L, g, s)
    assume(0 <= i, i < L)
    return accepted(lambda row: cca_row(row, L, g, s), i, L, indices.core_count(L, g, s) + L)


@cca_check.also
def cca_check_chunk(start: Any, stop: Any, g: Any, s: Any, i: Any) -> Goals:
    positive(g, s)
    assume(0 <= start, start <= i, i < stop)
    columns = indices.core_count(stop, g, s) + stop - indices.first_raw(start, g, s)
    return accepted(lambda row: cca_row(row, stop, g, s, start), i, stop, columns)


CAUSAL = "cca_lab.attention.intervals.causal_end"


@theorem("causal intervals are accepted", *CHECKS[:-1], CAUSAL)
def causal_check(rows: Any, columns: Any, i: Any) -> Goals:
    """the lab's check never refuses them, for rows after a cache too."""
    assume(rows <= columns, 0 <= i, i < rows)
    return accepted(lambda row: [(0, checks.causal_end(row, rows, columns))], i, rows, columns)


@theorem("causal intervals", CAUSAL)
def causal(rows: Any, columns: Any, i: Any, j: Any) -> Truth:
    """row i of a chunk sees the columns before it and its own, and no other."""
    assume(rows <= columns, 0 <= i, i < rows, 0 <= j, j < columns)
    return within(j, (0, checks.causal_end(i, rows, columns))).iff(j <= columns - rows + i)


SINKS = names("sink_columns")


@theorem("intervals of sinks are accepted", *CHECKS, *SINKS)
def sinks_check(L: Any, sinks: Any, near: Any, i: Any) -> Goals:
    """the lab's check never refuses those of StreamingLLM, LM-Infinite and the A-shape."""
    positive(L, near)
    assume(sinks >= 0, 0 <= i, i < L)
    return accepted(lambda row: indices.sink_columns(row, sinks, near), i, L, L)


@theorem("sinks and nearest tokens", *SINKS)
def sinks_and_nearest(L: Any, sinks: Any, near: Any, i: Any, t: Any) -> Goals:
    """a row reads the first tokens and its nearest ones, each once, and no other."""
    positive(L, near)
    assume(sinks >= 0, 0 <= i, i < L, 0 <= t, t < L)
    wanted = every(t <= i, some(t < sinks, i - t < near))
    return read_once(wanted, [within(t, part) for part in indices.sink_columns(i, sinks, near)])


@theorem("intervals of LongLoRA are accepted", *CHECKS[:-1], *names("block_columns", "head_shift"))
def longlora_check(L: Any, G: Any, heads: Any, h: Any, i: Any) -> Goals:
    """the lab's check never refuses them, for any number of heads."""
    positive(L, G, heads)
    assume(0 <= h, h < heads, 0 <= i, i < L)
    shift = indices.head_shift(h, heads, G)
    return accepted(lambda row: [indices.block_columns(row, shift, G)], i, L, L)


@theorem("LongLoRA's blocks", *names("block_columns", "head_shift"),
         by_hand="the borders, from the specification's loop")
def longlora_blocks(L: Any, G: Any, heads: Any, h: Any, i: Any, t: Any) -> Goals:
    """a row reads from the last border to itself; borders are 0, and shift + k G."""
    positive(L, G, heads)
    assume(0 <= h, h < heads, 0 <= i, i < L)
    start, end = indices.block_columns(i, indices.head_shift(h, heads, G), G)
    start, shift = number(start), where(2 * h >= heads, G // 2, 0)
    return {"begins at a border": some(start == 0, (start - shift) % G == 0),
            "no border inside": every(start < t, t < end).implies((t - shift) % G != 0),
            "ends with the row": every(end == i + 1, start <= i)}
