"""MQAR: what a text holds, where its queries stand, and how they are distributed."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import stats

from cca_lab.tasks import mqar
from cca_lab.tasks.mqar import FILLER, MQAR, UNASKED, distinct

SETTINGS = {"Figure 2, shortest": {}, "longer": {"length": 128, "pairs": 8},
            "no room": {"length": 16, "pairs": 4}, "one pair": {"length": 4, "pairs": 1},
            "few tokens": {"length": 32, "pairs": 5, "vocabulary": 12},
            "random filler": {"random_filler": True, "vocabulary": 64}}
# a draw from the right distribution fails with this probability; the seeds are fixed
LEAST_P = 1e-3


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def check(task, rows=200, seed=0):
    """Assert everything that the task promises of its texts but their distribution."""
    input_ids, targets = task.batch(rows, generator(seed))
    half, n = task.vocabulary // 2, task.pairs
    assert input_ids.shape == targets.shape == (rows, task.length)
    assert input_ids.dtype == targets.dtype == torch.int64
    for text, target in zip(input_ids.tolist(), targets.tolist(), strict=True):
        keys, values = text[: 2 * n : 2], text[1 : 2 * n : 2]
        asked = [at for at in range(task.length) if target[at] != UNASKED]
        assert len(set(keys)) == len(set(values)) == n, "keys, and values, differ"
        assert all(1 <= key < half <= value < 2 * half
                   for key, value in zip(keys, values, strict=True))
        assert all(at >= 2 * n and at % 2 == 0 for at in asked), "at even places of the rest"
        assert sorted(text[at] for at in asked) == sorted(keys), "each key is asked once"
        assert all(target[at] == dict(zip(keys, values, strict=True))[text[at]] for at in asked)
        if not task.random_filler:
            assert all(text[at] == FILLER for at in range(2 * n, task.length) if at not in asked)


@pytest.mark.parametrize("options", SETTINGS.values(), ids=SETTINGS)
def test_each_key_is_asked_once_and_its_value_is_the_target(options):
    check(MQAR(**options))


@dataclass(frozen=True, kw_only=True)
class TargetOneLate(MQAR):
    """Mutant: the target stands after the query, as in labels before their shift."""

    def batch(self, rows, generator):
        input_ids, targets = super().batch(rows, generator)
        return input_ids, targets.roll(1, dims=1)


@dataclass(frozen=True, kw_only=True)
class OtherKey(MQAR):
    """Mutant: the target is the value of the pair before."""

    def batch(self, rows, generator):
        input_ids, targets = super().batch(rows, generator)
        values = slice(1, 2 * self.pairs, 2)
        input_ids[:, values] = input_ids[:, values].roll(1, dims=1)
        return input_ids, targets


@pytest.mark.parametrize("mutant", [TargetOneLate, OtherKey])
def test_the_check_catches_a_wrong_target(mutant):
    with pytest.raises((AssertionError, KeyError)):
        check(mutant(pairs=8, vocabulary=64))


def with_replacement(rows, count, limit, generator):
    """Mutant of `distinct`: an integer may be drawn twice."""
    return torch.randint(limit, (rows, count), generator=generator)


def test_the_check_catches_draws_with_replacement(monkeypatch):
    monkeypatch.setattr(mqar, "distinct", with_replacement)
    with pytest.raises(AssertionError, match="differ"):
        check(MQAR(vocabulary=64))


def first_gaps(task, rows=4000):
    """Return how often each gap is that of the first key, (gaps,)."""
    input_ids, targets = task.batch(rows, generator())
    at = (targets == input_ids[:, 1:2]).nonzero()[:, 1]
    assert len(at) == rows
    return torch.bincount((at - 2 * task.pairs) // 2, minlength=task.gaps).numpy()


def agrees(counts, odds):
    return stats.chisquare(counts, counts.sum() * np.asarray(odds)).pvalue > LEAST_P


@dataclass(frozen=True, kw_only=True)
class UniformGaps(MQAR):
    """Mutant: every gap is as probable as any other."""

    def gap_odds(self):
        return torch.full((self.gaps,), 1 / self.gaps, dtype=torch.float64)


@dataclass(frozen=True, kw_only=True)
class PowerOff(MQAR):
    """Mutant: the base of the power is gap + 2."""

    def gap_odds(self):
        odds = torch.arange(2, self.gaps + 2, dtype=torch.float64) ** (self.power - 1)
        return odds / odds.sum()


def test_the_first_key_s_gap_follows_the_power_law():
    expected = np.arange(1, 29) ** (0.01 - 1)
    expected /= expected.sum()
    assert agrees(first_gaps(MQAR()), expected)
    assert not agrees(first_gaps(UniformGaps()), expected)
    assert not agrees(first_gaps(PowerOff()), expected)


def test_a_power_of_one_spreads_queries_evenly():
    assert agrees(first_gaps(MQAR(power=1.0)), np.full(28, 1 / 28))
    assert not agrees(first_gaps(MQAR(power=0.9)), np.full(28, 1 / 28))


def test_two_keys_draw_their_gaps_one_after_the_other():
    task = MQAR(length=12, pairs=2)  # four places
    input_ids, targets = task.batch(6000, generator())
    places = [(targets == input_ids[:, at : at + 1]).nonzero()[:, 1].sub(4) // 2 for at in (1, 3)]
    seen = torch.bincount(4 * places[0] + places[1], minlength=16).view(4, 4).numpy()
    odds = task.gap_odds().numpy()
    pair = odds[:, None] * odds / (1 - odds[:, None])  # the second gap is another
    different = ~np.eye(4, dtype=bool)
    assert not seen.diagonal().any() and agrees(seen[different], pair[different])


@pytest.mark.parametrize("count, limit", [(2, 5), (3, 4), (2, 4)])
def test_distinct_draws_every_order_equally_often(count, limit):
    drawn = distinct(6000, count, limit, generator())  # by redrawing, or by sorting
    codes = (drawn * limit ** torch.arange(count)).sum(-1)
    seen = torch.bincount(codes, minlength=limit**count).numpy()
    orders = np.prod(np.arange(limit - count + 1, limit + 1))
    assert (seen > 0).sum() == orders and agrees(seen[seen > 0], np.full(orders, 1 / orders))


def test_the_texts_depend_on_the_generator_alone():
    task = MQAR(random_filler=True)
    first, again, other = (task.batch(4, generator(seed)) for seed in (0, 0, 1))
    assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])


def test_random_filler_fills_every_place_from_the_whole_vocabulary():
    task = MQAR(random_filler=True, vocabulary=16)
    input_ids, targets = task.batch(3000, generator())
    filler = input_ids[:, 8:][targets[:, 8:] == UNASKED]
    assert agrees(torch.bincount(filler, minlength=16).numpy(), np.full(16, 1 / 16))
