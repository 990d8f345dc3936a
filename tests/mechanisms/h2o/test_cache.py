"""H2OCache: token by token, and after a prompt, it is the mechanism; its bytes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cca_lab.mechanisms import H2O
from cca_lab.mechanisms.caches import CacheSizes, H2OCache
from cca_lab.mechanisms.h2o.cache import H2OState
from cca_lab.models import swap_attention
from tests.mechanisms import bench
from tests.mechanisms.caching import checks as cache_checks
from tests.models.tiny import TWO, logits, text, tiny
from tests.mutants import h2o as wrong

SIZES = dict(heavy=4, recent=3)


def swapped(family: str, **options):
    return swap_attention(tiny(family), "h2o", **{**SIZES, **options})


def in_chunks(model, ids: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    return cache_checks.in_chunks(model, H2OCache(model), ids, sizes)


# ---- the promise about prefill and decode

def check_token_by_token(family: str, **options) -> None:
    model, ids = swapped(family, **options), text(24, rows=2)
    bench.assert_close(in_chunks(model, ids, [1] * 24), logits(model, ids), "token by token", 1e-10)


@pytest.mark.parametrize(("family", "options"), [
    *((family, {}) for family in TWO), ("gpt2", dict(heavy=5, recent=0)),
    ("llama", dict(heavy=0, recent=4)),
    ("llama", dict(prompt=12))], ids=str)
def test_token_by_token_equals_the_mechanism(family, options):
    check_token_by_token(family, **options)


@pytest.mark.parametrize("mutant", [wrong.state_that_evicts_first, wrong.state_that_forgets_scores],
                         ids=lambda mutant: mutant.__name__)
def test_token_by_token_kills(mutant, monkeypatch):
    monkeypatch.setattr(H2OState, "attend_as_written", H2OState._attend, raising=False)
    monkeypatch.setattr(H2OState, "_attend", mutant)
    with pytest.raises(AssertionError, match="token by token"):
        check_token_by_token("gpt2")


@pytest.mark.parametrize(("family", "prompt", "options"), [
    *((family, 17, {}) for family in TWO), ("gpt2", 6, {}), ("llama", 1, {}),
    ("llama", 17, dict(heavy=0.3, recent=0.2)), ("gpt2", 6, dict(heavy=0.3, recent=0.2))], ids=str)
def test_a_prompt_and_then_tokens_equal_the_mechanism_with_that_prompt(family, prompt, options):
    ids = text(26, rows=2)
    got = in_chunks(swapped(family, **options), ids, [prompt] + [1] * (26 - prompt))
    wanted = logits(swapped(family, prompt=prompt, **options), ids)
    bench.assert_close(got, wanted, "prompt, then tokens", 1e-10)


def test_a_chunk_after_the_prompt_reads_more_than_single_tokens():
    """The promise ends here: nothing is evicted inside a chunk."""
    model, ids = swapped("llama"), text(30)
    apart = (in_chunks(model, ids, [10] * 3) - in_chunks(model, ids,
                                                         [10] + [1] * 20)).abs().amax((0, 2)) > 1e-6
    assert not apart[:11].any() and apart[11:20].any()


@given(st.data())
@settings(max_examples=30)
def test_state_equals_the_mechanism_without_a_model(data):
    heavy, recent = data.draw(st.integers(0, 5)), data.draw(st.integers(1, 5))
    first, length = data.draw(st.integers(1, 9)), data.draw(st.integers(9, 20))
    kv_heads, share, batch = (data.draw(st.integers(1, 2)) for _ in range(3))
    q, k, v = bench.inputs(length, batch=batch, heads=kv_heads * share, kv_heads=kv_heads,
                           seed=length)
    state, parts = H2OState(H2O(heavy=heavy, recent=recent)), []
    for chunk in torch.arange(length).split([first] + [1] * (length - first)):
        parts.append(state.step(q[:, :, chunk], k[:, :, chunk], v[:, :, chunk], scale=3.0,
                                rotation=None))
        assert state.key.shape[2] == min(state.seen, heavy + recent)
    wanted = H2O(heavy=heavy, recent=recent, prompt=first).loops(q, k, v, scale=3.0)
    bench.assert_close(torch.cat(parts, dim=2), wanted, "state")


# ---- generate()

def test_greedy_generation_equals_recomputation_with_that_prompt():
    cache_checks.check_recomputed(swapped("llama", prompt=14), H2OCache, text(14, rows=2))


def test_beam_search_equals_recomputation():
    cache_checks.check_recomputed(swapped("gpt2", prompt=9), H2OCache, text(9, rows=2),
                                  num_beams=3, num_return_sequences=3)


@pytest.mark.parametrize("options", [{}, dict(heavy=0.3, recent=0.2)], ids=str)
def test_left_padded_generation_equals_each_prompt_alone(options):
    cache_checks.check_left_padding(swapped("llama", **options), H2OCache, (3, 11, 15))


# ---- size

def check_bytes(family: str, **options) -> None:
    cache_checks.check_sizes(swapped(family, **options), H2OCache, (5, 1, 1, 1, 1, 7, 1, 20, 1),
                             first=5)


@pytest.mark.parametrize("options", [{}, dict(heavy=6, recent=0), dict(prompt=9),
                                     dict(heavy=0.5, recent=0.4)], ids=str)
def test_bytes_equal_the_closed_form(options):
    check_bytes("llama", **options)


def test_bytes_kill_an_eviction_that_frees_nothing(monkeypatch):
    monkeypatch.setattr(H2OState, "_evict", wrong.state_that_keeps_a_view)
    with pytest.raises(AssertionError, match="bytes are kept"):
        check_bytes("gpt2")


def test_scores_are_kept_in_float32_where_keys_are_in_half_precision():
    model = swapped("llama").to(torch.bfloat16)
    cache = H2OCache(model)
    logits(model, text(20), past_key_values=cache)
    assert cache.layers[0].states[0].score.dtype == torch.float32
    assert cache.nbytes() == cache.expected_bytes(20, itemsize=2, first=20)


def test_the_closed_form_by_hand():
    """LLaMA2-7B, fp16, 1024 + 1024 tokens: 1 GiB of entries, and 4 bytes a score."""
    sizes = CacheSizes(layers=32, kv_heads=32, head_dim=128, itemsize=2)
    got = H2OCache.bytes_of(H2O(heavy=1024, recent=1024), 100_000, sizes)
    assert got == 2**30 + 32 * 32 * 2048 * 4
