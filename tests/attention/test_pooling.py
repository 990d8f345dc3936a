"""Pooling groups into cores: against plain Python, rotation, gradients, refusals, mutants."""

import math
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from cca_lab.attention import pool_groups, pooling_matrix
from tests.mechanisms.bench import assert_close, inputs
from tests.mutants.attention import POOLING
from tests.mutants.slips import planted

GQA = {"length": 11, "batch": 2, "heads": 4, "kv_heads": 2}


# ---------------------------------------------------------------- the specification

def loops(q, k, v, group, *, count=None, weights="softmax", per_query_head=False, scale=None):
    """pool_groups in plain Python for unrotated keys: core_k, core_v (B, heads of cores, M, D)."""
    batch, heads, length, head_dim = q.shape
    share, count = heads // k.shape[1], length // group if count is None else count
    scale = head_dim**-0.5 if scale is None else scale
    cores = heads if per_query_head else k.shape[1]
    out = [x.new_zeros(batch, cores, count, head_dim) for x in (k, v)]
    for b in range(batch):
        for h in range(cores):
            kv = h // share if per_query_head else h
            judges = [h] if per_query_head else range(h * share, (h + 1) * share)
            for p in range(count):
                members = range(p * group, (p + 1) * group)
                last = members[-1]
                phi = judged([[scale * dot(q[b, j, last],
                                           k[b, kv, t]) for t in members] for j in judges])
                for core, x in zip(out, (k, v), strict=True):
                    features = zip(*(x[b, kv, t].tolist() for t in members), strict=True)
                    core[b, h, p] = x.new_tensor([combine(weights, phi,
                                                          feature) for feature in features])
    return tuple(out)


def dot(x: Tensor, y: Tensor) -> float:
    return sum(a * b for a, b in zip(x.tolist(), y.tolist(), strict=True))


def judged(logits: list[list[float]]) -> list[float]:
    """Softmax of the mean over judges."""
    mean = [sum(column) / len(logits) for column in zip(*logits, strict=True)]
    exps = [math.exp(x - max(mean)) for x in mean]
    return [x / sum(exps) for x in exps]


def combine(weights: str, phi: list[float], values: list[float]) -> float:
    if weights == "max":
        return max(values)
    return sum(values) / len(values) if weights == "mean" else sum(map(lambda w, x: w * x, phi,
                                                                       values))


# ---------------------------------------------------------------- checks

def check_loops(pool=pool_groups, *, group: int = 3, sizes: dict | None = None, **options) -> None:
    q, k, v = inputs(**(sizes or GQA))
    got, wanted = pool(q, k, v, group, **options), loops(q, k, v, group, **options)
    assert_close(got[0], wanted[0], "core keys")
    assert_close(got[1], wanted[1], "core values")


def tables(length: int, head_dim: int, factor: float = 1.0, first: int = 0) -> tuple[Tensor,
                                                                                     Tensor]:
    """RoPE tables (cos, sin), (L, D) each, of positions first, first + 1, ..., times `factor`."""
    positions = torch.arange(first, first + length, dtype=torch.float64)
    angles = positions[:, None] * 10.0 ** -torch.arange(head_dim // 2)
    angles = torch.cat([angles, angles], dim=-1)
    return factor * angles.cos(), factor * angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def check_rotation(pool=pool_groups, group: int = 3, factor: float = 1.0,
                   batched: bool = False) -> None:
    """Core key = the pooled *unrotated* key, rotated at the middle; phi from rotated logits."""
    q, k, v = inputs(**GQA)
    length, head_dim = k.shape[2:]
    cos, sin = tables(length, head_dim, factor)
    if batched:  # each sequence at positions of its own
        other = tables(length, head_dim, factor, first=5)
        cos, sin = torch.stack([cos, other[0]]), torch.stack([sin, other[1]])
    wide = [x if x.dim() == 2 else x[:, None] for x in (cos, sin)]
    q, rotated = rotate(q, *wide), rotate(k, *wide)
    core_k, core_v, phi = pool(q, rotated, v, group, rotation=(cos, sin), return_phi=True)
    _, wanted_v, wanted_phi = pool(q, rotated, v, group, return_phi=True)
    members = k[:, :, : phi.shape[2] * group].unflatten(2, (-1, group))
    pooled = (wanted_phi.unsqueeze(-1) * members).sum(3)
    middle = [x[..., group // 2 :: group, :][..., : phi.shape[2], :] for x in wide]
    assert_close(core_k, rotate(pooled, *middle), "core keys at the middle")
    assert_close(core_v, wanted_v, "core values, which no rotation touches")


# ---------------------------------------------------------------- tests

@pytest.mark.parametrize("weights", ["softmax", "mean", "max"])
@pytest.mark.parametrize("per_query_head", [False, True])
@pytest.mark.parametrize("group", [1, 3, 11])
def test_pooling_equals_plain_python(weights, per_query_head, group):
    check_loops(weights=weights, per_query_head=per_query_head, group=group)


@pytest.mark.parametrize("options", [{"count": 2}, {"scale": 1.7},
                                     {"sizes": {"length": 1}, "group": 1}], ids=str)
def test_options_of_pooling(options):
    check_loops(**options)


@pytest.mark.parametrize(("group", "count"), [(3, 0), (12, None)])
@pytest.mark.parametrize("weights", ["softmax", "mean", "max"])
def test_no_group_gives_empty_cores(group, count, weights):
    q, k, v = inputs(**GQA)
    core_k, core_v, phi = pool_groups(q, k, v, group, count=count, weights=weights,
                                      rotation=tables(11, 4), return_phi=True)
    assert core_k.shape == core_v.shape == (2, 2, 0, 4)
    assert phi is None if weights == "max" else phi.shape == (2, 2, 0, group)


@pytest.mark.parametrize("options", [{}, {"group": 4}, {"factor": 1.3}, {"batched": True}], ids=str)
def test_rotated_keys_are_pooled_unrotated_and_put_at_the_middle(options):
    check_rotation(**options)


@pytest.mark.parametrize("weights", ["softmax", "mean", "max"])
def test_gradients_against_finite_differences(weights):
    q, k, v = (x.requires_grad_() for x in inputs(7, heads=2))
    pool = partial(pool_groups, group=3, weights=weights, rotation=tables(7, 4))
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


# ---------------------------------------------------------------- mutants

MUTANTS = [  # (mutant, the check that kills it, what the check says)
    ("first_query_judges", check_loops, "core keys"),
    ("weights_averaged", check_loops, "core keys"),
    ("scale_forgotten", check_loops, "core keys"),
    ("turned_to_first", check_rotation, "core keys at the middle"),
    ("keys_left_turned", check_rotation, "core keys at the middle"),
    ("conjugated", partial(check_rotation, factor=1.3), "core keys at the middle"),
]


@pytest.mark.parametrize(("mutant", "check", "message"), MUTANTS)
def test_mutants_die(mutant, check, message):
    check()
    with planted(*POOLING[mutant]), pytest.raises(AssertionError, match=message):
        check()


def test_autocast_leaves_the_weights_alone():
    q, k, v = torch.randn(3, 1, 2, 12, 8)
    wanted = pool_groups(q, k, v, 4, return_phi=True)
    with torch.autocast("cpu", torch.bfloat16):
        got = pool_groups(q, k, v, 4, return_phi=True)
    assert all(map(torch.equal, got, wanted))
