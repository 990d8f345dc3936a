"""Wrong statements about DGA, and true ones that say less than holds: all are refuted."""

from fractions import Fraction
from math import ceil, floor

import numpy as np

from cca_lab.theory.causality import dga, focal
from cca_lab.theory.conditioning.spectrum import Condition, hessian, hessian_printed
from cca_lab.theory.noise import models as noise
from cca_lab.theory.sparsity import enclosure
from cca_lab.theory.sparsity.laws import points
from cca_lab.theory.sparsity.theorem1 import chances_over, two_term_bound, union_bound


def over_or_equal(law, rho):
    """Takes max X >= x for max X > x."""
    return max(law.probability(lambda row, x=x: max(row) >= x)
               - law.probability(lambda row, x=x: sum(row) > law.length * rho * x)
               for x in points(law, rho))


def counted(divisor):
    """The counting bound with another divisor."""
    return lambda law, rho: sum(chances_over(law, rho)) / divisor(law.length * rho)


def two_term_with_less_room(law, rho):
    """Takes P(S > (L rho - 1/4) x), a more frequent event."""
    most = law.length * rho - Fraction(1, 4)
    return max(law.probability(lambda row, x=x: max(row) > x)
               - law.probability(lambda row, x=x: sum(row) > most * x) for x in points(law, rho))


def head_alone(law, rho, x):
    """Forgets the half of the union in which the sum is large."""
    return law.probability(lambda row: row[0] <= x)


def no_cross_term(weights, j):
    """Lemma 2 without -2 alpha_j: as if alpha_j's own noise were not in the sum of the softmax."""
    return weights[j] ** 2 * (1 + sum(a * a for a in weights))


def no_cross_terms(values):
    """The diagonal of 2 V V^T: as if the weights did not interact."""
    return np.diag(np.diagonal(hessian(values)))


def covariance(values):
    """2 V^T V after the values' mean is taken off."""
    return hessian_printed(values - values.sum(axis=0) / len(values))


def blocks_by_length(q, k, v):
    """Blocks of a third of the text: only a prefix read alone is cut elsewhere."""
    return focal.attend_blocks(q, k, v, block=len(q) // 3)


def next_query(q, k, v):
    """Every row attends with the query of the next one."""
    return focal.attend_blocks(q.roll(-1, dims=0), k, v)


BROKEN = {
    "T1": over_or_equal,
    "T1.eq19": counted(lambda most: 1),
    "T1.eq20": head_alone,
    "T2": noise.Reduction(noise.POWERS | {"pooled": 1}),  # which nothing averages
    "T3": Condition(no_cross_terms),
    "T3.proof": Condition(covariance),
    "D1.alg2": (dga.any_member, dga.times),
    "D1.eq16": blocks_by_length,
}
# Also wrong, or still true and saying less than the article: a check that lets one of the latter
# pass would let the statement be weakened in silence.
ALSO_BROKEN = [
    ("T1", lambda law, rho: two_term_bound(law, rho) / 2), ("T1", two_term_with_less_room),
    ("T1.eq19", counted(ceil)), ("T1.eq19", counted(floor)),  # for ceil(L rho) - 1
    ("T1.eq20", lambda *case: union_bound(*case) + Fraction(1, 99)),
    *(("T2", noise.Reduction(noise.POWERS, lambda m, number=number: Fraction(number)))
      for number in (2, 4, 10)),  # for 2m/(m + 1)
    ("T2", noise.Reduction(noise.POWERS, lambda m: noise.constant(m) / 2)),
    ("T2", noise.Reduction(noise.POWERS | {"shared": 1})),
    ("T2", noise.Reduction(noise.POWERS | {"mean": 0})),
    ("T3", Condition(hessian, 2)),  # kappa at most doubles
    ("D1.alg2", (dga.all_members, dga.times)),
    ("D1.eq16", next_query),
]
# A formula of the article, a piece of it, and what would change it.
FORMULAS = [
    ("dga-two-term", "> x)", r"\ge x)"), ("dga-two-term", r"L\rho x", r"2L\rho x"),
    ("dga-union", "< S", r"\le S"), ("dga-counting", "- 1", ""),
    ("dga-markov", r"L\rho - 1", r"L\rho"), ("dga-markov", "{L - 1}", "{L}"),
    ("dga-few", "(L - 1)", "L"), ("dga-lemma-2", "- 2", "- "), ("dga-factor", "m^p", "m^{p+1}"),
    ("dga-constant", "2m", "4m"), ("dga-output", "\\frac{A_g}{m}", "A_g"),
    ("dga-separation", "L-k+i", "L"),
    ("dga-reversed", "\\frac{\\lambda_i(H)}{m}", "\\lambda_i(H)"),
    ("dga-saving", r"(1 - \gamma)", "1"), ("dga-fewer", "<", r"\le"),
]


# ---------------------------------------------------------------- wrong enclosures

RIGHT = enclosure._held, enclosure.cell_chances  # a test puts the wrong ones there


def rounded_the_other_way(tau, length, rho, t, cells):
    """Rounds z down for the lower end and up for the upper one."""
    return RIGHT[0](tau, length, rho, t, cells)[::-1]


def rounded_down_at_both_ends(tau, length, rho, t, cells):
    """Rounds z down at the lower end as well."""
    return (RIGHT[0](tau, length, rho, t, cells)[1],) * 2


def largest_counted_among_the_others(tau, length, rho, t, cells):
    """Compares the others with L rho y, not (L rho - 1) y."""
    return RIGHT[0](tau, length, rho + Fraction(1, length), t, cells)


def chances_not_given_the_maximum(tau, t, cells):
    """Forgets to divide by P(xi <= t)."""
    reached = enclosure.normal_below(enclosure.ball(t) / enclosure.ball(tau))
    return [chance * reached for chance in RIGHT[1](tau, t, cells)]


ENCLOSURES = [("_held", wrong) for wrong in (rounded_the_other_way, rounded_down_at_both_ends,
                                             largest_counted_among_the_others)]
ENCLOSURES += [("cell_chances", chances_not_given_the_maximum)]
