"""The cache of StreamingLLM, and of LM-Infinite, whose state is the same with recent = local - 1."""

from collections.abc import Iterable, Mapping
from typing import Any

from cca_lab.theory.forall.caches.stand_ins import Attended, is_token, same_entries, stored, tokens
from cca_lab.theory.forall.core import Obligation, Truth, demand, integers, least, most, number, sizes, where
from cca_lab.theory.forall.grid import Grid
from cca_lab.theory.forall.theorem import Theorem, exactly_one, none_of, shadowed, symbolic_len, within


def step() -> Iterable[Obligation]:
    """StreamingLLM's cache: sinks and recent tokens, and a row of a chunk sees the mechanism's tokens, each once."""
    from cca_lab.mechanisms import StreamingLLM
    from cca_lab.mechanisms.caching.state import Copies
    from cca_lab.mechanisms.streaming import cache as module

    seen, count, sinks, recent, r, t = integers("seen chunk sinks recent row token")
    known = [*sizes(0, seen=seen, sinks=sinks), *sizes(count=count, recent=recent, stop=seen + count), 0 <= r,
             r < count, 0 <= t, t < seen + count]

    def statement() -> Mapping[str, Truth]:
        attended = Attended(seen, count)
        state: Any = module.StreamingLLMState(StreamingLLM(sinks=sinks, recent=recent, positions="original"))
        state.buffers, state.seen = Copies(), seen
        state.key = state.value = kept(seen)
        chunk = tokens(seen, count)
        with shadowed(module, interval_attention=attended.intervals, attend_row=attended.row, len=symbolic_len):
            state.step(chunk, chunk, chunk, scale=1.0, rotation=None)
        row = seen + r
        parts = attended.seen(r)  # one of all that is stored for a single row, else the far part and the near one
        key = parts[0][0]
        dropped = most(0, seen - sinks - recent)
        column = where(t < sinks, t, t - dropped)
        ways = [within(column, bounds) for _, *bounds in parts]
        wanted = (t <= row) & ((t < sinks) | (row - t < recent + 1))
        held = (t < sinks) | (t >= sinks + dropped)
        return {"columns": held.implies(is_token(key.at(0, 0, column, 0), t)),
                "seen once": wanted.implies(held & exactly_one(ways)),
                "no other": (held & ~wanted).implies(none_of(ways)),
                "kept": same_entries(state.key, kept(seen + count)),
                "queries and values": attended.sound, "values kept": same_entries(state.key, state.value),
                "bookkeeping": state.seen == seen + count}

    def kept(length: Any) -> Grid:
        entries = least(length, sinks + recent)
        return stored(entries, lambda k: where(number(k) < sinks, k, length - entries + k) + 1)

    return demand("StreamingLLM's cache", known, statement)


THEOREMS = (Theorem(
    "StreamingLLM's cache", "after any chunks the cache holds the sinks and the recent tokens, and each row of a chunk "
    "sees the tokens of the mechanism, each once",
    ("cca_lab.mechanisms.streaming.cache.StreamingLLMState.step",
     "cca_lab.mechanisms.streaming.cache.StreamingLLMState._attend",
     "cca_lab.mechanisms.streaming.cache.StreamingLLMState._evict", "cca_lab.mechanisms.streaming.sinks.intervals"),
    step, "attention: a stand-in that notes its columns; positions='original', so without queries that are re-rotated. "
    "The induction over chunks is in words."),)
