"""LMInfiniteCache: any chunks are one forward, in the bytes of the closed form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cca_lab.mechanisms import LMInfinite
from cca_lab.mechanisms.caches import CacheSizes, LMInfiniteCache
from cca_lab.mechanisms.streaming.cache import LMInfiniteState
from cca_lab.models import swap_attention
from tests.mechanisms.caching.checks import (
    CHUNKS,
    FAMILIES,
    check_bytes,
    check_chunks,
    check_generation,
    check_state,
)
from tests.models.tiny import logits, text, tiny
from tests.mutants import lm_infinite as wrong

OPTIONS = [dict(local=6, global_tokens=2), dict(local=4, global_tokens=3, limit=11)]
every_option = pytest.mark.parametrize("options", OPTIONS,
                                       ids=["limit is local", "limit beyond local"])


@every_option
def test_any_chunks_equal_one_forward(options):
    for family in FAMILIES:
        for sizes in CHUNKS:
            check_chunks(family, "lm_infinite", sizes, **options)


@given(local=st.integers(1, 7), count=st.integers(0, 5), limit=st.none() | st.integers(1, 20),
       sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6), rotated=st.booleans())
def test_state_equals_the_mechanism(local, count, limit, sizes, rotated):
    options = dict(local=local, global_tokens=count, limit=limit)
    check_state("lm_infinite", options, sizes, rotated=rotated, seed=sum(sizes))


@every_option
def test_generation(options):
    check_generation("llama", "lm_infinite", **options)


@pytest.mark.parametrize(("method", "mutant"),
                         [("_far", wrong.far_at_true_distances),
                          ("_far", wrong.far_with_rotated_keys), ("_evict", wrong.evict_a_global)],
                         ids=lambda value: getattr(value, "__name__", None))
def test_chunks_kill(method, mutant, monkeypatch):
    monkeypatch.setattr(LMInfiniteState, method, mutant)
    with pytest.raises(AssertionError, match="chunks against one forward"):
        check_chunks("llama", "lm_infinite", [20, 1, 1, 12], **OPTIONS[0])


@pytest.mark.parametrize("options", [*OPTIONS, dict(local=5, global_tokens=0),
                                     dict(local=1, global_tokens=4)], ids=str)
def test_bytes_equal_the_closed_form(options):
    for family in FAMILIES:
        check_bytes(family, "lm_infinite", **options)


def test_bytes_kill_keeping_everything(monkeypatch):
    """What the public code does: no token is ever dropped."""
    monkeypatch.setattr(LMInfiniteState, "_evict", lambda state: None)
    with pytest.raises(AssertionError, match="closed form"):
        check_bytes("gpt2", "lm_infinite", **OPTIONS[0])


def test_bytes_stop_growing():
    mechanism, sizes = LMInfinite(local=60, global_tokens=5), CacheSizes(layers=2, kv_heads=2,
                                                                         head_dim=8, itemsize=2)
    entry = 2 * 2 * 2 * 8 * 2  # layers, key and value, heads, head_dim, bytes
    for length in (1, 63, 64, 65, 10**6):
        wanted = mechanism.cache_entries(length)
        assert LMInfiniteCache.bytes_of(mechanism, length,
                                        sizes) == entry * wanted == entry * min(length, 64)


def test_cache_wants_its_own_attention():
    model = swap_attention(tiny("gpt2"), "streaming_llm", sinks=2, recent=5)
    with pytest.raises(ValueError, match="wanted 'lm_infinite'"):
        LMInfiniteCache(model)
