"""Wrong statements about sparsity, easy slips, each of which the claim of that id must refute."""

from fractions import Fraction
from math import ceil, log

from scipy.stats import norm

from cca_lab.theory.sparsity import enclosure
from cca_lab.theory.sparsity.bounds import bracket
from cca_lab.theory.sparsity.laws import points
from cca_lab.theory.sparsity.limit import limit
from cca_lab.theory.sparsity.theorem1 import counting_bound, eq19


def two_term_without_rho(law, rho):
    """Takes S > L x for S > L rho x, a rarer event."""
    return max(law.probability(lambda row, x=x: max(row) > x)
               - law.probability(lambda row, x=x: sum(row) > law.length * x)
               for x in points(law, rho))


def one_law_forgotten(law, rho):
    """Believes that Eq. 19 holds for any law where L rho <= 2; it needs weights of one law."""
    return max(counting_bound(law, rho), eq19(law, rho) if law.length * rho <= 2 else 0)


def head_alone(law, rho, x):
    """Forgets the half of the union in which the sum is large."""
    return law.probability(lambda row: row[0] <= x)


def tail_alone(law, rho, x):
    """Forgets the head: the chance that the others are heavy."""
    return law.probability(lambda row: (law.length * rho - 1) * x <= sum(row[1:]))


def maximum_alone(law, length, rho):
    """Takes a large maximum for a sparse row, whatever the others are."""
    return 0.99


def own_weight_counted_twice(law, length, rho):
    """Compares the others with L rho y, not (L rho - 1) y."""
    return bracket(law, length, rho + 1 / length, points=32, cells=1024)


def limit_needs_a_mean(law, rho):
    """Believes that P_sparse of unbounded logits tends to 1 only if X has a mean."""
    return limit(law, rho) if law.moments[0] < float("inf") else 0.0


def rate_without_the_mean(law, rho):
    """Takes e^0 for the mean of X: ln(1/rho) / tau for tau / 2 + ln(1/rho) / tau."""
    return float(norm.sf(log(1 / rho) / law.distribution.std()))


def rest_as_heavy_as_the_first(length, rho, largest):
    """Fills the 90 % with weights as large as the largest."""
    return ceil(Fraction(9, 10) / largest)


def constant_index(row):
    """Never moves, so it never jumps either."""
    return 0.5


def at_the_bar(largest, lengths, rho):
    """Counts a weight equal to the bar as over it."""
    return (largest.double() * lengths * rho >= 1).double().mean(dim=0)


def bar_without_length(largest, lengths, rho):
    """Compares the weight with 1/rho of the longest row's even share."""
    return (largest.double() * lengths.max() * rho > 1).double().mean(dim=0)


def spread_over_unread_tokens(maps, lengths):
    """Takes the variance over all columns, future and underflown ones too, at a tiny weight."""
    rows = maps[..., lengths - 1, :].double()
    return rows.clamp_min(1e-30).log().var(dim=-1, correction=0)


RIGHT = enclosure._held, enclosure.cell_chances  # a test puts the wrong ones there


def rounded_the_other_way(tau, length, rho, t, cells):
    """Rounds z down for the lower end and up for the upper one."""
    return RIGHT[0](tau, length, rho, t, cells)[::-1]


def rounded_down_at_both_ends(tau, length, rho, t, cells):
    """Rounds z down at the lower end as well."""
    return (RIGHT[0](tau, length, rho, t, cells)[1],) * 2


def rounded_up_at_both_ends(tau, length, rho, t, cells):
    """Rounds z up at the upper end as well."""
    return (RIGHT[0](tau, length, rho, t, cells)[0],) * 2


def largest_counted_among_the_others(tau, length, rho, t, cells):
    """Compares the others with L rho y, not (L rho - 1) y."""
    return RIGHT[0](tau, length, rho + Fraction(1, length), t, cells)


def chances_not_given_the_maximum(tau, t, cells):
    """Forgets to divide by P(xi <= t)."""
    reached = enclosure.normal_below(enclosure.ball(t) / enclosure.ball(tau))
    return [chance * reached for chance in RIGHT[1](tau, t, cells)]


HELD = (rounded_the_other_way, rounded_down_at_both_ends, rounded_up_at_both_ends,
        largest_counted_among_the_others)

BROKEN = {"T1": two_term_without_rho, "T1.eq19": one_law_forgotten, "T1.eq20": head_alone,
          "T1.bounded": tail_alone, "T1.product": maximum_alone,
          "T1.value": own_weight_counted_twice, "T1.limit": limit_needs_a_mean,
          "T1.rate": rate_without_the_mean, "T1.few": rest_as_heavy_as_the_first,
          "T1.artefact": constant_index}
