"""StreamingLLMCache that reads a prompt densely; test_every_cache.py has the windowed one."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cca_lab.mechanisms import StreamingLLM
from cca_lab.mechanisms.caches import StreamingLLMCache
from cca_lab.mechanisms.streaming.cache import StreamingLLMState
from cca_lab.models import restore_attention, swap_attention
from tests.mechanisms import bench
from tests.mechanisms.caching.checks import TOLERANCE, in_chunks
from tests.models.tiny import logits, text, tiny

S2R5 = dict(sinks=2, recent=5)


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


@pytest.mark.parametrize("positions", ["original", "cache"])
def test_a_dense_prompt_reads_in_full_and_decoding_differs(positions):
    """The first chunk is full attention; single tokens are windowed."""
    model, ids = swap_attention(tiny("llama"), "streaming_llm", positions=positions,
                                **S2R5), text(34)
    dense = in_chunks(model, StreamingLLMCache(model, prompt="dense"), ids, [30, 1, 1, 1, 1])
    windowed = logits(model, ids)
    single = in_chunks(model, StreamingLLMCache(model, prompt="dense"), ids, [1] * 34)
    bench.assert_close(single, windowed, "token by token", TOLERANCE)
    bench.assert_close(dense[:, :8], windowed[:, :8], "sinks + recent + 1 tokens", TOLERANCE)
    assert (dense - windowed)[:, 30:].abs().amax(-1).min() > 1e-3
    bench.assert_close(dense[:, :30], logits(restore_attention(model), ids[:, :30]),
                       "full attention", TOLERANCE)


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
