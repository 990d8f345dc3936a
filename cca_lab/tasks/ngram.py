"""The n-gram baseline for perplexity: interpolated Kneser-Ney.

    p_n(w | h) = max(c(hw) - D, 0) / c(h) + D * N(h.) / c(h) * p_{n-1}(w | h')

c counts occurrences at the highest order and distinct left neighbours below it,
N(h.) is the number of distinct words after h, h' is h without its oldest word, and
D = n1 / (n1 + 2 n2), with n1 and n2 the numbers of n-grams seen once and twice.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.int64]


@dataclass(frozen=True)
class _Order:
    """Counts of one order: sorted n-gram keys, and sorted context keys."""

    ngrams: Keys
    counts: NDArray[np.int64]
    contexts: Keys
    context_counts: NDArray[np.int64]
    context_followers: NDArray[np.int64]
    discount: float


def _bits(vocabulary: int) -> int:
    return max(1, int(vocabulary - 1).bit_length())


def _keys(tokens: Keys, order: int, bits: int) -> Keys:
    """Pack each run of `order` tokens into one integer, the oldest token highest."""
    count = len(tokens) - order + 1
    key = np.zeros(count, dtype=np.int64)
    for offset in range(order):
        key = (key << bits) | tokens[offset:offset + count]
    return key


def _lookup(keys: Keys, table: Keys, values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return values[table == key] for each key, 0 if the table does not hold it."""
    at = np.minimum(np.searchsorted(table, keys), len(table) - 1)
    return np.where(table[at] == keys, values[at], 0)


class KneserNey:
    """An interpolated Kneser-Ney model over token ids.

    Args:
        tokens: (n,) token ids to train on.
        order: the longest n-gram, 1 to 5.
        vocabulary: number of token ids.

    Raises:
        ValueError: if an n-gram does not fit into 63 bits.
    """

    def __init__(self, tokens: Keys, order: int, vocabulary: int) -> None:
        self.order, self.vocabulary = order, vocabulary
        self.bits = _bits(vocabulary)
        if not self.fits(order, vocabulary):
            raise ValueError(f"order: {order}-grams over {vocabulary} tokens take "
                             f"{self.bits * order} bits, wanted at most 63; lower the order")
        tokens = np.asarray(tokens, dtype=np.int64)
        highest = np.unique(_keys(tokens, order, self.bits), return_counts=True)
        self.orders = {order: self._count(*highest)}
        for lower in range(order - 1, 0, -1):
            # continuation counts: in how many distinct (lower+1)-grams does this one end?
            longer = np.unique(_keys(tokens, lower + 1, self.bits))
            suffix = longer & ((1 << (self.bits * lower)) - 1)
            self.orders[lower] = self._count(*np.unique(suffix, return_counts=True))

    @staticmethod
    def fits(order: int, vocabulary: int) -> bool:
        """Return whether an n-gram of this order fits into one 63-bit key."""
        return order * _bits(vocabulary) <= 63

    def _count(self, ngrams: Keys, counts: NDArray[np.int64]) -> _Order:
        context = ngrams >> self.bits
        contexts, first, followers = np.unique(context, return_index=True, return_counts=True)
        context_counts = np.add.reduceat(counts, first)
        once, twice = int((counts == 1).sum()), int((counts == 2).sum())
        discount = once / (once + 2 * twice) if once else 0.0
        return _Order(ngrams, counts, contexts, context_counts, followers, discount)

    def probabilities(self, tokens: Keys) -> NDArray[np.float64]:
        """Return p(token t | the order - 1 tokens before) for t >= order - 1, (n - order + 1,)."""
        tokens = np.asarray(tokens, dtype=np.int64)
        count = len(tokens) - self.order + 1
        probability = np.full(count, 1.0 / self.vocabulary)
        for order in range(1, self.order + 1):
            table = self.orders[order]
            keys = _keys(tokens, order, self.bits)[-count:]
            seen = _lookup(keys, table.ngrams, table.counts)
            total = _lookup(keys >> self.bits, table.contexts, table.context_counts)
            followers = _lookup(keys >> self.bits, table.contexts, table.context_followers)
            known = total > 0  # for an unseen context the lower order is used unchanged
            scale = np.where(known, total, 1)
            back_off = np.where(known, table.discount * followers / scale, 1.0)
            probability = np.maximum(seen - table.discount, 0.0) / scale + back_off * probability
        return probability

    def perplexity(self, tokens: Keys) -> float:
        """Return exp of the mean negative log probability of a token stream."""
        return float(np.exp(-np.log(self.probabilities(tokens)).mean()))
