"""The intervals of all mechanisms: the lab's own check accepts them, and rows see the tokens that they should.

`check_intervals` refuses a start after its end, a column out of range, a row that sees nothing, overlapping
intervals, and a start or end that moves back. That it never refuses is what the kernels rely on.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

import torch

from cca_lab.attention import intervals as attention
from cca_lab.mechanisms import longlora
from cca_lab.mechanisms.cca import groups
from cca_lab.mechanisms.streaming import sinks
from cca_lab.theory.forall import cca
from cca_lab.theory.forall.core import Obligation, Truth, demand, every, integers, sizes, where
from cca_lab.theory.forall.theorem import Theorem, exactly_one, none_of, row_of, within

CHECKED = "in range, ordered, disjoint, never empty, and never moving back"


def accepted(name: str, known: Sequence[Truth], build: Callable[[], tuple[Any, Any]]) -> Iterable[Obligation]:
    """The lab's check accepts a table of intervals for a number of columns.

    Args:
        name: of the obligation.
        known: the hypotheses.
        build: returns the table (1, h, L, n, 2) and the number of columns.
    """
    def statement() -> Truth:
        attention._check_rows(*build())
        return every()

    return demand(name, known, statement)


def check_cca() -> Iterable[Obligation]:
    """CCA's intervals are accepted, for a whole text and for a chunk of a decoder."""
    length, g, s, start = integers("L g s start")
    known = sizes(L=length, g=g, s=s)

    def chunk() -> tuple[Any, Any]:
        raw = length - g * cca.cores_of_row(start, g, s)
        return cca.chunk_table(start, length, g, s), groups.core_count(length, g, s) + raw

    def whole() -> tuple[Any, Any]:
        return cca.table(length, g, s), groups.core_count(length, g, s) + length

    return chain(accepted("CCA's intervals", known, whole),
                 accepted("CCA's intervals of a chunk", [*known, 0 <= start, start < length], chunk))


def check_causal() -> Iterable[Obligation]:
    """The intervals of full attention, also for a chunk after a cache."""
    rows, columns = integers("rows columns")
    known = [*sizes(rows=rows, columns=columns), rows <= columns]
    return accepted("causal intervals", known, lambda: (causal_table(rows, columns), columns))


def causal_table(rows: Any, columns: Any) -> Any:
    """Return the lab's causal intervals."""
    return attention.causal_intervals(rows, columns)


def causal() -> Iterable[Obligation]:
    """Row i of a chunk sees the columns before it and its own."""
    rows, columns, i, j = integers("rows columns i j")
    known = [*sizes(rows=rows, columns=columns), rows <= columns, 0 <= i, i < rows, 0 <= j, j < columns]

    def statement() -> Truth:
        (seen,) = row_of(causal_table(rows, columns), i)
        return within(j, seen).iff(j <= columns - rows + i)

    return demand("causal intervals", known, statement)


def sink_table(first: Any, stop: Any, count: Any, near: Any, dropped: Any = 0) -> Any:
    """Return the lab's intervals of consecutive rows that see sinks and their nearest tokens."""
    return sinks.intervals(torch.arange(first, stop), count, near, dropped)


def check_sinks() -> Iterable[Obligation]:
    """The intervals of StreamingLLM, LM-Infinite and the A-shape."""
    length, count, near = integers("L sinks near")
    known = [*sizes(L=length, near=near), *sizes(0, sinks=count)]
    return accepted("sinks' intervals", known, lambda: (sink_table(0, length, count, near), length))


def sinks_and_nearest() -> Iterable[Obligation]:
    """A row reads the sinks and its nearest tokens, each once, and no other token."""
    length, count, near, i, t = integers("L sinks near i t")
    known = [*sizes(L=length, near=near), *sizes(0, sinks=count), 0 <= i, i < length, 0 <= t, t < length]

    def statement() -> dict[str, Truth]:
        ways = [within(t, part) for part in row_of(sink_table(0, length, count, near), i)]
        wanted = (t <= i) & ((t < count) | (i - t < near))
        return {"once": wanted.implies(exactly_one(ways)), "no other": (~wanted).implies(none_of(ways))}

    return demand("sinks and nearest tokens", known, statement)


def check_longlora() -> Iterable[Obligation]:
    """The intervals of LongLoRA's blocks, shifted and not."""
    length, g, heads = integers("L G heads")
    known = sizes(L=length, G=g, heads=heads)
    return accepted("LongLoRA's intervals", known, lambda: (longlora_table(length, g, heads), length))


def longlora_table(length: Any, g: Any, heads: Any) -> Any:
    """Return the lab's intervals of blocks."""
    return longlora.intervals(length, g, heads)


def longlora_blocks() -> Iterable[Obligation]:
    """A row reads from the last border up to itself; borders are at 0 and at shift, shift + G, ..."""
    length, g, heads, h, i, t = integers("L G heads h i t")
    known = [*sizes(L=length, G=g, heads=heads), 0 <= h, h < heads, 0 <= i, i < length]

    def statement() -> dict[str, Truth]:
        ((start, end),) = row_of(longlora_table(length, g, heads), i, head=h)
        shift = where(2 * h >= heads, g // 2, 0)
        return {"begins at a border": (start == 0) | ((start - shift) % g == 0),
                "no border inside": ((start < t) & (t < end)).implies((t - shift) % g != 0),
                "ends with the row": (end == i + 1) & (start <= i)}

    return demand("LongLoRA's blocks", known, statement)


_CHECK = "cca_lab.attention.intervals._check_rows"
THEOREMS = (
    Theorem("intervals of CCA are accepted", f"the lab's check never refuses them, nor a chunk's: {CHECKED}",
            (_CHECK, "cca_lab.mechanisms.cca.groups.intervals", "cca_lab.mechanisms.cca.groups.chunk_intervals"),
            check_cca),
    Theorem("causal intervals are accepted", "the lab's check never refuses them, for rows after a cache too",
            (_CHECK, "cca_lab.attention.intervals.causal_intervals"), check_causal),
    Theorem("causal intervals", "row i of a chunk sees the columns before it and its own, and no other",
            ("cca_lab.attention.intervals.causal_intervals",), causal),
    Theorem("intervals of sinks are accepted",
            "the lab's check never refuses those of StreamingLLM, LM-Infinite and the A-shape",
            (_CHECK, "cca_lab.mechanisms.streaming.sinks.intervals"), check_sinks),
    Theorem("sinks and nearest tokens", "a row reads the first tokens and its nearest ones, each once, and no other",
            ("cca_lab.mechanisms.streaming.sinks.intervals",), sinks_and_nearest),
    Theorem("intervals of LongLoRA are accepted", "the lab's check never refuses them, for any number of heads",
            (_CHECK, "cca_lab.mechanisms.longlora.intervals"), check_longlora),
    Theorem("LongLoRA's blocks", "a row reads from the last border to itself; borders are 0, and shift + k G",
            ("cca_lab.mechanisms.longlora.intervals",), longlora_blocks, "the borders, from the specification's loop"),
)
