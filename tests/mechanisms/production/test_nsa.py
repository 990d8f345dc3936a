"""Native Sparse Attention: the vectorised form equals the loops, edits, limits, mutants."""

import pytest
import torch

from cca_lab.attention import causal_intervals, interval_attention
from cca_lab.mechanisms.production import nsa


def case(length, block, heads=4, key_heads=2, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    q, k, v = draw(2, heads, length, 6), draw(2, key_heads, length, 6), draw(2, key_heads, length,
                                                                             6)
    pooled = [x[:, :, : length // block * block].unflatten(2, (-1, block)).mean(dim=3)
              for x in (k, v)]
    return [q, k, v, *pooled, torch.sigmoid(draw(2, heads, length, 3))]


def gap(one, other):
    return float((one - other).abs().max())


@pytest.mark.parametrize("length, block, count, window",
                         [(1, 1, 1, 1), (3, 4, 2, 2), (13, 4, 2, 3), (20, 4, 3, 5), (20, 4, 1, 5),
                          (17, 1, 5, 4), (24, 3, 100, 100)])
def test_all_rows_at_once_equal_the_loops(length, block, count, window):
    inputs = case(length, block)
    found = nsa.attend(*inputs, block=block, count=count, window=window)
    assert gap(found, nsa.attend_by_loops(*inputs, block=block, count=count, window=window)) < 1e-12


def test_everything_selected_and_in_the_window_is_full_attention():
    q, k, v, *pooled, _ = case(19, 4)
    gates = torch.tensor([0.0, 0.5, 0.5], dtype=torch.float64).expand(2, 4, 19, 3)
    full = interval_attention(q, k, v, causal_intervals(19), backend="dense")
    assert gap(nsa.attend(q, k, v, *pooled, gates, block=4, count=5, window=19), full) < 1e-12


def test_finite_edits_leave_earlier_rows_bit_equal():
    inputs = case(20, 4)
    before = nsa.attend(*inputs, block=4, count=2, window=5)
    for cut in range(20):
        q, k, v, _, _, gates = (x.clone() for x in inputs)
        for x in (q, k, v, gates):
            x[:, :, cut + 1 :] = 2.0
        pooled = [x.unflatten(2, (-1, 4)).mean(dim=3) for x in (k, v)]
        after = nsa.attend(q, k, v, *pooled, gates, block=4, count=2, window=5)
        assert torch.equal(after[:, :, : cut + 1], before[:, :, : cut + 1])


def test_gradients():
    inputs = [x.requires_grad_() for x in case(9, 3)]
    torch.autograd.gradcheck(lambda *x: nsa.attend(*x, block=3, count=2, window=4), inputs)


def heads_choose_alone(weights, key_heads, block, count):
    return right(weights, weights.shape[1], block, count)


def without_the_own_block(weights, key_heads, block, count):
    found, row = right(weights, key_heads, block, count), torch.arange(weights.shape[2])
    return (found & (row // block != row[:, None] // block)) | torch.eye(weights.shape[2],
                                                                         dtype=torch.bool)


def one_block_fewer(weights, key_heads, block, count):
    return right(weights, key_heads, block, max(1, count - 1))


right = nsa.selected


@pytest.mark.parametrize("mutant", [heads_choose_alone, without_the_own_block, one_block_fewer])
def test_mutants_die(mutant, monkeypatch):
    inputs = case(20, 4)
    wanted = nsa.attend_by_loops(*inputs, block=4, count=3, window=5)
    monkeypatch.setattr(nsa, "selected", mutant)
    assert gap(nsa.attend(*inputs, block=4, count=3, window=5), wanted) > 1e-3


@pytest.mark.parametrize("change, words",
                         [(dict(block=0), "block: got 0"),
                          (dict(pooled_k=torch.zeros(1)), "pooled_k, pooled_v: got shapes"),
                          (dict(gates=torch.zeros(2)),
                           r"gates: got shape \(2,\), wanted \(2, 4, 8, 3\)")])
def test_wrong_arguments_are_named(change, words):
    names = ("q", "k", "v", "pooled_k", "pooled_v", "gates")
    arguments = dict(zip(names, case(8, 4), strict=True)) | dict(block=4, count=2,
                                                                 window=3) | change
    with pytest.raises(ValueError, match=words):
        nsa.attend(**arguments)
