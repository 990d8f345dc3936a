"""Which columns a row sees, what a cache keeps and drops: the index arithmetic of all mechanisms.

Rows, tokens, groups and columns count from 0; intervals are half-open. The functions take whole
numbers of three kinds: Python's, int64 tensors (elementwise, where a docstring says "or tensor"),
and the symbols of `cca_lab.theory.forall`: a solver proves statements on these very functions.
The loops of the specifications write the formulas out, as the papers do.
"""

from typing import Any, NamedTuple

from cca_lab.attention.intervals import maximum, minimum

Interval = tuple[Any, Any]  # start and end, of one row or, as tensors, of many
Range = tuple[int, int]  # tokens, groups or columns [start, stop)


# ------------------------------------------------ CCA-Attention: group size g, local window s


def core_count(length: Any, group: int, window: int) -> Any:
    """Return n(L-1), the cores that the last of L rows (or tensor) sees; no other row sees more.

    n(i) = max(0, floor((i + 1 - s) / g)), the groups older than the s nearest tokens (Eq. 3).
    """
    return maximum((length - window) // group, 0)


def first_raw(row: int, group: int, window: int) -> int:
    """Return g n(i), the first raw token that a row reads: the tokens before it are in cores."""
    return group * core_count(row + 1, group, window)


def raw_column(start: int, stop: int, group: int, window: int) -> int:
    """Return the column of raw token 0 for rows [start, stop): n(stop - 1) - g n(start).

    The columns are [the cores that the last row sees ; the raw tokens from g n(start) on].
    """
    return core_count(stop, group, window) - first_raw(start, group, window)


def cca_columns(row: Any, raw: int, group: int, window: int) -> tuple[Interval, Interval]:
    """Return the columns that a row (or tensor) sees: its cores, and its raw tokens (Eq. 5).

    These are [0, n(i)) and [raw + g n(i), raw + i + 1); `raw` is that of `raw_column`.
    """
    cores = core_count(row + 1, group, window)
    return (0, cores), (raw + group * cores, raw + row + 1)


def cca_is_full(length: int, group: int, window: int) -> bool:
    """Return whether no row reads a core of two tokens: L < g + s (Section 3.2), or g = 1."""
    return length < group + window or group == 1


def cca_pairs(length: int, group: int, window: int) -> int:
    """Return how many query-key pairs are scored: the visible columns of all rows, in closed form.

    Row i reads n(i) cores and i + 1 - g n(i) raw tokens: L(L+1)/2 - (g-1) sum_i n(i) in all. The
    logits of the pooling, at most one for each token, are not counted.
    """
    a, b = divmod(max(0, length - window), group)  # sum of floor(t / g) over t = 1 .. ag + b
    cores_read = group * a * (a - 1) // 2 + a * (b + 1)
    return length * (length + 1) // 2 - (group - 1) * cores_read


def cca_entries(length: int, group: int, window: int) -> int:
    """Return how many entries (a key and a value each) a KV head's cache keeps after L tokens.

    These are floor(L/g) cores, made when their group closes, so that no query has to be stored,
    and the raw tokens [g n(L), L) that row L, the next one, still reads. The paper counts only the
    cores that are already visible, at most ceil((s-1)/g) fewer. With `per_query_head` there is a
    core for every query head.
    """
    return length // group + length - first_raw(length, group, window)


class CCAStep(NamedTuple):
    """What a cache does with a chunk of new tokens, which it stores behind its raw ones.

    Attributes:
        groups: the groups whose last token is in the chunk: they are pooled.
        members: where their tokens are among the stored raw ones.
        earlier: tokens of these groups that came before the chunk.
        cores: how many cores the chunk's rows read, n(stop - 1).
        dropped: raw tokens that no later row reads: all before g n(stop).
    """

    groups: Range
    members: Range
    earlier: int
    cores: int
    dropped: int


def cca_step(start: int, stop: int, group: int, window: int) -> CCAStep:
    """Return what a cache of the tokens before `start` does with the tokens [start, stop).

    It holds the cores of all closed groups, and the raw tokens from g n(start) on.
    """
    first, groups = first_raw(start, group, window), (start // group, stop // group)
    members = group * groups[0] - first, group * groups[1] - first
    return CCAStep(groups, members, start - group * groups[0], core_count(stop, group, window),
                   first_raw(stop, group, window) - first)


def pooled_groups(start: int, stop: int, length: int, group: int, window: int) -> Range:
    """Return the groups that the holder of tokens [start, stop) pools, of a text of L tokens.

    Their last token is there, and some row of the text reads them.
    """
    read = core_count(length, group, window)
    return min(start // group, read), min(stop // group, read)


# ----------------- CCA-Attention behind S sinks: the tokens [S, L) are read as a text of their own


def behind_sinks(tokens: Any, sinks: int) -> Any:
    """Return how many of the first `tokens` (or tensor) stand behind the sinks: max(0, t - S)."""
    return maximum(tokens - sinks, 0)


def cca_sink_columns(row: Any, start: int, stop: int, group: int, window: int,
                     sinks: int) -> tuple[Interval, Interval, Interval]:
    """Return the columns of [cores ; sinks ; raw tokens behind them] that a row (or tensor) sees.

    These are the cores and the raw tokens that row i - S of the text [S, L) sees there, which are
    none for a row i < S, and the sinks [0, min(i + 1, S)). The columns are those of rows [start,
    stop), see `raw_column`: with C cores, min(S, stop) sinks stand from column C on.
    """
    first, last = behind_sinks(start, sinks), behind_sinks(stop, sinks)
    held, raw = stop - last, raw_column(first, last, group, window)
    cores, tokens = cca_columns(behind_sinks(row + 1, sinks) - 1, raw, group, window)
    count = core_count(last, group, window)
    return (cores, (count, count + minimum(row + 1, sinks)),
            (held + tokens[0], held + tokens[1]))


# ----------------------------- StreamingLLM, LM-Infinite, A-shape: sinks and nearest tokens


def sink_columns(row: Any, sinks: int, near: int, dropped: int = 0) -> tuple[Interval, Interval]:
    """Return the columns that a row (or tensor) sees: sinks, then its nearest tokens.

    These are [0, min(sinks, a)) and [a, i + 1) with a = max(0, i + 1 - near), the second less
    `dropped`, the tokens after the sinks that are no longer stored.
    """
    start = maximum(row + 1 - near, 0)
    return (0, minimum(start, sinks)), (start - dropped, row + 1 - dropped)


def sink_entries(length: int, sinks: int, recent: int) -> int:
    """Return how many tokens a cache keeps after L tokens: the sinks and the recent ones."""
    return min(length, sinks + recent)


def sink_dropped(length: int, sinks: int, recent: int) -> int:
    """Return how many tokens a cache has dropped after L tokens: those behind the sinks."""
    return length - sink_entries(length, sinks, recent)


def sink_eviction(stored: int, sinks: int, recent: int) -> Range:
    """Return the columns that a cache drops of those stored: all but sinks and recent tokens."""
    return sinks, max(sinks, stored - recent)


# ------------------------------------------- LongLoRA: blocks of G tokens, half of them shifted


def head_shift(head: Any, heads: int, group: int) -> Any:
    """Return how far the blocks of a head (or tensor) are shifted: G/2 in the second half."""
    return group // 2 * (2 * head >= heads)


def block_columns(row: Any, shift: Any, group: int) -> Interval:
    """Return what a row (or tensor) reads: from the last border, 0 or shift + k G, to itself."""
    return maximum(shift + (row - shift) // group * group, 0), row + 1


# ------------------------------------------ DGA: groups of m tokens between the focal tokens


def divided_tokens(span: int, focal: int, group: int) -> int:
    """Return the columns of a divided stretch: r focal tokens and (span - r) / m groups."""
    return focal + (span - focal) // group


def focal_count(span: int, share: int, floor: int, group: int) -> int:
    """Return the focal tokens of a stretch: max(share, floor), plus leftovers (Section 5.1)."""
    count = min(span, max(share, floor))
    return count + (span - count) % group


def decode_span(group: int) -> int:
    """Return m' = 1.1 m, rounded up: generated tokens that are divided together (Section 5.1)."""
    return -(-11 * group // 10)


def decode_focal(group: int) -> int:
    """Return m' - m, the focal tokens among m' generated ones."""
    return decode_span(group) - group


def blocks_before(length: int, block: int) -> int:
    """Return how many blocks are divided for L rows: those before the block of the last one."""
    return (length - 1) // block


def prompt_columns(row: Any, kept: Any, is_focal: Any, length: int, total: int,
                   group: int) -> tuple[Interval, ...]:
    """Return the columns of [focal ; groups ; raw] that a row (or tensor) sees, choose="prompt".

    Row i sees the focal tokens up to i, the groups with max G_z < i, and the members up to i of the
    group with min G_z <= i <= max G_z (Eq. 15). The raw columns are the non-focal tokens, in order.

    Args:
        row: i.
        kept: focal tokens up to row i.
        is_focal: 1 if token i is one of them, else 0.
        length, total: tokens, and focal tokens, of the text.
        group: m.
    """
    others, raw = row + 1 - kept, divided_tokens(length, total, group)
    closed = (others - (1 - is_focal)) // group  # others before row i, over m
    return (0, kept), (total, total + closed), (raw + group * closed, raw + others)


def blocks_columns(row: Any, length: int, total: int, group: int,
                   block: int) -> tuple[Interval, ...]:
    """Return the columns of [focal ; groups ; raw] that a row (or tensor) sees, choose="blocks".

    Row i sees the focal tokens and groups of the blocks before its own, and its own block up to i.
    The text has L tokens; each divided block has as many of its `total` focal tokens.
    """
    before, count = row // block, blocks_before(length, block)
    focal = total // max(1, count)
    groups = (block - focal) // group
    raw = total + groups * count
    return ((0, focal * before), (total, total + groups * before),
            (raw + block * before, raw + row + 1))


def dga_entries(length: int, stretch: int, divided: int) -> Range:
    """Return divided and raw entries after L tokens, each full stretch becoming `divided`."""
    times, raw = divmod(length, stretch)
    return times * divided, raw


def fill(filled: int, left: int, size: int) -> tuple[int, bool]:
    """Return how many of the `left` tokens an open block or segment takes, and if it is full."""
    taken = min(left, size - filled)
    return taken, filled + taken == size


# ------------------------------------------------ LoCoCo: M slots, segments of B tokens


def segment_end(start: int, length: int, size: int) -> int:
    """Return the end of a segment that begins at `start`, in a text of L tokens."""
    return min(length, start + size)


def compresses(columns: int, slots: int) -> bool:
    """Return whether columns are compressed to M slots: if there are more than M."""
    return columns > slots


def first_compression(slots: int, segment: int) -> int:
    """Return the first token that finds slots in place of raw tokens: it begins a segment."""
    return segment * (slots // segment + 1)


def segment_step(columns: int, size: int, slots: int) -> tuple[bool, int]:
    """Return whether columns are compressed before a segment, and how many there are behind it."""
    full = compresses(columns, slots)
    return full, (slots if full else columns) + size


def has_passed(row: Any, border: Any) -> Any:
    """Return whether a row (or tensor) comes after the compression before token `border`."""
    return row >= border


def memory_columns(row: Any, count: Any, border: Any, total: int,
                   slots: int) -> tuple[Interval, Interval]:
    """Return the columns of [slots of each compression ; raw tokens] that a row (or tensor) sees.

    Args:
        row: i.
        count: n, the compressions up to row i.
        border: r, the token before which the last of them was made, 0 without one.
        total: G, all compressions.
        slots: M.

    Returns:
        The slots [(n-1) M, n M), none if n = 0, and the raw tokens [G M + r, G M + i + 1).
    """
    raw = total * slots
    return (maximum(count - 1, 0) * slots, count * slots), (raw + border, raw + row + 1)


def held_columns(count: int, segment: int, slots: int) -> int:
    """Return the columns after `count` complete segments: min(count B, M)."""
    return minimum(count * segment, slots)


def lococo_entries(length: int, *, slots: int, segment: int) -> int:
    """Return how many entries (a key and a value each) a KV head's cache keeps after L tokens.

    Complete segments are compressed at once: the number rises from at most M by up to B - 1 tokens
    of an open segment.
    """
    count, opened = divmod(length, segment)
    return held_columns(count, segment, slots) + opened


def lococo_peak(*, slots: int, segment: int) -> int:
    """Return the most columns at any time in a long text: the slots and a segment, M + B."""
    return slots + segment


# ------------------------------------ DeepSeek-V4: a window of w tokens, entries of m tokens each


def closed_groups(row: Any, group: int) -> Any:
    """Return how many entries exist for a row (or tensor): floor((i + 1) / m)."""
    return (row + 1) // group


def entry_columns(row: Any, window: int, group: int | None, length: int, first: int = 0,
                  kept: int = 0) -> tuple[Interval, ...]:
    """Return the columns of [raw tokens ; entries] that a row (or tensor) sees.

    Args:
        row: i.
        window, group: w, and m; None for layers without entries.
        length: rows of the text or chunk.
        first: the position of its first row.
        kept: raw tokens before it that stand in front.
    """
    moved, entries = first - kept, kept + length
    nearest = maximum(row + 1 - window, 0) - moved, row + 1 - moved
    if group is None:
        return (nearest,)
    return nearest, (entries, entries + closed_groups(row, group))


def read_twice(row: int, window: int, group: int) -> int:
    """Return how many tokens row i reads raw and inside an entry, without overlap.

    That is max(0, w - r) with r = (i + 1) mod m, or fewer before the window is full.
    """
    return max(0, closed_groups(row, group) * group - max(0, row + 1 - window))


def unread(row: int, window: int, group: int) -> int:
    """Return how many tokens of its past row i does not read at all.

    That is max(0, r - w) with r = (i + 1) mod m, or 0 before the window is full.
    """
    return max(0, max(0, row + 1 - window) - closed_groups(row, group) * group)
