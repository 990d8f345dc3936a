"""StreamingLLMCache: windowed, any chunks are one forward; dense, the public code's steps."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cca_lab.mechanisms import StreamingLLM, full
from cca_lab.mechanisms.caches import CacheSizes, StreamingLLMCache
from cca_lab.mechanisms.streaming.cache import StreamingLLMState
from cca_lab.models import restore_attention, swap_attention
from tests.mechanisms import bench
from tests.mechanisms.caching.checks import (
    CHUNKS,
    TOLERANCE,
    check_bytes,
    check_chunks,
    check_generation,
    check_state,
    in_chunks,
)
from tests.models.tiny import logits, text, tiny
from tests.mutants import streaming_llm as wrong

S2R5 = dict(sinks=2, recent=5)
CASES = [("gpt2", "original"), ("llama", "original"), ("llama", "cache")]
every_case = pytest.mark.parametrize(("family", "positions"), CASES)


# ---- windowed: prefill equals decode

@every_case
def test_any_chunks_equal_one_forward(family, positions):
    for sizes in CHUNKS:
        check_chunks(family, "streaming_llm", sizes, positions=positions, **S2R5)


@given(sinks=st.integers(0, 5), recent=st.integers(0, 6),
       positions=st.sampled_from(["original", "cache"]),
       sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6), rotated=st.booleans())
def test_state_equals_the_mechanism(sinks, recent, positions, sizes, rotated):
    options = dict(sinks=sinks, recent=recent, positions=positions)
    check_state("streaming_llm", options, sizes, rotated=rotated, seed=sum(sizes))


@every_case
def test_generation(family, positions):
    check_generation(family, "streaming_llm", positions=positions, **S2R5)


@pytest.mark.parametrize(("method", "mutant", "sizes"), [
    ("_attend", wrong.evict_first, [20, 14]),
    ("_attend", wrong.aligned_at_the_top_left, [3, 3]),  # before anything is dropped
    ("_turned", wrong.all_queries_by_one_angle, [20, 14]),
], ids=lambda value: getattr(value, "__name__", None))
def test_chunks_kill(method, mutant, sizes, monkeypatch):
    monkeypatch.setattr(StreamingLLMState, method, mutant)
    with pytest.raises(AssertionError, match="chunks against one forward"):
        check_chunks("llama", "streaming_llm", sizes, positions="cache", **S2R5)


# ---- dense: the public code's order of steps

def official(q, k, v, sizes, *, sinks, recent, scale, tables):
    """Un-rotated keys in a list; each chunk is appended, rotated, attended to; then eviction.

    q, k: (H, L, D) without rotation; one KV head for each query head.
    """
    kept_keys, kept_values, outputs = k[:, :0], v[:, :0], []
    for query, key, value in zip(*(x.split(sizes, dim=1) for x in (q, k, v)), strict=True):
        past, chunk = kept_keys.shape[1], key.shape[1]
        kept_keys, kept_values = torch.cat([kept_keys, key], 1), torch.cat([kept_values, value], 1)
        cos, sin = (table[: past + chunk] for table in tables)
        scores = scale * bench.rotate(query, cos[past:], sin[past:]) @ bench.rotate(kept_keys, cos,
                                                                                    sin).mT
        future = torch.arange(past + chunk) > past + torch.arange(chunk)[:, None]
        outputs.append(scores.masked_fill(future, float("-inf")).softmax(-1) @ kept_values)
        extra = kept_keys.shape[1] - sinks - recent
        if extra > 0:
            kept_keys, kept_values = (torch.cat([x[:, :sinks], x[:, sinks + extra:]], 1)
                                      for x in (kept_keys, kept_values))
    return torch.cat(outputs, dim=1)


def check_official(sinks: int, recent: int, sizes: list[int], **changes) -> None:
    length = sum(sizes)
    q, k, v = bench.inputs(length, heads=2, kv_heads=2, seed=length)
    tables = bench.rope_tables(length, 4)
    wanted = official(q[0], k[0], v[0], sizes, sinks=sinks, recent=recent, scale=0.7, tables=tables)
    options = {"positions": "cache", "prompt": "dense", **changes}
    prompt = options.pop("prompt")
    state = StreamingLLMState(StreamingLLM(sinks=sinks, recent=recent, **options), prompt=prompt)
    q, k, start = bench.rotate(q, *tables), bench.rotate(k, *tables), 0
    for size in sizes:
        now = slice(start, start + size)
        got = state.step(q[:, :, now], k[:, :, now], v[:, :, now], scale=0.7,
                         rotation=tuple(table[None, now] for table in tables))
        bench.assert_close(got[0], wanted[:, now], f"chunk {now}", 1e-11)
        start += size


@given(sinks=st.integers(0, 4), recent=st.integers(0, 6),
       sizes=st.lists(st.integers(1, 9), min_size=1, max_size=7))
def test_dense_is_the_public_code_for_any_chunks(sinks, recent, sizes):
    check_official(sinks, recent, sizes)


@pytest.mark.parametrize("changes", [dict(positions="original"), dict(prompt="windowed")], ids=str)
def test_the_public_code_tells_the_other_settings_apart(changes):
    with pytest.raises(AssertionError, match="chunk slice"):
        check_official(2, 3, [9, 1, 1, 4], **changes)


@every_case
def test_a_dense_prompt_reads_in_full_and_decoding_differs(family, positions):
    """The first chunk is full attention; single tokens are windowed."""
    model, ids = swap_attention(tiny(family), "streaming_llm", positions=positions,
                                **S2R5), text(34)
    dense = in_chunks(model, StreamingLLMCache(model, prompt="dense"), ids, [30, 1, 1, 1, 1])
    windowed = logits(model, ids)
    single = in_chunks(model, StreamingLLMCache(model, prompt="dense"), ids, [1] * 34)
    bench.assert_close(single, windowed, "token by token", TOLERANCE)
    bench.assert_close(dense[:, :8], windowed[:, :8], "sinks + recent + 1 tokens", TOLERANCE)
    assert (dense - windowed)[:, 30:].abs().amax(-1).min() > 1e-3
    bench.assert_close(dense[:, :30], logits(restore_attention(model), ids[:, :30]),
                       "full attention", TOLERANCE)


# ---- size

@every_case
def test_bytes_equal_the_closed_form(family, positions):
    check_bytes(family, "streaming_llm", positions=positions, **S2R5)
    check_bytes(family, "streaming_llm", positions=positions, sinks=0, recent=4)


def test_bytes_kill_a_view(monkeypatch):
    monkeypatch.setattr(StreamingLLMState, "_evict", wrong.keep_a_view)
    with pytest.raises(AssertionError, match="bytes are kept"):
        check_bytes("gpt2", "streaming_llm", sinks=0, recent=4)


def test_bytes_stop_growing():
    mechanism, sizes = StreamingLLM(sinks=4, recent=60), CacheSizes(layers=2, kv_heads=2,
                                                                    head_dim=8, itemsize=2)
    entry = 2 * 2 * 2 * 8 * 2  # layers, key and value, heads, head_dim, bytes
    for length in (1, 63, 64, 65, 10**6):
        wanted = mechanism.cache_entries(length)
        assert StreamingLLMCache.bytes_of(mechanism, length,
                                          sizes) == entry * wanted == entry * min(length, 64)


# ---- refusals and rows

def test_places_in_the_cache_need_rotary_positions():
    for family in ("gpt2", "opt"):
        model = swap_attention(tiny(family), "streaming_llm", positions="cache", **S2R5)
        with pytest.raises(ValueError, match="positions: got 'cache'"):
            StreamingLLMCache(model)


def test_another_prompt_is_refused():
    model = swap_attention(tiny("gpt2"), "streaming_llm", **S2R5)
    with pytest.raises(ValueError, match="prompt: got 'full'"):
        StreamingLLMCache(model, prompt="full")


def test_reset_keeps_the_way_a_prompt_is_read():
    model, ids = swap_attention(tiny("llama"), "streaming_llm", **S2R5), text(20)
    cache = StreamingLLMCache(model, prompt="dense")
    first = logits(model, ids, past_key_values=cache)
    cache.reset()
    assert cache.nbytes() == 0
    bench.assert_close(logits(model, ids, past_key_values=cache), first, "read again", TOLERANCE)


def test_a_cache_that_never_fills_is_full_attention():
    q, k, v = bench.inputs(9, heads=4, kv_heads=2)
    for prompt in ("windowed", "dense"):
        state = StreamingLLMState(StreamingLLM(sinks=1, recent=7), prompt=prompt)
        bench.assert_close(state.step(q, k, v, scale=0.5, rotation=None),
                           full.loops(q, k, v, scale=0.5), prompt)
