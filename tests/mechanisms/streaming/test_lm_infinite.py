"""LM-Infinite: its mask by brute force, its one distance, and wrong versions."""

from functools import partial

import pytest
import torch

from cca_lab.attention import masked_attention
from cca_lab.mechanisms import LMInfinite
from tests.mechanisms import bench
from tests.mechanisms.forms import form
from tests.mutants import lm_infinite as wrong

LOOPS = form(LMInfinite, "loops")
every_size = pytest.mark.parametrize(("local", "count", "limit"),
                                     [(3, 2, None), (1, 1, None), (4, 3, 2), (2, 5, 6), (2, 4, 50),
                                      (20, 3, None)])
L3G2 = {"local": 3, "global_tokens": 2}
LONG = {"local": 2, "global_tokens": 3, "limit": 6}


@every_size
def test_lambda_mask_and_distances(local, count, limit):
    """Under RoPE local tokens at their distance, global ones at min(limit, i)."""
    options = {"local": local, "global_tokens": count, "limit": limit}
    q, k, v = bench.inputs(12, heads=4, kv_heads=2)
    mask = torch.tensor([[t <= i and (i - t < local or t < count) for t in range(12)]
                         for i in range(12)])
    bench.assert_close(LOOPS(q, k, v, **options), masked_attention(q, k, v, mask[None, None]),
                       "dense mask")
    assert torch.equal(LMInfinite(**options).represented(q, k)[0, 0], mask)
    bench.check_rope_distances(LOOPS, options, partial(distance, local=local, limit=limit))
    assert LMInfinite(**options).cache_entries(12) == mask[-1].sum().item() - (12 >= local + count)


def distance(i: int, t: int, *, local: int, limit: int | None = None, **_: int) -> int:
    return i - t if i - t < local else min(local if limit is None else limit, i)


def test_a_limit_for_each_key_is_the_same_up_to_the_window():
    """limit <= local: every global token outside the window is beyond the limit anyway."""
    bench.check_rope_distances(LOOPS, L3G2,
                               lambda i, t: i - t if i - t < 3 else min(3, i - t))


def under_rotation(implementation, options, **sizes):
    """`check_right_padding` with rotary tables: rows do not depend on how long the text becomes."""
    def rotated(q, k, v, **options):
        tables = bench.rope_tables(*q.shape[2:])
        return implementation(bench.rotate(q, *tables), bench.rotate(k, *tables), v,
                              rotation=tables, **options)

    bench.check_right_padding(rotated, options, length=6, **sizes)


unity = partial(bench.check_partition_of_unity, represented=form(LMInfinite, "represented"))
long_distances = partial(bench.check_rope_distances, distance=partial(distance, **LONG))
distances = partial(bench.check_rope_distances, distance=partial(distance, **L3G2))


@pytest.mark.parametrize(("mutant", "check", "options", "reason"), [
    (wrong.clamped_for_each_key, long_distances, LONG, "token 1 seen from row 3 at distance 3"),
    (wrong.limit_of_the_whole_text, under_rotation, {**LONG, "limit": 9}, "padded on the right"),
    (wrong.limit_of_the_whole_text, long_distances, LONG, "at distance"),
    (wrong.true_distances, distances, L3G2, "token 0 seen from row 4 at distance 3"),
    (wrong.global_keys_stay_rotated, distances, L3G2, "token 1 seen from row 4 at distance 3"),
    (wrong.globals_counted_twice, unity, L3G2, "times a token is held"),
    (wrong.own_token_on_top, unity, L3G2, "a token that is dropped has weight"),
    (wrong.gap_before_the_window, unity, L3G2, "a past token has no weight"),
], ids=lambda value: getattr(value, "__name__", None))
def test_mutants_are_killed(mutant, check, options, reason):
    with pytest.raises(AssertionError, match=reason):
        check(mutant, options)
    check(LOOPS, options)
