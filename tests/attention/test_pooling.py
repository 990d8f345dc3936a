"""Pooling groups into cores: gradients, rounding, its matrix.

The loops of CCA and of DGA say what it computes; tests/mechanisms compares them.
"""

from functools import partial

import pytest
import torch
from torch.autograd import gradcheck

from cca_lab.attention import pool_groups, pooling_matrix
from tests.mechanisms.bench import assert_close, inputs, rope_tables

GQA = {"length": 11, "batch": 2, "heads": 4, "kv_heads": 2}


@pytest.mark.parametrize(("group", "count"), [(3, 0), (12, None)])
@pytest.mark.parametrize("weights", ["softmax", "mean", "max"])
def test_no_group_gives_empty_cores(group, count, weights):
    q, k, v = inputs(**GQA)
    core_k, core_v, phi = pool_groups(q, k, v, group, count=count, weights=weights,
                                      rotation=rope_tables(11, 4), return_phi=True)
    assert core_k.shape == core_v.shape == (2, 2, 0, 4)
    assert phi is None if weights == "max" else phi.shape == (2, 2, 0, group)


@pytest.mark.parametrize("weights", ["softmax", "mean", "max"])
def test_gradients_against_finite_differences(weights):
    q, k, v = (x.requires_grad_() for x in inputs(7, heads=2))
    pool = partial(pool_groups, group=3, weights=weights, rotation=rope_tables(7, 4))
    assert gradcheck(lambda *x: pool(*x), (q, k, v))


def test_pooling_projected_keys_equals_projecting_pooled_inputs():
    """Why K and V may be pooled instead of the layer's input (Eq. 3): phi sums to 1."""
    q, x, _ = inputs(**GQA)
    weight, bias = torch.randn(4, 4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    _, projected_then_pooled, phi = pool_groups(q, x, x @ weight + bias, 3, return_phi=True)
    pooled = pooling_matrix(phi, 11) @ x
    assert_close(projected_then_pooled, pooled @ weight + bias, "order of pooling and projecting")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_low_precision_rounds_once(dtype):
    """Sums are taken in float32 (error of tens of 2^-24); only the result is rounded."""
    q, k, v = (x.to(dtype) for x in inputs(**GQA))
    wanted = pool_groups(q.double(), k.double(), v.double(), 3)
    for got, want in zip(pool_groups(q, k, v, 3), wanted, strict=True):
        assert got.dtype == dtype
        assert_close(got.double(), want, "cores", torch.finfo(dtype).eps / 2 + 1e-5)


def test_pooling_matrix_rows():
    q, k, v = inputs(**GQA)
    _, core_v, phi = pool_groups(q, k, v, 3, return_phi=True)
    matrix = pooling_matrix(phi, 11)
    assert matrix.shape == (2, 2, 3, 11)
    assert_close(matrix.sum(-1), torch.ones(2, 2, 3, dtype=torch.float64), "row sums of P")
    assert_close(matrix @ v, core_v, "P v against the cores")
    assert pooling_matrix(phi[:, :, :0], 11).shape == (2, 2, 0, 11)
    with pytest.raises(ValueError, match="got 3 groups of 3 tokens, wanted them to fit into 8"):
        pooling_matrix(phi, 8)


def test_autocast_leaves_the_weights_alone():
    q, k, v = torch.randn(3, 1, 2, 12, 8)
    wanted = pool_groups(q, k, v, 4, return_phi=True)
    with torch.autocast("cpu", torch.bfloat16):
        got = pool_groups(q, k, v, 4, return_phi=True)
    assert all(map(torch.equal, got, wanted))
