"""CCACache: decoding is the forward over the whole text, in the bytes of the closed form."""


import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import DynamicCache

from cca_lab.mechanisms import CCA
from cca_lab.mechanisms.caches import CacheSizes, CCACache
from cca_lab.mechanisms.caching import state as caching_state
from cca_lab.mechanisms.cca import cache as cca
from cca_lab.mechanisms.cca.cache import CCAState
from cca_lab.mechanisms.cca.ragged import RaggedState
from cca_lab.mechanisms.indices import behind_sinks, first_raw
from cca_lab.models import attention_maps, restore_attention, swap_attention
from tests.mechanisms.caching import checks as cache_checks
from tests.mechanisms.caching.checks import (
    FAMILIES,
    assert_equal,
    check_generation,
    check_left_padding,
    check_recomputed,
    check_sizes,
)
from tests.models.tiny import left_padded, logits, text, tiny
from tests.mutants import cca as wrong
from tests.mutants import models as mutants

SHAPES = [(4, 8), (4, 7), (5, 3), (3, 1), (1, 4), (16, 20)]  # also s < g, and s no multiple of g


def in_chunks(model, ids: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    return cache_checks.in_chunks(model, CCACache(model), ids, sizes)


# ---- exactness


def check_decoding(family: str, group: int, window: int) -> None:
    model, ids = swap_attention(tiny(family), "cca", group=group, window=window), text(35, rows=2)
    assert_equal(in_chunks(model, ids, [1] * 35), logits(model, ids))


@pytest.mark.parametrize(("group", "window"), SHAPES)
def test_decoding_equals_one_forward(group, window):
    check_decoding("llama", group, window)


def test_decoding_kills_an_eviction_of_one_too_many(monkeypatch):
    monkeypatch.setattr(CCAState, "_evict", mutants.evict_one_too_many)
    for check in (lambda: check_decoding("gpt2", 4, 7),
                  lambda: check_chunks("gpt2", [13, 9, 13], group=4, window=7)):
        # a row reads what is left; a chunk finds a hole
        with pytest.raises((AssertionError, ValueError), match="max error|intervals"):
            check()


def test_decoding_kills_a_core_that_is_late(monkeypatch):
    monkeypatch.setattr(cca, "cca_step", mutants.core_one_late)
    with pytest.raises((AssertionError, ValueError), match="max error|intervals"):
        check_decoding("gpt2", 4, 7)


def check_chunks(family: str, sizes: list[int], **options) -> None:
    model, ids = swap_attention(tiny(family), "cca", **options), text(sum(sizes))
    assert_equal(in_chunks(model, ids, sizes), logits(model, ids))


@pytest.mark.parametrize("sizes", [[40], [30, 1, 1, 1, 7], [1, 39], [7] * 6, [3, 20, 2, 15]],
                         ids=str)
def test_chunks_equal_one_forward(sizes):
    check_chunks("gpt2", sizes, group=4, window=6)
    check_chunks("gpt2", sizes, group=4, window=6, sinks=2, proportional=True)


def test_chunks_kill_a_judge_in_the_wrong_place(monkeypatch):
    monkeypatch.setattr(CCAState, "close_groups_as_written", CCAState._close_groups, raising=False)
    monkeypatch.setattr(CCAState, "_close_groups", mutants.judge_first_of_chunk)
    with pytest.raises(AssertionError, match="max error"):
        check_chunks("gpt2", [7] * 6, group=4, window=6)


@pytest.mark.parametrize("options", [dict(per_query_head=True), dict(pooling="mean"),
                                     dict(pooling="max")], ids=str)
def test_chunks_equal_one_forward_with_every_option(options):
    check_chunks("llama", [9, 1, 1, 13, 1, 10], group=4, window=6, **options)


SINKS = dict(group=4, window=6, sinks=3)


@pytest.mark.parametrize("options", [{}, dict(sinks=1), dict(sinks=50), dict(per_query_head=True),
                                     dict(pooling="max")], ids=str)
def test_chunks_with_sinks(options):
    """Chunks that end among the sinks, at their last one and behind them."""
    for sizes in ([1] * 34, [9, 1, 1, 13, 1, 9], [2, 3, 1, 30]):
        check_chunks("llama", sizes, **SINKS | options)


def test_chunks_kill_a_cache_that_drops_the_sinks(monkeypatch):
    monkeypatch.setattr(CCAState, "_evict", wrong.evict_the_sinks)
    for sizes in ([1] * 30, [9, 1, 1, 13, 1, 9]):
        with pytest.raises(AssertionError, match="max error"):
            check_chunks("gpt2", sizes, **SINKS)


@given(st.data())
@settings(max_examples=30)
def test_state_equals_the_mechanism_for_any_chunks(data):
    """CCAState against the mechanism, without a model."""
    group, window = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 14))
    sizes = data.draw(st.lists(st.integers(1, 17), min_size=1, max_size=6))
    kv_heads, share, batch = (data.draw(st.integers(1, 2)) for _ in range(3))
    options = dict(group=group, window=window, per_query_head=data.draw(st.booleans()),
                   sinks=data.draw(st.sampled_from([0, 0, 1, 4, 15])))
    length, sinks = sum(sizes), options["sinks"]
    torch.manual_seed(length)
    q = torch.randn(batch, kv_heads * share, length, 4, dtype=torch.float64)
    k, v = torch.randn(2, batch, kv_heads, length, 4, dtype=torch.float64)
    angle = torch.arange(length)[:, None] * torch.tensor([1.0, 0.1, 1.0, 0.1], dtype=torch.float64)
    rotation = (angle.cos()[None], angle.sin()[None]) if data.draw(st.booleans()) else None
    wanted = CCA(**options).attention(q, k, v, scale=0.7, rotation=rotation)
    state, start = CCAState(CCA(**options)), 0
    for size in sizes:
        now = slice(start, start + size)
        tables = rotation and tuple(table[:, now] for table in rotation)
        got = state.step(q[:, :, now], k[:, :, now], v[:, :, now], scale=0.7, rotation=tables)
        assert_equal(got, wanted[:, :, now], 1e-12)
        start += size
        behind = behind_sinks(start, sinks)
        raw = behind - first_raw(behind, group, window)
        assert state.raw_key.shape[2] == min(start, sinks) + raw
        assert raw <= max(window + group - 2, 0)


# ---- generate()


@pytest.mark.parametrize("prompt", [1, 6, 31])
def test_greedy_generation_equals_recomputation(prompt):
    model = swap_attention(tiny("gpt2"), "cca", group=4, window=7)
    check_recomputed(model, CCACache, text(prompt, rows=2), max_new_tokens=20)


@pytest.mark.parametrize(("length", "rows", "options"),
                         [(13, 2, dict(num_beams=3, num_return_sequences=3)),
                          (31, 1, dict(prefill_chunk_size=6))], ids=["beams", "prefill in chunks"])
def test_other_generation_equals_recomputation(length, rows, options):
    model = swap_attention(tiny("llama"), "cca", group=3, window=5)
    check_recomputed(model, CCACache, text(length, rows=rows), **options)


@pytest.mark.parametrize("sinks", [3, 30])
def test_generation_with_sinks(sinks):
    """Greedy, with beams, in chunks, and padded on the left: rows of 3 tokens hold sinks alone."""
    check_generation("llama", "cca", **SINKS | dict(sinks=sinks))


@pytest.mark.parametrize("family", FAMILIES)
def test_left_padded_generation_equals_each_prompt_alone(family):
    model = swap_attention(tiny(family), "cca", group=4, window=7)
    for chunks in (None, 4):
        check_left_padding(model, CCACache, prefill_chunk_size=chunks)


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


def check_bytes(family: str, **options) -> None:
    model = swap_attention(tiny(family), "cca", group=4, window=7, **options)
    check_sizes(model, CCACache, (1, 1, 1, 1, 20, 1, 1, 1, 7, 1, 25))


@pytest.mark.parametrize("options", [{}, dict(per_query_head=True), dict(sinks=3),
                                     dict(sinks=10, per_query_head=True)], ids=str)
def test_bytes_equal_the_closed_form(options):
    for family in FAMILIES:
        check_bytes(family, **options)


def test_bytes_kill_an_eviction_that_frees_nothing(monkeypatch):
    monkeypatch.setattr(CCAState, "_evict", mutants.evict_without_clone)
    with pytest.raises(AssertionError, match="bytes are kept"):
        check_bytes("gpt2")


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


def check_ragged(options, family="llama"):
    model = swap_attention(tiny(family), "cca", **options)
    return {type(state) for state in cache_checks.check_ragged(model, CCACache)}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("options", RAGGED, ids=str)
def test_ragged_rows_go_on_together(options, family, monkeypatch):
    """In one state that holds all rows, and row by row where that would copy much."""
    assert check_ragged(options, family) == {CCAState}
    monkeypatch.setattr(caching_state, "FEW", 2**14)
    assert RaggedState in check_ragged(options, family)


def test_ragged_rows_kill_cores_that_are_never_made(monkeypatch):
    monkeypatch.setattr(caching_state, "FEW", 2**14)
    monkeypatch.setattr(RaggedState, "_pool", lambda state: state.waiting.clear())
    with pytest.raises(AssertionError, match="max error"):
        check_ragged(RAGGED[0])
