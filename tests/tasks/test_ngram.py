"""Kneser-Ney against a dictionary version, and as a probability distribution."""

import itertools
from collections import Counter, defaultdict

import numpy as np
import pytest

from cca_lab.tasks.ngram import KneserNey

VOCABULARY = 5
TEXT = np.random.default_rng(0).integers(0, VOCABULARY, 60)


def by_dictionary(tokens, order, vocabulary, context, word, *, continuation=True):
    """Interpolated Kneser-Ney from the definition; without `continuation`, the mutant."""
    def grams(n):
        return [tuple(tokens[i:i + n]) for i in range(len(tokens) - n + 1)]

    def counts(n):
        if n == order or not continuation:
            return Counter(grams(n))
        return Counter(gram[1:] for gram in set(grams(n + 1)))

    def probability(n, history):
        if n == 0:
            return 1.0 / vocabulary
        table = counts(n)
        followers = defaultdict(dict)
        for gram, count in table.items():
            followers[gram[:-1]][gram[-1]] = count
        once, twice = (sum(c == k for c in table.values()) for k in (1, 2))
        discount = once / (once + 2 * twice) if once else 0.0
        lower = probability(n - 1, history[1:])
        seen = followers.get(history)
        if not seen:
            return lower
        total = sum(seen.values())
        return max(seen.get(word, 0) - discount, 0) / total + discount * len(seen) / total * lower

    return probability(order, tuple(context))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_equals_the_dictionary_version(order):
    model = KneserNey(TEXT, order, VOCABULARY)
    for gram in itertools.product(range(VOCABULARY), repeat=order):
        expected = by_dictionary(TEXT.tolist(), order, VOCABULARY, gram[:-1], gram[-1])
        assert model.probabilities(np.array(gram))[0] == pytest.approx(expected, abs=1e-12)


def test_the_comparison_catches_raw_lower_counts():
    model = KneserNey(TEXT, 2, VOCABULARY)
    gaps = [abs(model.probabilities(np.array([h, w]))[0]
                - by_dictionary(TEXT.tolist(), 2, VOCABULARY, (h,), w, continuation=False))
            for h in range(VOCABULARY) for w in range(VOCABULARY)]
    assert max(gaps) > 1e-3


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_probabilities_sum_to_one(order):
    model = KneserNey(TEXT, order, VOCABULARY + 1)  # one token was never seen
    for history in itertools.product(range(VOCABULARY + 1), repeat=order - 1):
        total = sum(model.probabilities(np.array([*history, word]))[0]
                    for word in range(VOCABULARY + 1))
        assert total == pytest.approx(1.0, abs=1e-12)


def test_order_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="63"):
        KneserNey(TEXT, 5, 2**13)
