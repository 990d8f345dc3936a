"""The cache of DGA: focal tokens and groups of the divided text, and the raw tokens after it."""

from collections.abc import Iterable, Mapping
from itertools import chain
from types import SimpleNamespace
from typing import Any

from cca_lab.mechanisms.dga.rows import decode_span
from cca_lab.theory.forall.caches.stand_ins import (
    Attended,
    cores,
    holds_run,
    is_core,
    is_token,
    same_entries,
    stored,
    tokens,
)
from cca_lab.theory.forall.core import Obligation, Truth, demand, every, integers, number, sizes, where
from cca_lab.theory.forall.grid import Grid
from cca_lab.theory.forall.paths import assume, fresh
from cca_lab.theory.forall.quantify import Marks, marks
from cca_lab.theory.forall.theorem import Theorem, as_number, shadowed, within


class _Division:
    """Stands in for the choice and the pooling of focal tokens: what is divided, and what comes out.

    Args:
        before: entries that are stored already.
        first: the first token that is divided.
        size: tokens that are divided.
        focal: tokens of them that become focal.
        m: tokens in a group.
    """

    def __init__(self, before: Any, first: Any, size: Any, focal: Any, m: Any) -> None:
        self.before, self.first, self.size, self.focal, self.m = before, first, size, focal, m
        self.group, self.backend, self.sound = m, "auto", every()

    def select(self, query: Grid, key: Grid, **_: Any) -> Marks:
        """Choose as `DGA.select` does, in a block with its own queries."""
        self._check(query)
        return self._marks(key.shape[2])

    def importance(self, query: Grid, key: Grid, *, rows: Grid, **_: Any) -> Any:
        """Score as `importance` does, by the last row."""
        self.sound &= rows.at(0) == key.shape[2] - 1
        return SimpleNamespace(unflatten=lambda *_: SimpleNamespace(mean=lambda _: key.shape[2]))

    def highest(self, length: Any, count: Any) -> Marks:
        """Choose as `highest` does."""
        self.sound &= count == self.focal
        return self._marks(length)

    def _marks(self, length: Any) -> Marks:
        focal = marks("focal", length)
        assume(focal.before(length) == self.focal)
        return focal

    def columns(self, query: Grid, key: Grid, value: Grid, focal: Marks, *_: Any, **__: Any) -> tuple[Grid, Grid]:
        """Pool as `columns` does: [focal ; groups ; raw tokens]."""
        self._check(key)
        self._check(value)
        kept = self.focal + (self.size - self.focal) // self.m
        made = stored(kept + self.size, lambda k: where(number(k) < kept, -(self.before + k) - 1, 0))
        return made, made

    def _check(self, key: Grid) -> None:
        k = fresh("member")
        self.sound &= (key.shape[2] == self.size) & within(k, (number(0), key.shape[2])).implies(
            is_token(key.at(0, 0, k, 0), self.first + k))


def step() -> Iterable[Obligation]:
    """A row sees what was divided before its stretch of the text, and its stretch raw; both are stored as well."""
    return chain(_stretch("blocks"), _stretch("prompt"))


def _stretch(choose: str) -> Iterable[Obligation]:
    from cca_lab.mechanisms import DGA
    from cca_lab.mechanisms.caching.state import Copies
    from cca_lab.mechanisms.dga import cache as module

    kept, first, opened, count, m, r, share, groups = integers("divided start open chunk m row focal groups")
    block: Any = share + m * groups if choose == "blocks" else decode_span(m)
    focal = share if choose == "blocks" else block - m
    known = [*sizes(count=count, m=m), *sizes(0, focal=share, groups=groups, divided=kept, open=opened), 0 <= r,
             r < count, opened + count <= block, *sizes(block=block, columns=kept + block),
             (kept == 0) | (first >= 1), first >= (0 if choose == "blocks" else 1)]

    def statement() -> Mapping[str, Truth]:
        attended = Attended(first + opened, count)
        division = _Division(kept, first, block, focal, m)
        mechanism = DGA(group=m, choose=choose, block=block)
        state: Any = module.DGAState(mechanism)
        state.buffers, state.seen = Copies(), first + opened
        state.kept_key = state.kept_value = cores(kept)
        state.raw_key = state.raw_value = tokens(first, opened)
        state.raw_query = tokens(first, opened if choose == "blocks" else 0)
        chunk = tokens(first + opened, count)
        with shadowed(module, interval_attention=attended.intervals, attend_row=attended.row, int=as_number,
                      columns=division.columns, importance=division.importance, highest=division.highest,
                      replace=lambda *_, **__: division):
            state.step(chunk, chunk, chunk, scale=1.0, rotation=None)
        row, full = first + opened + r, bool(opened + count == block)
        parts = attended.seen(r)
        if len(parts) == 1:  # stored in one tensor
            ((key, start, end),) = parts
            parts = [(key, start, kept), (key, kept, end)]
        made = share + groups if choose == "blocks" else block - m + 1
        after_kept, after_first = (kept + made, first + block) if full else (kept, first)
        return {"divided tokens seen": holds_run(parts[0], is_core, 0, kept),
                "raw tokens seen": holds_run(parts[1], is_token, first, row + 1),
                "queries and values": attended.sound, "divided as a whole": division.sound,
                "values kept": same_entries(state.kept_key, state.kept_value)
                & same_entries(state.raw_key, state.raw_value),
                "queries kept": same_entries(state.raw_query, state.raw_key) if choose == "blocks"
                else state.raw_query.shape[2] == 0,
                "divided tokens kept": holds_run((state.kept_key, 0, state.kept_key.shape[2]), is_core, 0, after_kept),
                "raw tokens kept": holds_run((state.raw_key, 0, state.raw_key.shape[2]), is_token, after_first,
                                             first + opened + count),
                "bookkeeping": state.seen == first + opened + count}

    return demand(f"DGA's cache, {choose}", known, statement)


THEOREMS = (Theorem(
    "DGA's cache", "after any chunks within a block, or a stretch of m' generated tokens, the cache holds the entries "
    "of the divided text, then the raw tokens; each row sees the former and its own past of the latter; a full "
    "stretch is divided as a whole",
    ("cca_lab.mechanisms.dga.cache.DGAState.step", "cca_lab.mechanisms.dga.cache.DGAState._read",
     "cca_lab.mechanisms.dga.cache.DGAState._divide",
     "cca_lab.mechanisms.dga.cache.DGAState._keep", "cca_lab.mechanisms.dga.rows.decode_span",
     "cca_lab.attention.intervals.causal_intervals"),
    step, "attention, the choice of focal tokens and pooling: stand-ins that check which tokens they are given; the "
    "prompt is read before. That a chunk over a border is several chunks, and the induction, are in words."),)
