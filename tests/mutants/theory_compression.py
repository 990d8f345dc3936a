"""Wrong subjects for the claims on LoCoCo's compressor: each must be refuted."""

from fractions import Fraction

from cca_lab.theory import compression


def drops_the_highest(accumulated):
    """Eviction of the most attended entry."""
    return compression.one_hot_rows([-score for score in accumulated])


def soft_rows(accumulated):
    """Survivors keep 9 tenths of their slot."""
    rows, count = compression.one_hot_rows(accumulated), len(accumulated)
    return [[Fraction(9, 10) * weight + Fraction(1, 10 * count) for weight in row] for row in rows]


def constant_channel(keys, values, accumulated):
    """One more channel that says nothing about the token."""
    return [*compression.keys_and_values(keys, values, accumulated), [Fraction(1)] * len(keys)]


def position_channel(keys, values, accumulated):
    """The position as a channel: the windows differ, but a threshold keeps the later token, not the earlier."""
    return [*compression.keys_and_values(keys, values, accumulated), [Fraction(t) for t in range(len(keys))]]


def first_in_first_out(steps, slots):
    """The share of a token in a queue of M slots, averaged over the slots."""
    return Fraction(int(steps < slots), slots)


def keys_only(slots, block, kernel):
    """The overhead if attention did not read values."""
    return Fraction(2 * kernel * slots, block)


BROKEN = {
    "LC.evict": drops_the_highest, "LC.conv": constant_channel, "LC.memory": first_in_first_out,
    "LC.overhead": keys_only,
}
ALSO_BROKEN = [("LC.evict", soft_rows), ("LC.conv", position_channel)]
