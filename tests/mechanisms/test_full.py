"""Full attention: each form against the one below, and the online softmax's own edges."""

import pytest
import torch

from cca_lab.mechanisms import Full, full
from tests.mechanisms import bench

GQA = {"length": 7, "batch": 2, "heads": 4, "kv_heads": 2}
FORMS = [full.loops, full.dense, full.tiled, Full().attention]


def name_of(value) -> str | None:
    return f"L{value['length']}" if isinstance(value, dict) else getattr(value, "__name__", None)


@pytest.mark.parametrize("form", FORMS[1:], ids=name_of)
@pytest.mark.parametrize("sizes", [{"length": 1}, {"length": 9}, GQA], ids=name_of)
def test_every_form_equals_the_loops(form, sizes):
    bench.check_same(form, {}, full.loops, **sizes)


def test_the_loops_equal_pytorch():
    q, k, v = bench.inputs(heads=4, kv_heads=2, batch=2)
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True,
                                                              enable_gqa=True)
    bench.assert_close(full.loops(q, k, v), wanted, "against scaled_dot_product_attention")


@pytest.mark.parametrize(("query_tile", "key_tile"), [(1, 1), (3, 4), (4, 3), (1, 64), (64, 11)])
def test_tiles_never_change_the_result(query_tile, key_tile):
    bench.check_same(full.tiled, {"query_tile": query_tile, "key_tile": key_tile},
                     ignore_tiles(full.loops))


def ignore_tiles(implementation):
    return lambda q, k, v, query_tile=None, key_tile=None, **options: implementation(q, k, v,
                                                                                     **options)


def test_tiles_of_the_future_are_never_read():
    """NaN keys in tiles that no row of an earlier query tile sees do not reach it."""
    q, k, v = bench.inputs(12)
    wanted = full.loops(q, k, v)
    k[:, :, 8:], v[:, :, 8:] = float("nan"), float("nan")
    got = full.tiled(q, k, v, query_tile=4, key_tile=4)[:, :, :8]
    bench.assert_close(got, wanted[:, :, :8], "rows before the NaN")


@pytest.mark.parametrize("form", FORMS[1:3], ids=name_of)
def test_the_other_forms_differentiate(form):
    bench.check_gradients(form, {}, length=5)


def test_online_softmax_row_after_each_key():
    """One pass over n keys is the softmax over n keys; scores that fall and that rise."""
    query = torch.tensor([1.0, 0.0], dtype=torch.float64)
    values = torch.arange(8, dtype=torch.float64).view(4, 2)
    for scores in ([3.0, 2, 1, 0], [0.0, 1, 2, 3], [0.0, 900, -900, 900]):
        keys = torch.tensor([[score, 0] for score in scores], dtype=torch.float64)
        for n in range(1, 5):
            wanted = torch.softmax(keys[:n, 0], 0) @ values[:n]
            got = full.online_softmax_row(query, keys[:n], values[:n], scale=1.0)
            bench.assert_close(got, wanted, f"{scores}, {n} keys")


@pytest.mark.parametrize("length", [1, 2, 9])
def test_pairs_counts_the_visible_columns(length):
    q, k, _ = bench.inputs(length, heads=1)
    assert full.pairs(length) == int((full.effective(q, k) > 0).sum())
