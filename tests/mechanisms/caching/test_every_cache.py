"""Caches whose prefill is decode: any chunks are one forward, in the bytes of the closed form."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cca_lab.mechanisms.cca import cache as cca
from cca_lab.mechanisms.dga.cache import DGAState
from cca_lab.mechanisms.kept_heads.cache import KeptHeadsCache
from cca_lab.mechanisms.streaming.cache import LMInfiniteState, StreamingLLMState
from tests.mechanisms.caching.checks import (
    CHUNKS,
    check_bytes,
    check_chunks,
    check_generation,
    check_state,
)
from tests.mechanisms.options import GROUPS, SIZE
from tests.mutants import baselines, dga, kept_heads, lm_infinite, models, streaming_llm
from tests.mutants import cca as wrong_cca

G4S7, SINKS = {"group": 4, "window": 7}, {"group": 4, "window": 6, "sinks": 3}
# 2 focal tokens and 2 groups a block
BLOCKS = {"group": 3, "gamma": 0.2, "choose": "blocks", "block": 8}
MEMORY = {"slots": 4, "segment": 6, "kernel": 3}
S2R5, ALONE = {"sinks": 2, "recent": 5}, {"sinks": 0, "recent": 4}
LOCAL = {"local": 6, "global_tokens": 2}
KEPT = {"kept": [[1], []], "others": {"name": "cca", "group": 4, "window": 6, "sinks": 2}}
CASES = [
    ("cca", G4S7), ("cca", {"group": 3, "window": 1, "pooling": "max"}),
    ("cca", {"group": 1, "window": 4, "pooling": "mean"}),
    ("cca", {"group": 16, "window": 20}), ("cca", {**SINKS, "per_query_head": True}),
    ("cca", {**SINKS, "sinks": 50}), ("cca", {**SINKS, "proportional": True}),
    ("mean_pooling", SINKS), ("random_tokens", SINKS),
    ("dga", BLOCKS), ("dga", {**BLOCKS, "recent": 1, "random": 2, "seed": 3}),
    ("dga", {**BLOCKS, "floor": 5}), ("dga", {**BLOCKS, "gamma": 1.0, "block": 1}),
    ("lococo", {**MEMORY, "weights": "relu"}), ("lococo", {**MEMORY, "heavy": 4}),
    ("lococo", {**MEMORY, "sinks": 1, "heavy": 1, "scores": "sum"}),
    ("streaming_llm", S2R5), ("streaming_llm", ALONE),
    ("streaming_llm", {**S2R5, "positions": "cache"}),
    ("lm_infinite", LOCAL), ("lm_infinite", {"local": 4, "global_tokens": 3, "limit": 11}),
    ("lm_infinite", {"local": 1, "global_tokens": 0}), ("kept_heads", KEPT),
    ("kept_heads", {"kept": [[0], [1]], "others": {"name": "streaming_llm", **S2R5}}),
]
every_case = pytest.mark.parametrize(("name", "options"), CASES, ids=str)
FIRST = [*{name: (name, options) for name, options in reversed(CASES)}.values()]
first_of_each = pytest.mark.parametrize(("name", "options"), FIRST, ids=[name for name, _ in FIRST])


def family_of(options):
    """The norms of a Llama compute in float32, which turns a last digit into 1e-7 now and then."""
    return "llama" if options.get("positions") == "cache" else "gpt2"


@every_case
def test_any_chunks_equal_one_forward(name, options):
    for sizes in CHUNKS:
        check_chunks(family_of(options), name, sizes, **options)


@every_case
def test_bytes_equal_the_closed_form(name, options):
    check_bytes(family_of(options), name, **options)


@first_of_each
def test_chunks_and_bytes_with_rotary_positions(name, options):
    check_chunks("llama", name, CHUNKS[1], **options)
    check_bytes("llama", name, **options)


@first_of_each
def test_generation_equals_recomputation(name, options):
    check_generation("llama", name, **options)


COUNT = st.integers(0, 6)
DRAWN = {"cca": GROUPS | {"per_query_head": st.booleans()}, "mean_pooling": GROUPS,
         "random_tokens": GROUPS,
         "dga": {"group": st.integers(1, 3), "gamma": st.sampled_from([0.0, 0.2, 0.6]),
                 "choose": st.just("blocks"), "block": st.sampled_from([5, 8, 40])},
         "streaming_llm": {"sinks": COUNT, "recent": COUNT,
                           "positions": st.sampled_from(["original", "cache"])},
         "lm_infinite": {"local": SIZE, "global_tokens": COUNT,
                         "limit": st.none() | st.integers(1, 20)}}


@pytest.mark.parametrize("name", DRAWN)
@given(data=st.data(), rotated=st.booleans(),
       sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6))
@settings(max_examples=30)
def test_state_equals_the_mechanism(name, data, rotated, sizes):
    """Without a model, for two rows chosen midway."""
    options = data.draw(st.fixed_dictionaries(DRAWN[name]))
    check_state(name, options, sizes, rotated=rotated, seed=sum(sizes))


CCA, DGA, WINDOW, INFINITE = cca.CCAState, DGAState, StreamingLLMState, LMInfiniteState
CACHE = {**S2R5, "positions": "cache"}
# mutant, the function that it replaces, the cache, the chunks with which a text shows it
WRONG = [
    (models.evict_one_too_many, (CCA, "_evict"), ("cca", G4S7), [13, 9, 13]),
    (models.core_one_late, (cca, "cca_step"), ("cca", G4S7), [1] * 34),
    (models.judge_first_of_chunk, (CCA, "_close_groups"), ("cca", G4S7), [7] * 6),
    (wrong_cca.evict_the_sinks, (CCA, "_evict"), ("cca", SINKS), [1] * 30),
    (baselines.lots_begin_again, (cca.RandomTokensState, "_close_groups"),
     ("random_tokens", G4S7), CHUNKS[1]),
    (dga.raw_tokens_stay, (DGA, "_forget_raw"), ("dga", BLOCKS), [13, 1, 1, 12]),
    (streaming_llm.evict_first, (WINDOW, "_attend"), ("streaming_llm", CACHE), [20, 14]),
    (streaming_llm.aligned_at_the_top_left, (WINDOW, "_attend"), ("streaming_llm", CACHE),
     [3, 3]),  # before anything is dropped
    (streaming_llm.all_queries_by_one_angle, (WINDOW, "_turned"), ("streaming_llm", CACHE),
     [20, 14]),
    (lm_infinite.far_at_true_distances, (INFINITE, "_far"), ("lm_infinite", LOCAL), [20, 1, 12]),
    (lm_infinite.far_with_rotated_keys, (INFINITE, "_far"), ("lm_infinite", LOCAL), [20, 1, 12]),
    (lm_infinite.evict_a_global, (INFINITE, "_evict"), ("lm_infinite", LOCAL), [20, 1, 12]),
]


@pytest.mark.parametrize(("mutant", "place", "case", "sizes"), WRONG,
                         ids=[row[0].__name__ for row in WRONG])
def test_chunks_kill(mutant, place, case, sizes, monkeypatch):
    """Rows read what is left, or find a hole in it."""
    monkeypatch.setattr(CCA, "close_groups_as_written", CCA._close_groups, raising=False)
    monkeypatch.setattr(*place, mutant)
    with pytest.raises((AssertionError, ValueError), match="max error|intervals"):
        check_chunks("llama", case[0], sizes, **case[1])


@pytest.mark.parametrize(("mutant", "place", "case"), [
    (models.evict_without_clone, (CCA, "_evict"), ("cca", G4S7)),
    (dga.keep_a_view, (DGA, "_keep"), ("dga", BLOCKS)),
    (streaming_llm.keep_a_view, (WINDOW, "_evict"), ("streaming_llm", ALONE)),
    (lambda state: None, (INFINITE, "_evict"), ("lm_infinite", LOCAL)),  # nothing is dropped
    (kept_heads.share_of_all_heads(None), (KeptHeadsCache, "bytes_of"), ("kept_heads", KEPT)),
], ids=["cca", "dga", "streaming_llm", "lm_infinite", "kept_heads"])
def test_bytes_kill(mutant, place, case, monkeypatch):
    monkeypatch.setattr(*place, mutant)
    with pytest.raises(AssertionError, match="closed form|bytes are kept"):
        check_bytes("gpt2", case[0], **case[1])
