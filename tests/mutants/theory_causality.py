"""Wrong subjects for the claims on causality (DGA and LoCoCo), each to be refuted."""

from fractions import Fraction
from itertools import permutations

from cca_lab.theory.base_two import softmax
from cca_lab.theory.causality import dga, focal, lococo


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


def without_last_member(order, members):
    """The judge's own key is left out."""
    return list(members[:-1]), [members[-1]]


def positions_as_tokens(order, members):
    """The slice is taken from K', but with token indices: other tokens stand at those positions."""
    return list(order[members[0] : members[-1] + 1]), [members[-1]]


def any_partition(tokens, size):
    """Every partition into groups, as if Algorithm 2 ended after step 2."""
    for order in permutations(tokens):
        groups = [tuple(order[z:z + size]) for z in range(0, len(order), size)]
        if groups == sorted(groups) and all(tuple(sorted(group)) == group for group in groups):
            yield groups


def dealt_partition(tokens, size):
    """Groups dealt like cards: token 0 with token k, 2k, ..."""
    count = len(tokens) // size
    yield [tuple(tokens[z::count]) for z in range(count)]


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


def each_continuation_once(corpus):
    """The last pair of each context: contexts that occur often count once."""
    return sorted(dict(corpus).items())


def blocks_by_length(q, k, v):
    """Blocks of a third of the text: only a prefix read alone is cut elsewhere."""
    return focal.attend_blocks(q, k, v, block=len(q) // 3)


def next_query(q, k, v):
    """Every row attends with the query of the next one."""
    return focal.attend_blocks(q.roll(-1, dims=0), k, v)


def accumulated(weights):
    """Sums instead of means: older tokens are seen by more rows."""
    return [sum((row[t] for row in weights), Fraction(0)) for t in range(len(weights))]


PLANTED_AND_EVEN = (focal.one_important, focal.none_important)
BROKEN = {
    "D1.eq13": finite_stand_in,
    "LC.eq1": finite_stand_in,
    "LC.eq5": values_uniform,
    "LC.eq7": by_absolute_sum,
    "LC.alg1": segments_from_zero,
    "LC.segments": mask_from_the_start,
    "LC.first": never_fewer_than_slots,
    "D1.likelihood": each_continuation_once,
    "D1.alg2": (dga.all_members, dga.times),
    "D1.eq12": lambda row, last: row - row % 3 - 1,  # of the group before
    "D1.eq14": ((without_last_member,), True, True),
    "D1.eq15": dealt_partition,
    "D1.eq16": blocks_by_length,
    "D1.bias": (accumulated, PLANTED_AND_EVEN),
    "D1.norm": lambda i, length: length - i,  # the token's own row left out
}
ALSO_BROKEN = [("D1.alg2", (dga.any_member, dga.times)), ("LC.eq5", values_from_the_next_slot),
               ("D1.eq16", next_query), ("D1.eq14", ((positions_as_tokens,), True, True)),
               ("D1.eq15", any_partition), ("LC.eq7", relu_ratio),
               ("LC.segments", whole_block), ("D1.bias", (accumulated, PLANTED_AND_EVEN[:1]))]
