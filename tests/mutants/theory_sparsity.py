"""Wrong statements about sparsity, each a slip that is easy to make; the claim of that id must refute it."""

from fractions import Fraction
from math import ceil, log

from scipy.stats import norm

from cca_lab.theory.sparsity.bounds import bracket
from cca_lab.theory.sparsity.laws import points


def two_term_without_rho(law, rho):
    """Takes S > L x for S > L rho x, a rarer event."""
    return max(law.probability(lambda row, x=x: max(row) > x)
               - law.probability(lambda row, x=x: sum(row) > law.length * x) for x in points(law, rho))


def expected_number(law, rho):
    """Takes the expected number of weights over the bar for the chance of one: an upper bound."""
    return sum(law.probability(lambda row, j=j: law.length * rho * row[j] > sum(row)) for j in range(law.length))


def head_alone(law, rho, x):
    """Forgets the half of the union in which the sum is large."""
    return law.probability(lambda row: row[0] <= x)


def difference_without_its_one(law, rho, x):
    """Adds P(S <= L rho x) instead of taking off P(S > L rho x)."""
    return law.probability(lambda row: max(row) > x) + law.probability(lambda row: sum(row) <= law.length * rho * x)


def maximum_alone(law, length, rho):
    """Takes a large maximum for a sparse row, whatever the others are."""
    return 0.99


def own_weight_counted_twice(law, length, rho):
    """Compares the others with L rho y, not (L rho - 1) y."""
    return bracket(law, length, rho + 1 / length, points=32, cells=1024)


def limit_needs_a_mean(law, rho):
    """Believes that P_sparse -> 1 only if X has a mean."""
    return float(law.moments[0] < float("inf"))


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
    """Takes the variance over all columns, the future's and the underflown ones included, at a tiny weight."""
    rows = maps[..., lengths - 1, :].double()
    return rows.clamp_min(1e-30).log().var(dim=-1, correction=0)


BROKEN = {
    "T1": two_term_without_rho,
    "T1.eq19": expected_number,
    "T1.eq20": head_alone,
    "T1.balance": difference_without_its_one,
    "T1.product": maximum_alone,
    "T1.value": own_weight_counted_twice,
    "T1.limit": limit_needs_a_mean,
    "T1.rate": rate_without_the_mean,
    "T1.few": rest_as_heavy_as_the_first,
    "T1.artefact": constant_index,
    "T1.range": [(50, Fraction(1, 50)), (51, Fraction(1, 50))],
}
