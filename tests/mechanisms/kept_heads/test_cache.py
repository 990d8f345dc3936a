"""KeptHeadsCache beside any mechanism; test_every_cache.py has its bytes and generation."""

import pytest
import torch

from cca_lab.mechanisms import CCA, KeptHeads, mechanism_of
from cca_lab.mechanisms.caches import CacheSizes, KeptHeadsCache
from cca_lab.mechanisms.kept_heads.cache import OTHER_CACHES
from cca_lab.models import swap_attention
from tests.mechanisms.caching.checks import CHUNKS, check_chunks
from tests.models.tiny import logits, text, tiny
from tests.studies.benchmarks.test_decode import SMALL, same_as_reading

PREFILL_IS_DECODE = [name for name in OTHER_CACHES if name not in ("dga", "h2o")]


@pytest.mark.parametrize("name", PREFILL_IS_DECODE)
def test_chunks_equal_one_forward_beside_any_mechanism(name):
    check_chunks("llama", "kept_heads", CHUNKS[1], kept=[[0]],
                 others={"name": name, **SMALL[name]})


@pytest.mark.parametrize("name", OTHER_CACHES)
def test_decoding_goes_on_beside_any_mechanism(name):
    mechanism = KeptHeads.around(mechanism_of(name, SMALL[name]), [[0]])
    model = swap_attention(tiny("llama"), mechanism)
    cache = KeptHeadsCache(model)
    for chunk in text(31).split([19] + [1] * 12, dim=1):
        assert torch.isfinite(logits(model, chunk, past_key_values=cache)).all()
    assert cache.get_seq_length() == 31


def test_ten_of_ninety_heads_keep_a_fifth():
    """SmolLM2's sizes, g 16, s 128, 4 sinks, at 4096 tokens: the share of full attention's cache.

    A kept head stores 4096 entries, another one 255 cores, 140 raw tokens and 4 sinks.
    """
    kept = [[0]] * 10 + [[]] * 20
    sizes = CacheSizes(layers=30, heads=9, kv_heads=3, head_dim=64)
    mechanism = KeptHeads.around(CCA(group=16, window=128, sinks=4), kept)
    entries = 10 * 4096 + 80 * (255 + 140 + 4)
    share = KeptHeadsCache.bytes_of(mechanism, 4096, sizes) / (30 * sizes.entries(4096))
    assert share == entries / (90 * 4096) == pytest.approx(0.198, abs=5e-4)


@pytest.mark.parametrize("length", [1, 5, 40])
def test_a_filled_cache_holds_what_reading_leaves(length):
    same_as_reading(KeptHeads.around(CCA(group=4, window=6), [[1]]), length)
