"""Wrong subjects for the claims on LoCoCo's compressor: each must be refuted."""

from fractions import Fraction
from functools import partial

from cca_lab.theory.compression import convolution as compression
from cca_lab.theory.compression import memory


def drops_the_highest(accumulated):
    """Eviction of the most attended entry."""
    return compression.one_hot_rows([-score for score in accumulated])


def soft_rows(accumulated):
    """Survivors keep 9 tenths of their slot."""
    rows, count = compression.one_hot_rows(accumulated), len(accumulated)
    return [[Fraction(9, 10) * weight + Fraction(1, 10 * count) for weight in row] for row in rows]


def keys_and_last_row(keys, attention):
    """An operator that reads the attention of the newest query only."""
    return tuple(keys), tuple(attention[-1])


def constant_channel(keys, values, accumulated):
    """One more channel that says nothing about the token."""
    return [*compression.keys_and_values(keys, values, accumulated), [Fraction(1)] * len(keys)]


def position_channel(keys, values, accumulated):
    """The position as a channel: a threshold keeps the later token, not the earlier."""
    return [*compression.keys_and_values(keys, values, accumulated),
            [Fraction(t) for t in range(len(keys))]]


def first_in_first_out(weights):
    """A queue: the tokens of the last M steps."""
    slots, tokens = len(weights[0]), len(weights[0]) + len(weights)
    return set(range(tokens - slots, tokens))


def entries(block, r):
    """What the first r blocks leave in the cache, and the scores of one query on it."""
    return block * r


def scores(block, r):
    """The scores of block r."""
    return block * block * r


BROKEN = {
    "LC.evict": keys_and_last_row,
    "LC.conv": constant_channel,
    "LC.eq3": lambda key, value: key * value,
    "LC.global": 2 * 640 - 3,
    "LC.memory": first_in_first_out,
    "LC.overhead": compression.Setting(compression.direct, 128, 1),
    "LC.segment-cost": (entries, entries, lambda length, block: length),  # one query a block
    "LC.peak": lambda slots, block: block * (slots + block) + slots,  # Step 4's weights forgotten
    "LC.constant": partial(memory.run, block=2, slots=None),  # Algorithm 1
}
ALSO_BROKEN = [
    ("LC.conv", position_channel),
    ("LC.segment-cost", (scores, entries, lambda length, block: length)),
    ("LC.segment-cost", (scores, lambda block, r: block, lambda length, block: length * block)),
    ("LC.peak", lambda slots, block: slots * (slots + block)),  # Step 3's scores forgotten
]
WRONG_ROWS = [drops_the_highest, soft_rows]
