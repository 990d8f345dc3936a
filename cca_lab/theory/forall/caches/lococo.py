"""The cache of LoCoCo: M slots, and the raw tokens since the last compression."""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from cca_lab.mechanisms.lococo.segments import cache_tokens, held_columns
from cca_lab.theory.forall.caches.stand_ins import Attended, cores, same_entries, stored, tokens
from cca_lab.theory.forall.core import Obligation, Truth, demand, integers, number, sizes, truth, where
from cca_lab.theory.forall.grid import Grid
from cca_lab.theory.forall.theorem import Theorem, shadowed


def step() -> Iterable[Obligation]:
    """Slots and raw tokens are those of the mechanism, for chunks that end with their segment or before."""
    return chain(_step("eager"), _step("lazy"))


def _step(when: str) -> Iterable[Obligation]:
    from cca_lab.mechanisms import LoCoCo
    from cca_lab.mechanisms.caching.state import Copies
    from cca_lab.mechanisms.lococo import cache as module

    seen, count, slots, block, buffer, r = integers("seen chunk M B buffer row")
    n, opened = seen // block, seen % block
    known = [*sizes(0, seen=seen, buffer=buffer), *sizes(count=count, M=slots, B=block, stop=seen + count), 0 <= r,
             r < count, opened + count <= block]
    options = {"slots": slots, "segment": block, "buffer": buffer}

    def held(segments: Any) -> Any:
        return held_columns(segments, block, slots, buffer)

    def columns(segments: Any, entries: Any, length: Any) -> Grid:
        """Return [slots ; raw tokens] after some complete segments of which the last may wait for its compression."""
        made = slots if segments >= (slots + buffer) // block + 1 else 0
        return stored(entries, lambda k: where(number(k) < made, -k - 1, length - entries + k + 1))

    def statement() -> Mapping[str, Truth]:
        attended = Attended(seen, count)
        state: Any = module.LoCoCoState(LoCoCo(**options, when=when))
        waits = when == "lazy" and bool((opened == 0) & (n >= 1))
        state.buffers, state.seen, state.open = Copies(), seen, opened
        state.key = state.value = columns(n - 1 if waits else n, cache_tokens(seen, **options, when=when), seen)
        chunk = tokens(seen, count)
        with shadowed(module, interval_attention=attended.intervals, attend_row=attended.row,
                      compression_matrix=lambda *_: "weights", mix=lambda *_: cores(slots)):
            state.step(chunk, chunk, chunk, scale=1.0)
        stop = seen + count
        (key, start, end), *others = attended.seen(r)
        wanted = columns(n, held(n) + opened + count, stop)  # after the segment's compression
        full = bool(stop % block == 0)
        waits = when == "lazy" and full
        after = columns(stop // block - waits, cache_tokens(stop, **options, when=when), stop)
        return {"one pass of the loop": truth(not others), "row": (start == 0) & (end == held(n) + opened + r + 1),
                "columns": same_entries(key, wanted),
                "kept": same_entries(state.key, after),
                "queries and values": attended.sound, "values kept": same_entries(state.key, state.value),
                "bookkeeping": (state.seen == stop) & (state.open == where(stop % block == 0, 0, stop % block))}

    return demand(f"LoCoCo's cache, {when}", known, statement)


THEOREMS = (Theorem(
    "LoCoCo's cache", "after any chunks within a segment the cache holds the slots and the raw tokens since the last "
    "compression, as many as the closed form says, eager and lazy; each row sees all slots and its own past of them",
    ("cca_lab.mechanisms.lococo.cache.LoCoCoState.step", "cca_lab.mechanisms.lococo.cache.LoCoCoState._read",
     "cca_lab.mechanisms.lococo.cache.LoCoCoState._attend",
     "cca_lab.mechanisms.lococo.cache.LoCoCoState._close",
     "cca_lab.mechanisms.lococo.cache.LoCoCoState._compress_if_full",
     "cca_lab.mechanisms.lococo.segments.held_columns", "cca_lab.mechanisms.lococo.segments.cache_tokens",
     "cca_lab.attention.intervals.causal_intervals"),
    step, "attention and compression: stand-ins; borders='text'. A chunk over a border is cut there by the loop in "
    "`step`, one pass for each piece; that several passes are several chunks is in words, as is the induction."),)
