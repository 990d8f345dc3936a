"""StreamingLLM: its steady state by brute force, its positions, and wrong versions."""

from functools import partial

import pytest
import torch

from cca_lab.attention import masked_attention
from cca_lab.mechanisms import AShape, LMInfinite, StreamingLLM
from tests.mechanisms import bench
from tests.mechanisms.forms import form
from tests.mutants import streaming_llm as wrong

LOOPS = form(StreamingLLM, "loops")
every_size = pytest.mark.parametrize(("sinks", "recent"), [(1, 3), (4, 2), (2, 0), (0, 3), (3, 20)])
S2R3 = {"sinks": 2, "recent": 3}
CACHE = {**S2R3, "positions": "cache"}


# ---------------------------------------------------------------- which tokens

@every_size
def test_steady_state_is_its_dense_mask(sinks, recent):
    """t < sinks or i - t <= recent, written down token by token."""
    q, k, v = bench.inputs(12, heads=4, kv_heads=2)
    mask = torch.tensor([[t <= i and (t < sinks or i - t <= recent) for t in range(12)]
                         for i in range(12)])
    wanted = masked_attention(q, k, v, mask[None, None])
    bench.assert_close(LOOPS(q, k, v, sinks=sinks, recent=recent), wanted, "against the dense mask")
    m = StreamingLLM(sinks=sinks, recent=recent)
    assert torch.equal(m.represented(q, k)[0, 0], mask)
    kept_for_the_next_row = mask[-1].sum().item() - (12 > sinks + recent)
    assert m.cache_entries(12) == kept_for_the_next_row


def test_the_own_token_is_on_top_of_the_recent_ones():
    """recent = n - 1 is the window n of LM-Infinite (without rotation) and of A-shape."""
    q, k, v = bench.inputs(12)
    got = StreamingLLM(sinks=2, recent=3).attention(q, k, v)
    bench.assert_close(got, LMInfinite(global_tokens=2, local=4).attention(q, k, v),
                       "against LM-Infinite")
    bench.assert_close(got, AShape(sinks=2, window=4).attention(q, k, v), "against A-shape")


# ---------------------------------------------------------------- at which positions

def place_distance(i: int, t: int, sinks: int, recent: int) -> int:
    """The distance of the places in the cache: nothing is further than sinks + recent."""
    return min(i, sinks + recent) - t if t < min(sinks, i - recent) else i - t


@every_size
def test_distances(sinks, recent):
    options = {"sinks": sinks, "recent": recent}
    bench.check_rope_distances(LOOPS, options, lambda i, t: i - t)
    bench.check_rope_distances(LOOPS, {**options, "positions": "cache"},
                               partial(place_distance, sinks=sinks, recent=recent))
    assert max(place_distance(i, t, sinks, recent) for i in range(40) for t in range(i)
               if t < sinks or i - t <= recent) <= sinks + recent if sinks + recent else True


def test_without_rotation_positions_have_no_effect():
    q, k, v = bench.inputs()
    assert torch.equal(StreamingLLM(**CACHE).attention(q, k, v),
                       StreamingLLM(**S2R3).attention(q, k, v))


# ---------------------------------------------------------------- mutants

unity = partial(bench.check_partition_of_unity, represented=form(StreamingLLM, "represented"))
places = partial(bench.check_rope_distances, distance=partial(place_distance, **S2R3))


@pytest.mark.parametrize(("mutant", "check", "options", "reason"), [
    (wrong.own_token_counted_as_recent, unity, S2R3, "a past token has no weight"),
    (wrong.one_more_recent, unity, S2R3, "a token that is dropped has weight"),
    (wrong.sinks_counted_twice, unity, S2R3, "times a token is held"),
    (wrong.sinks_in_the_future, unity, S2R3, "the future has weight"),
    (wrong.rotated_again, places, CACHE, "at distance"),
    (wrong.positions_ignored, places, CACHE, "token 0 seen from row 6 at distance 5"),
    (wrong.query_left_behind, places, CACHE, "at distance"),
], ids=lambda value: getattr(value, "__name__", None))
def test_mutants_are_killed(mutant, check, options, reason):
    with pytest.raises(AssertionError, match=reason):
        check(mutant, options)
    check(LOOPS, options)
