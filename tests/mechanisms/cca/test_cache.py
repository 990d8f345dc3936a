"""CCACache: padding, its size, rows of different length; test_every_cache.py has the rest."""

import pytest
import torch
from transformers import DynamicCache

from cca_lab.mechanisms import CCA
from cca_lab.mechanisms.caches import CacheSizes, CCACache
from cca_lab.mechanisms.caching import state as caching_state
from cca_lab.mechanisms.cca.cache import CCAState
from cca_lab.mechanisms.cca.ragged import RaggedState
from cca_lab.models import attention_maps, restore_attention, swap_attention
from tests.mechanisms.caching import checks as cache_checks
from tests.mechanisms.caching.checks import (
    assert_equal,
    check_left_padding,
    check_recomputed,
)
from tests.models.tiny import left_padded, logits, text, tiny

# ---- generate()


def test_left_padded_prompts_in_chunks_equal_each_alone():
    model = swap_attention(tiny("gpt2"), "cca", group=4, window=7)
    check_left_padding(model, CCACache, prefill_chunk_size=4)


def test_left_padded_beam_search():
    model = swap_attention(tiny("llama"), "cca", group=4, window=7)
    ids, mask, _ = left_padded([text(9, seed=1)[0], text(14, seed=2)[0]])
    check_recomputed(model, CCACache, ids, num_beams=2, num_return_sequences=2, attention_mask=mask)


def test_the_same_padding_in_every_row_keeps_one_state():
    model = swap_attention(tiny("gpt2"), "cca", group=4, window=7)
    ids, mask, positions = left_padded([text(12)[0], text(12, seed=1)[0]], holes=3)
    cache = CCACache(model)
    got = logits(model, ids, attention_mask=mask, position_ids=positions, past_key_values=cache)
    assert len(cache.layers[0].states) == 1
    assert_equal(got[:, 3:], logits(model, ids[:, 3:]))


# ---- size


def fill(model, length: int, rows: int = 1, step: int = 9) -> CCACache:
    cache, ids = CCACache(model), text(length, rows=rows)
    for chunk in ids.split(step, dim=1):
        logits(model, chunk, past_key_values=cache)
    return cache


def test_bytes_are_length_over_group_plus_window():
    mechanism, sizes = CCA(), CacheSizes(layers=2, kv_heads=2, head_dim=8, itemsize=2)
    entry = 2 * 2 * 2 * 8 * 2  # layers, key and value, heads, head_dim, bytes
    for length in range(1, 5000, 7):
        entries = CCACache.bytes_of(mechanism, length, sizes) / entry
        assert entries == mechanism.cache_entries(length)
        assert entries <= length / 16 + 64 + 16 - 2
        if length >= 64:
            assert entries >= length // 16 + 63
    model = swap_attention(tiny("gpt2"), "cca", group=4, window=8)
    full = DynamicCache()
    logits(restore_attention(tiny("gpt2")), text(120), past_key_values=full)
    assert fill(model, 120).nbytes() < 0.4 * sum(2 * layer.keys.nbytes for layer in full.layers)


# ---- misuse


def test_cache_wants_a_swapped_model():
    model = tiny("gpt2")
    with pytest.raises(ValueError, match="'full' attention, wanted 'cca'.*swap_attention"):
        CCACache(model)


def test_tokens_cannot_be_taken_back():
    model = swap_attention(tiny("gpt2"), "cca", group=4, window=7)
    cache = fill(model, 20)
    assert not cache.is_croppable
    with pytest.raises(ValueError, match="assisted"):
        cache.crop(-1)
    with pytest.raises(ValueError, match="assisted"):
        model.generate(text(8), max_new_tokens=6, past_key_values=CCACache(model),
                       prompt_lookup_num_tokens=2)


@pytest.mark.parametrize(("mask", "message"), [
    ([1, 1, 1, 0], "with a cache"), ([1, 0, 1, 1], "with a cache"),
    ([1, 1, 1], "for cached tokens too"),
])
def test_padding_that_a_cache_cannot_honour_is_refused(mask, message):
    model = swap_attention(tiny("gpt2"), "cca", group=2, window=3)
    with pytest.raises(ValueError, match=message):
        logits(model, text(4), attention_mask=torch.tensor([mask]), past_key_values=CCACache(model))


def test_padding_after_tokens_is_refused():
    model, cache = swap_attention(tiny("gpt2"), "cca", group=2, window=3), None
    cache = CCACache(model)
    logits(model, text(4), past_key_values=cache)
    with pytest.raises(ValueError, match="after tokens that the cache holds"):
        logits(model, text(2), attention_mask=torch.tensor([[1, 1, 1, 1, 0, 1]]),
               past_key_values=cache)


def test_maps_with_a_cache_are_refused():
    model = swap_attention(tiny("gpt2"), "cca", group=2, window=3)
    with pytest.raises(ValueError, match="attention_maps"):
        logits(model, text(4), past_key_values=CCACache(model), output_attentions=True)
    assert attention_maps(model, text(4)).shape == (2, 4, 4, 4)


# ---- rows of different length


RAGGED = [dict(group=4, window=7), dict(group=3, window=1), dict(group=2, window=9, sinks=2),
          dict(group=5, window=3, proportional=True), dict(group=4, window=6, pooling="mean")]


def ragged(options):
    """The model, its cache and the logits of each row alone."""
    model = swap_attention(tiny("llama"), "cca", **options)
    return model, CCACache, cache_checks.each_alone(model, CCACache)


def kinds_of(states):
    return {type(state) for state in states}


@pytest.mark.parametrize("options", RAGGED, ids=str)
def test_ragged_rows_go_on_together(options, monkeypatch):
    """In one state that holds all rows, and row by row where that would copy much."""
    case = ragged(options)
    assert kinds_of(cache_checks.check_ragged(*case)) == {CCAState}
    monkeypatch.setattr(caching_state, "FEW", 2**14)
    assert RaggedState in kinds_of(cache_checks.check_ragged(*case))


def test_ragged_rows_kill_cores_that_are_never_made(monkeypatch):
    case = ragged(RAGGED[0])
    monkeypatch.setattr(caching_state, "FEW", 2**14)
    monkeypatch.setattr(RaggedState, "_pool", lambda state: state.waiting.clear())
    with pytest.raises(AssertionError, match="max error"):
        cache_checks.check_ragged(*case)
