"""Wrong subjects for the claims on causality (LoCoCo), each to be refuted."""

from fractions import Fraction

from cca_lab.theory.base_two import softmax
from cca_lab.theory.causality import lococo


def finite_stand_in(scores, visible):
    """A hidden score becomes -30 instead of -inf: it keeps a weight."""
    return softmax([score if seen else -30 for score, seen in zip(scores, visible, strict=True)])


def values_from_the_next_slot(weights, keys, queries, values):
    """Values are mixed with another slot's weights."""
    shifted = [*weights[1:], weights[0]]
    return (lococo.value_update(weights, keys, queries, values)[0],
            lococo.value_update(shifted, keys, queries, values)[1])


def values_uniform(weights, keys, queries, values):
    """Values are averaged, whatever the weights of the keys."""
    mean = sum(values, Fraction(0)) / len(values)
    return lococo.value_update(weights, keys, queries, values)[0], [mean] * len(weights)


def segments_from_zero(n, block):
    """Tokens counted from 0 where the paper counts from 1."""
    return (n - 1) * block, n * block - 1


def relu_ratio(row):
    """Eq. 7 after a ReLU ("we prepend a ReLU as the activation function", Section 3.2.1)."""
    return lococo.ratio([max(0, w) for w in row])


def by_absolute_sum(row):
    """Divided by the sum of absolute values: with signs the weights do not sum to 1."""
    return [Fraction(w, sum(map(abs, row))) if any(row) else Fraction(1, len(row)) for w in row]


def never_fewer_than_slots(slots, block, cached):
    """As if the first compression found a full cache or an empty one."""
    return block + (slots if cached else 0)


def mask_from_the_start(scores, block):
    """The triangle at the first columns of [K~, K_n]: later blocks lose what lies before."""
    return [softmax(row[:i % block + 1]) + [Fraction(0)] * (len(row) - i % block - 1)
            for i, row in enumerate(scores)]


def whole_block(scores, block):
    """No mask inside the block: a query reads all of its own block."""
    ends = [block * (i // block) + block for i in range(len(scores))]
    return [softmax(row[:end]) + [Fraction(0)] * (len(row) - end)
            for row, end in zip(scores, ends, strict=True)]


BROKEN = {
    "LC.eq1": finite_stand_in,
    "LC.eq5": values_uniform,
    "LC.eq7": by_absolute_sum,
    "LC.alg1": segments_from_zero,
    "LC.segments": mask_from_the_start,
    "LC.first": never_fewer_than_slots,
}
ALSO_BROKEN = [("LC.eq5", values_from_the_next_slot), ("LC.eq7", relu_ratio),
               ("LC.segments", whole_block)]
