"""CCA-Attention: what each row reads, from the functions in `cca_lab.mechanisms.cca.groups`."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from cca_lab.mechanisms.cca import groups
from cca_lab.mechanisms.cca.mechanism import Grouped
from cca_lab.theory.forall.core import Obligation, Truth, demand, integers, least, number, sizes
from cca_lab.theory.forall.theorem import (
    Interval,
    Theorem,
    as_number,
    exactly_one,
    none_of,
    row_of,
    shadowed,
    unmemoised,
    within,
)


def table(length: Any, g: Any, s: Any) -> Any:
    """Return the lab's intervals of a text of symbolic length, a `Grid`."""
    return unmemoised(groups.intervals)(length, g, s)


def chunk_table(start: Any, stop: Any, g: Any, s: Any) -> Any:
    """Return the lab's intervals of the rows of a chunk, a `Grid`."""
    with shadowed(groups, int=as_number):
        return unmemoised(groups.chunk_intervals)(start, stop, g, s)


def cores_of_row(row: Any, g: Any, s: Any) -> Any:
    """Return n(i) as the lab computes it."""
    seen: Any = groups.visible_cores(row + 1, g, s)
    return seen.at(row)


def readings(intervals: list[Interval], token: Any, cores: Any, g: Any) -> list[Truth]:
    """Return in which ways a row reads a token: inside of core floor(t / g), or raw in column C + t."""
    visible, raw = intervals
    return [within(token // g, visible), within(cores + token, raw)]


def cover() -> Iterable[Obligation]:
    """Every token of the past is read once, and no other token is."""
    length, g, s, i, t = integers("L g s i t")

    def statement() -> Mapping[str, Truth]:
        ways = readings(row_of(table(length, g, s), i), t, groups.core_count(length, g, s), g)
        return {"past": (t <= i).implies(exactly_one(ways)), "future": (t > i).implies(none_of(ways))}

    return demand("CCA's cover", [*sizes(L=length, g=g, s=s), 0 <= i, i < length, 0 <= t, t < length], statement)


def window() -> Iterable[Obligation]:
    """The raw window and the cores of a row have the sizes that the papers and the cache rely on."""
    length, g, s, i = integers("L g s i")

    def statement() -> Mapping[str, Truth]:
        (first, n), (start, end) = row_of(table(length, g, s), i)
        raw, count = end - start, groups.core_count(length, g, s)
        return {"raw and pooled tokens are the past": (first == 0) & (raw + g * n == i + 1),
                "bounds": (least(s, i + 1) <= raw) & (raw <= s + g - 1),
                "formula": (i + 1 >= s).implies(raw == s + (i + 1 - s) % g),
                "cores are older than the window": (n == 0) | (g * n + s <= i + 1),
                "cores before the last row's": (0 <= n) & (n <= count),
                "the last row sees all": (i == length - 1).implies(n == count)}

    return demand("CCA's window", [*sizes(L=length, g=g, s=s), 0 <= i, i < length], statement)


def growth() -> Iterable[Obligation]:
    """From row to row a core is added or none."""
    length, g, s, i = integers("L g s i")

    def statement() -> Truth:
        n: Any = groups.visible_cores(length, g, s)
        before, after = n.at(i), n.at(i + 1)
        return (after == before) | (after == before + 1)

    return demand("CCA's cores", [*sizes(L=length, g=g, s=s), 0 <= i, i + 1 < length], statement)


def chunk() -> Iterable[Obligation]:
    """The intervals of a chunk show its rows what the intervals of the whole text show them."""
    start, stop, g, s, i = integers("start stop g s i")

    def statement() -> Mapping[str, Truth]:
        (first, n), raw = row_of(table(stop, g, s), i)
        (chunk_first, chunk_n), chunk_raw = row_of(chunk_table(start, stop, g, s), i - start)
        cores, dropped = groups.core_count(stop, g, s), g * cores_of_row(start, g, s)
        return {"cores": (first == chunk_first) & (n == chunk_n),
                "raw tokens": (raw[0] == chunk_raw[0] + dropped) & (raw[1] == chunk_raw[1] + dropped),
                "none was dropped": raw[0] - cores >= dropped}

    return demand("CCA's chunks", [*sizes(g=g, s=s, stop=stop), 0 <= start, start <= i, i < stop], statement)


def exact() -> Iterable[Obligation]:
    """`exact_when` is true exactly if no row reads a core of more than one token."""
    length, g, s = integers("L g s")

    def statement() -> Truth:
        pooled = (groups.core_count(length, g, s) >= 1) & (g >= 2)
        return (~pooled).iff(Grouped(group=g, window=s).exact_when(length))

    return demand("CCA is full attention", sizes(L=length, g=g, s=s), statement)


def entries() -> Iterable[Obligation]:
    """The closed form of a decoder's entries."""
    length, g, s = integers("L g s")

    def statement() -> Mapping[str, Truth]:
        kept, cores = groups.cache_tokens(length, g, s), cores_of_row(length, g, s)
        raw = kept - length // g
        return {"raw tokens of the next row": raw == length - g * cores, "bound": (0 <= raw) & (raw <= s + g - 2)}

    return demand("CCA's entries", [*sizes(L=length + 1, g=g, s=s), length >= 1], statement)


def scored() -> Iterable[Obligation]:
    """The closed form of the scored pairs: one row more adds the columns that it sees."""
    g, s, a, b, row = integers("g s a b L")

    def grows(length: Any) -> Truth:
        (first, n), (start, end) = row_of(table(length + 1, g, s), length)
        before, after = (number(groups.pairs(rows, g, s)) for rows in (length, length + 1))
        return after == before + (n - first) + (end - start)

    lengths = {"before the first core": (row, [row < s]),
               "inside of a group": (s + a * g + b, [a >= 0, 0 <= b, b + 1 < g]),
               "at the end of a group": (s + a * g + g - 1, [a >= 0])}
    for name, (length, known) in lengths.items():
        yield from demand(f"CCA's pairs, {name}", [*known, *sizes(g=g, s=s, L=length, next=length + 1)],
                          partial(grows, length))


_ROW = ("cca_lab.mechanisms.cca.groups.intervals", "cca_lab.mechanisms.cca.groups.visible_cores",
        "cca_lab.mechanisms.cca.groups.cores_of_rows", "cca_lab.mechanisms.cca.groups.core_count")
_LAYOUT = "the columns [cores ; raw tokens], in which `CCA.columns` puts keys and values"
THEOREMS = (
    Theorem("CCA's cover", "each row reads each token of its past once, in a core or raw, and no later token", _ROW,
            cover, _LAYOUT),
    Theorem("CCA's window", "min(s, i + 1) to s + g - 1 raw tokens, and s + ((i + 1 - s) mod g) once there are s; "
            "cores end s tokens before the row's end; no row sees more cores than the last", _ROW, window),
    Theorem("CCA's cores", "from row to row one more core is seen, or none", _ROW[1:3], growth),
    Theorem("CCA's chunks", "a chunk's intervals show its rows the cores and raw tokens that the whole text's show "
            "them, and none that was dropped", (*_ROW, "cca_lab.mechanisms.cca.groups.chunk_intervals"), chunk,
            "the columns of a chunk: its cores, then the raw tokens from g n(start) on"),
    Theorem("CCA is full attention", "`exact_when` is true exactly if no row reads a core of two tokens or more",
            ("cca_lab.mechanisms.cca.mechanism.Grouped.exact_when", "cca_lab.mechanisms.cca.groups.core_count"), exact),
    Theorem("CCA's entries", "a decoder keeps floor(L/g) cores and the raw tokens that row L reads, at most s + g - 2",
            ("cca_lab.mechanisms.cca.groups.cache_tokens", *_ROW[1:]), entries),
    Theorem("CCA's pairs", "the closed form of the scored pairs grows by the columns that each new row sees",
            ("cca_lab.mechanisms.cca.groups.pairs", *_ROW), scored, "the induction over rows is in words"),
)
