"""DeepSeek-V4's window beside its entries: which tokens a row reads twice, and which not at all."""

from collections.abc import Iterable, Mapping
from typing import Any

from cca_lab.mechanisms.production import deepseek_v4 as reading
from cca_lab.theory.forall.core import Obligation, Truth, demand, every, integers, least, most, sizes
from cca_lab.theory.forall.theorem import Theorem, row_of, unmemoised, within


def table(length: Any, w: Any, m: Any, first: Any = 0, kept: Any = 0) -> Any:
    """Return the lab's intervals of the rows of a text or a chunk, all entries visible, a `Grid`."""
    return unmemoised(reading.intervals)(length, w, m, first, kept)


def reads() -> Iterable[Obligation]:
    """A token of the past is read raw, in an entry, both or not at all, by closed forms; no later one is."""
    length, w, m, i, t = integers("L w m i t")

    def statement() -> Mapping[str, Truth]:
        visible, entries = row_of(table(length, w, m), i)
        raw, pooled = within(t, visible), within(length + t // m, entries)
        window, closed = most(0, i + 1 - w), i + 1 - (i + 1) % m  # the first raw token, and the first one in no entry
        r = (i + 1) % m
        twice, none = reading.read_twice(i, w, m), reading.unread(i, w, m)
        return {"raw": raw.iff((window <= t) & (t <= i)), "in an entry": pooled.iff(t < closed),
                "twice": (raw & pooled).iff((window <= t) & (t < closed)),
                "not at all": ((t <= i) & ~raw & ~pooled).iff((closed <= t) & (t < window)),
                "future": (t > i).implies(~raw & ~pooled),
                "how many": (twice == most(0, closed - window)) & (none == most(0, window - closed)),
                "full window": (i + 1 >= w).implies((twice == most(0, w - r)) & (none == most(0, r - w))),
                "never both": every((twice == 0) | (none == 0), twice <= least(w, i + 1), none < m)}

    known = [*sizes(L=length, w=w, m=m), 0 <= i, i < length, 0 <= t, t < length]
    return demand("DeepSeek-V4's reads", known, statement)


def chunk() -> Iterable[Obligation]:
    """The rows of a chunk see what they see in the whole text."""
    length, w, m, first, count, kept, i = integers("L w m first rows kept i")

    def statement() -> Mapping[str, Truth]:
        (start, end), entries = row_of(table(length, w, m), first + i)
        (chunk_start, chunk_end), chunk_entries = row_of(table(count, w, m, first, kept), i)
        dropped = first - kept
        return {"raw tokens": (start == chunk_start + dropped) & (end == chunk_end + dropped),
                "none was dropped": chunk_start >= 0,
                "entries": (entries[0] - length == chunk_entries[0] - kept - count)
                & (entries[1] - length == chunk_entries[1] - kept - count)}

    known = [*sizes(L=length, w=w, m=m, rows=count), 0 <= first, first + count == length, 0 <= i, i < count,
             kept == least(first, w - 1)]
    return demand("DeepSeek-V4's chunks", known, statement)


_READING = "cca_lab.mechanisms.production.deepseek_v4."
THEOREMS = (
    Theorem("DeepSeek-V4's reads", "with every closed entry visible, row i reads max(0, w - r) tokens twice and "
            "max(0, r - w) not at all, r = (i + 1) mod m, once the window is full: those between the window's first "
            "token and the open group's, in this order or the other", (
                f"{_READING}intervals", f"{_READING}closed_groups", f"{_READING}read_twice", f"{_READING}unread"),
            reads, "the columns [raw tokens ; entries]; no overlap and no choice of entries"),
    Theorem("DeepSeek-V4's chunks", "a chunk's rows see the raw tokens and entries that they see in the whole text, "
            "and none that was dropped", (f"{_READING}intervals", f"{_READING}closed_groups"), chunk,
            "a chunk's columns: the last w - 1 raw tokens before it, its own, then all entries"),
)
