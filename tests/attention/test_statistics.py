"""Statistics of attention rows: against the loops and against closed forms."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cca_lab.attention import statistics as analysis

counts = st.integers(1, 12)
shares = st.sampled_from([0.1, 0.5, 0.75, 0.9, 0.99, 1.0])


@st.composite
def rows(draw) -> torch.Tensor:
    """A distribution with zeros and ties: small integers, normalised."""
    drawn = draw(st.lists(st.integers(0, 5), min_size=1, max_size=12).filter(any))
    return torch.tensor(drawn, dtype=torch.float64) / sum(drawn)


def causal_maps(*shape: int, seed: int = 0) -> torch.Tensor:
    """Random causal maps (*shape, L, L) of which the last entry of shape is L."""
    length = shape[-1]
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(*shape, length, generator=generator, dtype=torch.float64)
    return scores.masked_fill(~torch.ones(length, length).tril().bool(), float("-inf")).softmax(-1)


def differs(wrong: torch.Tensor, right: torch.Tensor) -> bool:
    return not torch.allclose(wrong.double(), right.double(), rtol=0, atol=1e-9, equal_nan=True)


# The keys that hold a share


@given(rows(), shares)
def test_keys_for_mass_equals_its_loops(weights, mass):
    wanted = analysis.keys_for_mass_loops(weights.tolist(), mass)
    assert analysis.keys_for_mass(weights, mass).item() == wanted


@given(rows(), shares)
def test_the_counted_keys_hold_the_mass_and_one_fewer_do_not(weights, mass):
    count = analysis.keys_for_mass(weights, mass).item()
    held = analysis.held_mass(weights)
    assert held[count - 1] >= mass - analysis.ROUNDING
    assert count == 1 or held[count - 2] < mass - analysis.ROUNDING


@given(counts, shares)
def test_even_rows_need_their_share_of_the_keys(length, mass):
    even = torch.full((length,), 1 / length)
    assert analysis.keys_for_mass(even, mass).item() == math.ceil(mass * length - 1e-5)


def test_k90_of_a_row_known_by_hand():
    weights = torch.tensor([0.05, 0.20, 0.62, 0.01, 0.09, 0.03])  # 0.62, 0.82, 0.91
    assert analysis.k90(weights).item() == 3


# Entropy


@given(rows())
def test_entropy_equals_its_loops(weights):
    error = abs(analysis.entropy(weights).item() - analysis.entropy_loops(weights.tolist()))
    assert error < 1e-12, f"largest error {error:.1e}"


@given(counts, counts)
def test_effective_tokens_of_n_equal_keys_is_n(keys, unread):
    weights = torch.cat([torch.full((keys,), 1 / keys, dtype=torch.float64), torch.zeros(unread)])
    assert analysis.effective_tokens(weights).item() == pytest.approx(keys, rel=1e-12)


# Maps


def test_mass_beyond_equals_its_loops():
    maps = causal_maps(2, 9)
    for window, sinks in ((1, 0), (4, 0), (4, 2), (9, 0), (20, 3)):
        wanted = torch.zeros(2, 9, dtype=torch.float64)
        for i in range(9):
            kept = {*range(max(0, i - window + 1), i + 1), *range(sinks)}
            wanted[:, i] = sum((maps[:, i, t] for t in range(9) if t not in kept), torch.zeros(2))
        assert not differs(analysis.mass_beyond(maps, window, sinks), wanted), (window, sinks)
    assert analysis.mass_beyond(maps, 9).abs().max() == 0


def test_received_equals_its_loops_and_is_one_where_attention_is_even():
    maps = causal_maps(3, 7)
    wanted = torch.full((3, 7), float("nan"), dtype=torch.float64)
    for t in range(6):
        wanted[:, t] = sum((i + 1) * maps[:, i, t] for i in range(t + 1, 7)) / (6 - t)
    assert not differs(analysis.received(maps), wanted)
    even = torch.ones(5, 5, dtype=torch.float64).tril() / torch.arange(1, 6)[:, None]
    assert not differs(analysis.received(even)[:-1], torch.ones(4))
    assert analysis.received(even)[-1].isnan()


@given(rows(), rows())
def test_overlap_is_one_minus_the_total_variation(one, other):
    length = max(len(one), len(other))
    one, other = (torch.nn.functional.pad(row, (0, length - len(row))) for row in (one, other))
    assert not differs(analysis.overlap(one, other), 1 - (one - other).abs().sum() / 2)
    assert not differs(analysis.overlap(one, one), torch.tensor(1.0))


def test_summary_averages_the_chosen_rows():
    maps = causal_maps(2, 3, 8)
    summary = analysis.summarise(maps, first_row=5)
    for layer in range(2):
        for head in range(3):
            chosen = [maps[layer, head, i].tolist() for i in range(5, 8)]
            k90 = sum(analysis.keys_for_mass_loops(row, 0.9) for row in chosen) / 3
            entropies = [analysis.entropy_loops(row) for row in chosen]
            wanted = (k90, sum(entropies) / 3, sum(map(math.exp, entropies)) / 3,
                      sum(map(max, chosen)) / 3)
            found = (summary.k90, summary.entropy, summary.effective_tokens, summary.largest)
            assert [values[layer, head].item()
                    for values in found] == pytest.approx(wanted, rel=1e-12)


# The door


@pytest.mark.parametrize("call, words", [
    (lambda: analysis.k90(torch.tensor([0.5, 0.4])), "sums to 1 only within 0.1"),
    (lambda: analysis.entropy(torch.tensor([1.5, -0.5])), "negative"),
    (lambda: analysis.entropy(torch.tensor([float("nan"), 1.0])), "distributions"),
    (lambda: analysis.k90(torch.tensor(1.0)), "shape"),
    (lambda: analysis.keys_for_mass(torch.ones(1), 0.0), "mass: got 0.0"),
    (lambda: analysis.received(torch.ones(3, 1)), "wanted (..., L, L)"),
    (lambda: analysis.mass_beyond(torch.eye(3), 0), "window"),
    (lambda: analysis.summarise(torch.eye(3), 3), "first_row: got 3, wanted 0 to 2"),
])
def test_what_is_refused(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)
