"""Wrong subjects for the claims on LoCoCo, and wrong formulas of its article: each is refuted."""

from fractions import Fraction

from cca_lab.theory.base_two import softmax
from cca_lab.theory.compression.convolution import keys_and_values


def finite_stand_in(scores, visible):
    """A hidden score becomes -30 instead of -inf: it keeps a weight."""
    return softmax([score if seen else -30 for score, seen in zip(scores, visible, strict=True)])


def mask_from_the_start(scores, block):
    """The triangle at the first columns of [K~, K_n]: later blocks lose what lies before."""
    return [softmax(row[:i % block + 1]) + [Fraction(0)] * (len(row) - i % block - 1)
            for i, row in enumerate(scores)]


def whole_block(scores, block):
    """No mask inside the block: a query reads all of its own block."""
    ends = [block * (i // block) + block for i in range(len(scores))]
    return [softmax(row[:end]) + [Fraction(0)] * (len(row) - end)
            for row, end in zip(scores, ends, strict=True)]


def last_row(attention):
    """An operator that reads the attention of the newest query only."""
    return tuple(attention[-1])


def constant_channel(keys, scores):
    """One more channel that says nothing about the token."""
    return [*keys_and_values(keys, scores), [1] * len(keys)]


def position_channel(keys, scores):
    """The position as a channel: a threshold keeps the later token, not the earlier."""
    return [*keys_and_values(keys, scores), range(len(keys))]


def first_in_first_out(weights):
    """A queue: the tokens of the last M steps."""
    slots, tokens = len(weights[0]), len(weights[0]) + len(weights)
    return set(range(tokens - slots, tokens))


BROKEN = {
    "LC.segments": mask_from_the_start,
    "LC.eq1": finite_stand_in,
    "LC.first": lambda slots, block: block,  # as if the cache were empty
    "LC.global": lambda entries: 2 * entries - 3,  # the next smaller odd width
    "LC.evict": last_row,
    "LC.conv": constant_channel,
    "LC.memory": first_in_first_out,
    "LC.peak": lambda slots, block: block * (slots + block) + slots,  # Step 4's weights forgotten
}
ALSO_BROKEN = [
    ("LC.segments", whole_block), ("LC.conv", position_channel),
    ("LC.peak", lambda slots, block: slots * (slots + block)),  # Step 3's scores forgotten
    ("LC.peak", lambda slots, block: max(slots, block) * (slots + block) + slots + 1),
]
FORMULAS = [  # label, a piece of it, and what is wrong in its place
    ("lococo-leak", "{h +", "{"), ("lococo-first", "+ B", "+ M"), ("lococo-taps", "- 1", "- 3"),
    ("lococo-peak", r"\max", r"\min"), ("lococo-share", "M + 1", "M + 2"),
    ("lococo-ratio", "w M", "M"), ("lococo-mean", r"\frac{1}{T}", r"\frac{1}{M}"),
]
