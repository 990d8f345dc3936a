"""What each row of DGA and LoCoCo reads, for all integers: columns that stand for whole blocks.

Statements as in `rows`, on the functions of `mechanisms.indices`.
"""

from types import SimpleNamespace
from typing import Any

from cca_lab.mechanisms import indices
from cca_lab.mechanisms.dga import mechanism as dga
from cca_lab.mechanisms.lococo import segments
from cca_lab.theory.forall.core import theorem
from cca_lab.theory.forall.rows import CHECKS, accepted, names, positive, read_once, within
from cca_lab.theory.forall.terms import (
    assume,
    divided_by,
    every,
    function,
    lemma,
    number,
    rising,
    some,
    where,
)

# ------------------------------------------------------------- DGA: the choice of tokens is any

PLACES = ("the columns [focal ; groups ; raw], and a token's place among the focal or the other "
          "ones, as in `divide`")


def chosen(L, m, *tokens):
    """Return how many focal tokens come before a token, and 1 if it is one; groups are whole."""
    before = function("focal")
    assume(before(0) == 0, rising(before, [0, L, *(t + k for t in tokens for k in (0, 1))], 1),
           (L - before(L)) % m == 0)
    return before, lambda t: before(t + 1) - before(t)


def prompt_row(i, before, L, m):
    """Return the intervals of a row, choose="prompt"."""
    return indices.prompt_columns(i, before(i + 1), before(i + 1) - before(i), L, before(L), m)


PROMPT = names("prompt_columns", "divided_tokens")


@theorem("DGA's cover", *PROMPT, by_hand=PLACES)
def dga_cover(L, m, i, t):
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
    divided_by(raw[0] - first_raw, m, closed[1] - before(L), 0)
    return {**read_once(t <= i, ways), "one open group": raw[1] - raw[0] <= m,
            "it begins with a group": (raw[0] - first_raw) % m == 0}


@theorem("DGA's intervals are accepted", *CHECKS, *PROMPT, by_hand=PLACES)
def dga_check(L, m, i):
    """the lab's check never refuses those of choose='prompt'."""
    positive(L, m)
    assume(0 <= i, i < L)
    before, _ = chosen(L, m, i, i + 1)
    columns = indices.divided_tokens(L, before(L), m) + L - before(L)
    return accepted(lambda row: prompt_row(row, before, L, m), i, L, columns)


@theorem("DGA's columns by blocks", *names("blocks_columns", "blocks_before"),
         by_hand="every block has the same number of focal tokens, which `check_selection` "
                 "enforces")
def dga_blocks(L, m, focal, groups, i):
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
    return {"focal": every(kept[0] == 0, kept[1] == focal * before),
            "groups": every(closed[0] == focal * count,
                            closed[1] == focal * count + groups * before),
            "raw": every(raw[0] == total + block * before, raw[1] == total + i + 1)}


@theorem("DGA's cover by blocks",
         by_hand="all of it: the columns are those of the theorem before, the places as in "
                 "`divide`")
def dga_blocks_cover(L, m, focal, groups, i, t, rank):
    """in these columns a row reads each token of its past once, and no later one."""
    block = focal + m * groups
    positive(L, m, block)
    assume(focal >= 0, groups >= 0, 0 <= i, i < L, 0 <= t, t < L, 0 <= rank)
    before, home, count = i // block, t // block, (L - 1) // block
    raw = within(t, (block * before, i + 1))

    def read(share):
        pooled = share * home + rank < share * before
        lemma((rank < share).implies(pooled.iff(home < before)))
        once = read_once(t <= i, [pooled, raw])
        return every(rank < share, home < count).implies(every(*once.values()))

    return {"focal token": read(focal), "grouped token": read(groups),
            "token of the last block": (home >= count).implies(raw.iff(t <= i))}


RULE: Any = SimpleNamespace(choose="prompt")  # all that `row_reads` asks of it


@theorem("DGA's specification", *PROMPT, "cca_lab.mechanisms.dga.mechanism.row_reads",
         by_hand="`row_reads` filters lists; it runs on one focal token and on three members of "
                 "one group")
def dga_specification(L, m, i, t, first, last):
    """the intervals show a row what `row_reads` lists."""
    positive(L, m)
    assume(0 <= i, i < L, 0 <= first, first <= t, t <= last, last < L)
    before, focal = chosen(L, m, i, t, first, last)
    kept, closed, raw = prompt_row(i, before, L, m)
    group, column = (t - before(t)) // m, indices.divided_tokens(L, before(L), m) + t - before(t)
    member = every(*(focal(x) == 0 for x in (first, t, last)), first - before(first) == m * group,
                   last - before(last) == m * group + m - 1)
    listed, groups, members = dga.row_reads(i, [t], [[first, t, last]], RULE)
    complete = closed[1] - before(L)
    lemma(every(member, first <= i, i <= last).implies(complete == group),
          every(member, i > last).implies(complete >= group + 1),
          every(member, i > last).implies(m * complete >= m * group + m))
    listed_raw = some(False, *(token == t for token in members))
    return {"focal": (focal(t) == 1).implies(within(before(t), kept).iff(bool(listed))),
            "group": member.implies(within(before(L) + group, closed).iff(bool(groups))),
            "raw": member.implies(within(column, raw).iff(listed_raw))}


@theorem("DGA's leftovers", *names("focal_count"),
         by_hand="floor(gamma L) is any number from 0 to L")
def dga_leftovers(span, m, floor, share):
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
def dga_generated(m):
    """the smallest integer that is 1.1 m or more, and so m + 1 or more."""
    positive(m)
    span = indices.decode_span(m)
    return every(10 * span >= 11 * m, 10 * (span - 1) < 11 * m, span >= m + 1,
                 indices.decode_focal(m) == span - m)


@theorem("DGA's entries",
         *names("dga_entries", "divided_tokens", "decode_span", "decode_focal", "focal_count"))
def dga_entries(times, open, stretch, divided):
    """the closed form counts the divided blocks, or stretches after the prompt, and raw tokens."""
    positive(stretch)
    assume(times >= 0, 0 <= open, open < stretch)
    lemma((times * stretch + open) // stretch == times)
    kept, raw = indices.dga_entries(times * stretch + open, stretch, divided)
    return {"stretches": every(kept == times * divided, raw == open)}


@dga_entries.also
def dga_divided(m, span, share, floor):
    positive(m, span)
    assume(0 <= share, share <= span, floor >= 0)
    focal = indices.focal_count(span, share, floor, m)
    generated = indices.divided_tokens(indices.decode_span(m), indices.decode_focal(m), m)
    groups = indices.divided_tokens(span, focal, m) - focal
    return {"focal tokens and groups": groups * m + focal == span,
            "generated": generated == indices.decode_focal(m) + 1}


# ------------------------------------------------------------ LoCoCo: M slots, segments of B tokens

PASSES = "the induction over the passes of the loop is in words"


@theorem("LoCoCo's segments", *names("segment_end", "segment_size"),
         "cca_lab.mechanisms.lococo.segments.sizes_of",
         by_hand=PASSES + "; one size of segments, not a list")
def lococo_segments(L, B, n):
    """segment n holds the tokens nB to min(L, (n + 1) B) - 1, until all are cut."""
    positive(L, B)
    assume(n >= 0)
    start = where(n * B < L, n * B, L)
    end = number(indices.segment_end(start, L, indices.segment_size(n, segments.sizes_of(B))))
    return {"begins at 0": (n == 0).implies(start == 0),
            "segment": end == where((n + 1) * B < L, (n + 1) * B, L),
            "until all are cut": (start < L).iff(start < end)}


@theorem("LoCoCo's compressions", *names("segment_step", "compresses", "first_compression",
                                               "held_columns"),
         by_hand=PASSES)
def lococo_compressions(B, M, n, size):
    """the closed form of the columns, at most M, is what the loop over segments makes; it
    compresses before every segment from floor(M/B) + 1 on.
    """
    positive(B, M, size)
    assume(n >= 0)
    columns = indices.held_columns(n - 1, B, M) + B if n >= 1 else 0
    full, after = indices.segment_step(columns, size, M)
    first = number(indices.first_compression(M, segments.sizes_of(B)))
    held = number(indices.held_columns(n, B, M))
    return {"columns": number(after) == held + size, "at most M": held <= M,
            "when": (n * B >= first).iff(bool(full))}


def passed(i, n, count, border):
    """Return whether n of the compressions are made for row i: those before borders up to it."""
    return every(0 <= n, n <= count, some(n == 0, indices.has_passed(i, border(n - 1))),
                 some(n == count, ~indices.has_passed(i, border(n))))


def borders(L, count, *numbers):
    """Return the borders of compressions: any that follow each other in the text."""
    border = function("border")
    assume(count >= 0, rising(border, [0, count - 1, *numbers]), border(0) >= 1,
           (count >= 1).implies(border(count - 1) < L))
    return border


BORDERS = ("the borders are any that follow each other in the text; columns are [slots of each "
           "compression ; raw]")


@theorem("LoCoCo's rows", *names("memory_columns", "has_passed"), by_hand=BORDERS)
def lococo_rows(L, M, count, n, i, t, k):
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
def lococo_check(L, M, count, n, after, i):
    """the lab's check never refuses them."""
    positive(L, M)
    assume(0 <= i, i < L)
    border = borders(L, count, n - 1, n, after - 1, after)
    assume(passed(i, n, count, border), passed(i + 1, after, count, border))
    lemma(n <= after)

    def seen(row):
        made = n if row is i else after
        return indices.memory_columns(row, made, where(made == 0, 0, border(made - 1)), count, M)

    return accepted(seen, i, L, count * M + L)


@theorem("LoCoCo's entries", *names("lococo_entries", "lococo_peak", "held_columns"))
def lococo_entries(L, B, M):
    """at most M between segments, and less than the peak M + B within them."""
    positive(L, B, M)
    entries = number(indices.lococo_entries(L, slots=M, segment=B))
    peak = number(indices.lococo_peak(slots=M, segment=B))
    return {"below the peak": entries < peak, "peak": peak == M + B,
            "at most M between segments": (L % B == 0).implies(entries <= M)}
