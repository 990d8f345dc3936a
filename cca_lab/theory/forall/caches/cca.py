"""The cache of CCA-Attention: all cores, and the raw tokens that later rows still read."""

from collections.abc import Iterable, Mapping
from typing import Any

from cca_lab.mechanisms.cca import groups
from cca_lab.theory.forall import cca
from cca_lab.theory.forall.caches.stand_ins import (
    Attended,
    Pooled,
    cores,
    holds_run,
    is_core,
    is_token,
    same_entries,
    tokens,
)
from cca_lab.theory.forall.core import Obligation, Truth, demand, every, integers, number, sizes
from cca_lab.theory.forall.grid import Grid
from cca_lab.theory.forall.paths import fresh
from cca_lab.theory.forall.theorem import Theorem, shadowed, within


def step() -> Iterable[Obligation]:
    """Cores and raw tokens stay what they should be, and the rows of a chunk see the mechanism's columns."""
    from cca_lab.mechanisms import CCA
    from cca_lab.mechanisms.caching.state import Copies
    from cca_lab.mechanisms.cca import cache as module

    seen, count, g, s, r = integers("seen chunk g s row")
    known = [*sizes(0, seen=seen), *sizes(g=g, s=s, count=count, stop=seen + count), 0 <= r, r < count]

    def statement() -> Mapping[str, Truth]:
        attended, pooled = Attended(seen, count), Pooled()
        state: Any = module.CCAState(CCA(group=g, window=s))
        state.buffers = Copies()
        state.seen, state.first = seen, g * groups.core_count(seen + 1, g, s)
        state.core_key = state.core_value = cores(seen // g)
        state.raw_key = state.raw_value = tokens(state.first, seen - state.first)
        opened = Grid((1, seen % g, 1), lambda b, k, d: seen // g * g + k + 1)
        state.rotation = opened, opened
        chunk = tokens(seen, count)
        turned: Any = Grid((1, count, 1), lambda b, k, d: seen + k + 1)
        with shadowed(module, interval_attention=attended.intervals, attend_row=attended.row, pool_groups=pooled,
                      chunk_intervals=cca.chunk_table):
            state.step(chunk, chunk, chunk, scale=1.0, rotation=(turned, turned))
        stop, row = seen + count, seen + r
        n = cca.cores_of_row(row, g, s)
        parts = attended.seen(r)
        first = g * groups.core_count(stop + 1, g, s)
        return {"groups are pooled whole": pooled.sound,
                "cores seen": holds_run(parts[0], is_core, 0, n),
                "raw tokens seen": holds_run(parts[1], is_token, g * n, row + 1),
                "queries and values": attended.sound,
                "values kept": same_entries(state.core_key, state.core_value)
                & same_entries(state.raw_key, state.raw_value),
                "cores kept": holds_run((state.core_key, 0, state.core_key.shape[2]), is_core, 0, stop // g),
                "raw tokens kept": holds_run((state.raw_key, 0, state.raw_key.shape[2]), is_token, first, stop),
                "tables kept": every(*(_tables(table, stop, g) for table in state.rotation)),
                "bookkeeping": (state.seen == stop) & (state.first == first)}

    return demand("CCA's cache", known, statement)


def _tables(table: Grid, stop: Any, g: Any) -> Truth:
    """Return whether rotary tables are those of the open group."""
    k = fresh("entry")
    return (table.shape[1] == stop % g) & within(k, (number(0), number(table.shape[1]))).implies(
        is_token(table.at(0, k, 0), stop - stop % g + k))


THEOREMS = (Theorem(
    "CCA's cache", "after any chunks the cache holds the cores of all closed groups and the raw tokens that the next "
    "row reads, and each row of a chunk sees what it sees in a forward over the whole text",
    ("cca_lab.mechanisms.cca.cache.CCAState.step", "cca_lab.mechanisms.cca.cache.CCAState._close_groups",
     "cca_lab.mechanisms.cca.cache.CCAState._attend", "cca_lab.mechanisms.cca.cache.CCAState._evict",
     "cca_lab.mechanisms.cca.groups.chunk_intervals", "cca_lab.mechanisms.cca.groups.core_count"),
    step, "attention and pooling: stand-ins that check which entries they are given. The induction over chunks is in "
    "words."),)
