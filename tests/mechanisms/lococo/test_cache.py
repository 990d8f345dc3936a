"""LoCoCoCache: its state with a compressor, wrong states; test_every_cache.py has the rest."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cca_lab.mechanisms.caches import CacheSizes, LoCoCoCache
from cca_lab.mechanisms.lococo import Compressor, LoCoCo
from cca_lab.mechanisms.lococo.cache import Borrowed, LoCoCoState
from cca_lab.models import swap_attention
from tests.mechanisms.caching import checks as cache_checks
from tests.mechanisms.caching.checks import assert_equal
from tests.models.tiny import logits, text, tiny


def swapped(family: str, **options):
    """A tiny model with compressors whose weights differ from slot to slot."""
    model = swap_attention(tiny(family), "lococo",
                           **{"slots": 4, "segment": 6, "kernel": 3, **options})
    for module in model.modules():
        if isinstance(module, Compressor):
            with torch.no_grad():
                module.conv.weight.mul_(3.0)
    return model


# ---- exactness


def check_state(sizes: list[int], segment: int, state: type[LoCoCoState] = LoCoCoState,
                **options) -> None:
    """A state that reads chunks against the loops over the whole text."""
    torch.manual_seed(sum(sizes))
    q = torch.randn(2, 4, sum(sizes), 4, dtype=torch.float64)
    k, v = torch.randn(2, 2, 2, sum(sizes), 4, dtype=torch.float64)
    mixed = options["slots"] - options.get("heavy", 0) - options.get("sinks", 0)
    module = Compressor(4, mixed, kernel=3).double() if mixed else None
    mechanism = LoCoCo(segment=segment, **options)
    wanted = mechanism.loops(q, k, v, scale=0.7, module=module)
    reading, start = state(mechanism, Borrowed(module)), 0
    for size in sizes:
        part = slice(start, start + size)
        got = reading.step(q[:, :, part], k[:, :, part], v[:, :, part], scale=0.7, rotation=None)
        start += size
        assert_equal(got, wanted[:, :, part].detach(), 1e-12)
        assert reading.seen == start and len(reading.tensors()) == 2 + mechanism.scored
        assert reading.key.shape[2] == mechanism.cache_entries(start)


@given(st.data())
@settings(max_examples=12, deadline=None, derandomize=True)
def test_any_chunks_agree(data):
    """Prefill and decode in any chunks: the forward over the whole text."""
    heavy, sinks = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 1))
    options = dict(slots=heavy + sinks + data.draw(st.integers(1, 3)), heavy=heavy, sinks=sinks,
                   scores=data.draw(st.sampled_from(["last", "sum"])))
    check_state(data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)),
                data.draw(st.integers(1, 6)), **options)


class CompressesBeforeReading(LoCoCoState):
    """Mixes what it has before a segment is closed, so that its rows miss their own segment."""

    def store(self, query, key, value, scale, rotation):
        super().store(query, key, value, scale, rotation)
        opened = self.open
        self.close(query, scale)
        self.open = opened


class ForgetsScores(LoCoCoState):
    """Scores begin anew with each chunk, not with each segment."""

    def step(self, query, key, value, *, scale, rotation=None):
        self.received = None if self.received is None else torch.zeros_like(self.received)
        return super().step(query, key, value, scale=scale, rotation=rotation)


class KeepsViews(LoCoCoState):
    """Reserves room for a whole segment and keeps views of it."""

    def store(self, query, key, value, scale, rotation):
        super().store(query, key, value, scale, rotation)
        room = torch.nn.functional.pad(self.key, (0, 0, 0, self.mechanism.segment))
        self.key = room[:, :, : self.key.shape[2]]


@pytest.mark.parametrize("wrong", [CompressesBeforeReading, ForgetsScores])
def test_chunks_kill_a_wrong_state(wrong):
    sizes = [4, 5, 1, 1, 2, 9]
    check_state(sizes, 6, slots=4, heavy=2)
    with pytest.raises(AssertionError, match="max error|assert"):
        check_state(sizes, 6, state=wrong, slots=4, heavy=2)


# ---- size


def test_bytes_kill_memory_that_is_only_reserved(monkeypatch):
    monkeypatch.setattr(LoCoCoCache, "state", KeepsViews)
    with pytest.raises(AssertionError, match="bytes are kept"):
        cache_checks.check_bytes("gpt2", "lococo", slots=4, segment=6)


def test_bytes_rise_and_fall_and_do_not_grow():
    """M after a compression, M + B - 1 before the next."""
    sizes = CacheSizes(layers=2, kv_heads=2, head_dim=8, itemsize=2)
    entry = 2 * 2 * 2 * 8 * 2  # layers, key and value, heads, head_dim, bytes

    def taken(length: int, **options) -> int:
        return LoCoCoCache.bytes_of(LoCoCo(slots=64, segment=32, **options), length, sizes)

    counts = {taken(length) / entry for length in range(200, 3000)}
    assert (min(counts), max(counts)) == (64, 64 + 31)
    assert taken(500, heavy=1) == taken(500) * (32 + 4) / 32


# ---- misuse and reuse


def test_the_cache_needs_the_model():
    model = swapped("gpt2")
    with pytest.raises(ValueError, match="pass the model itself"):
        LoCoCoCache(model.config)


def test_a_copied_cache_copies_no_compressor():
    model, ids = swapped("opt"), text(25)
    cache = LoCoCoCache(model)
    logits(model, ids[:, :20], past_key_values=cache)
    other = copy.deepcopy(cache)
    assert other.layers[0].states[0].compressor is cache.layers[0].states[0].compressor
    got = [logits(model, ids[:, 20:], past_key_values=past) for past in (cache, other)]
    assert_equal(got[0], logits(model, ids)[:, 20:])
    assert torch.equal(got[0], got[1])
