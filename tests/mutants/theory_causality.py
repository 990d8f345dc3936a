"""Wrong subjects for the claims on causality (DGA Algorithm 2, Eq. 13-16; LoCoCo Eq. 1, 5, 7): to be refuted."""

from fractions import Fraction

from cca_lab.theory.base_two import softmax
from cca_lab.theory.causality import dga as causality_dga
from cca_lab.theory.causality import focal as causality_focal
from cca_lab.theory.causality import lococo as causality_lococo


def finite_stand_in(scores, visible):
    """A hidden score becomes -30 instead of -inf: it keeps a weight."""
    return softmax([score if seen else -30 for score, seen in zip(scores, visible, strict=True)])


def without_itself(key, query):
    """A strict triangle: a query does not read its own key, and the first one reads nothing."""
    return key < query


def values_from_the_next_slot(weights, keys, queries, values):
    """Values are mixed with another slot's weights."""
    shifted = [*weights[1:], weights[0]]
    return (causality_lococo.value_update(weights, keys, queries, values)[0],
            causality_lococo.value_update(shifted, keys, queries, values)[1])


def values_uniform(weights, keys, queries, values):
    """Values are averaged, whatever the weights of the keys."""
    mean = sum(values, Fraction(0)) / len(values)
    return causality_lococo.value_update(weights, keys, queries, values)[0], [mean] * len(weights)


def segments_from_zero(n, block):
    """Tokens counted from 0 where the paper counts from 1."""
    return range((n - 1) * block, n * block)


def without_last_member(members):
    """The judge's own key is left out."""
    return list(members[:-1])


def dealt_partition(tokens, size):
    """Groups dealt like cards: token 0 with token k, 2k, ..."""
    count = len(tokens) // size
    yield [tuple(tokens[z::count]) for z in range(count)]


def blocks_by_length(q, k, v):
    """Blocks of a third of the text: no edit and no derivative tells, but a prefix alone is cut elsewhere."""
    return causality_focal.attend_blocks(q, k, v, block=len(q) // 3)


def next_query(q, k, v):
    """Every row attends with the query of the next one."""
    return causality_focal.attend_blocks(q.roll(-1, dims=0), k, v)


def accumulated(weights):
    """Sums instead of means: older tokens are seen by more rows."""
    return [sum((row[t] for row in weights), Fraction(0)) for t in range(len(weights))]


BROKEN = {
    "D1.eq13": finite_stand_in, "LC.eq1": finite_stand_in, "LC.eq1.mask": without_itself,
    "LC.eq5": values_uniform, "LC.eq7": causality_lococo.relu_ratio, "LC.alg1": segments_from_zero,
    "D1.alg2": (causality_dga.all_members, causality_dga.times), "D1.eq14": without_last_member,
    "D1.eq15": dealt_partition, "D1.eq16": blocks_by_length, "D1.bias": accumulated,
}
ALSO_BROKEN = [
    ("D1.alg2", (causality_dga.any_member, causality_dga.times)), ("LC.eq5", values_from_the_next_slot),
    ("D1.eq16", next_query),
]
