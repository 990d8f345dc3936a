"""Theorem 1 in rationals: small examples by hand, repairs on every law, what rho-sparse misses."""

from fractions import Fraction
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cca_lab.theory.sparsity import laws, meaning
from cca_lab.theory.sparsity import theorem1 as sparsity
from cca_lab.theory.sparsity.laws import EVEN_PAIR, FiniteLaw, p_sparse, points
from cca_lab.theory.sparsity.meaning import sink


def test_equation_19_fails_for_unlike_logits_though_at_most_one_weight_can_pass():
    law, rho = laws.UNLIKE, Fraction(1)
    assert law.length * rho == 2
    assert sparsity.eq19(law, rho) == Fraction(3, 4) > p_sparse(law, rho) == Fraction(1, 2)
    assert sparsity.chances_over(law, rho) == [Fraction(1, 2), 0]
    assert sparsity.counting_bound(law, rho) == Fraction(1, 2)


def test_equation_20_breaks_at_its_third_line_and_at_its_last():
    lines = sparsity.eq20_lines(EVEN_PAIR, Fraction(1), Fraction(1, 2))
    assert lines == (1, 1, 0, 0, 0, 0, 0)
    assert sparsity.wrong_steps(lines) == ["2 -> 3: 1 = 0"]
    dependent = sparsity.eq20_lines(laws.OPPOSED, Fraction(1), Fraction(2))
    assert any(step.startswith("6 -> 7") for step in sparsity.wrong_steps(dependent))


@st.composite
def joint_laws(draw) -> tuple[FiniteLaw, Fraction]:
    length = draw(st.integers(2, 4))
    rows = draw(st.lists(st.tuples(*[st.integers(1, 30)] * length), min_size=1, max_size=4))
    chances = draw(st.lists(st.integers(1, 9), min_size=len(rows), max_size=len(rows)))
    outcomes = tuple((Fraction(chance, sum(chances)), tuple(map(Fraction, row)))
                     for chance, row in zip(chances, rows, strict=True))
    rho = Fraction(1, length) + Fraction(draw(st.integers(1, 8)), 8) * (1 - Fraction(1, length))
    return FiniteLaw("drawn", outcomes), rho


@given(joint_laws())
def test_every_repaired_bound_holds_for_any_joint_law(case):
    law, rho = case
    true = p_sparse(law, rho)
    assert sparsity.two_term_bound(law, rho) <= true
    assert sparsity.counting_bound(law, rho) <= true
    bar = law.probability(lambda row: law.length * rho * row[0] <= sum(row))
    assert all(sparsity.union_bound(law, rho, x) >= bar for x in points(law, rho))


@given(joint_laws(), st.integers(1, 2000))
def test_no_x_is_missed_between_the_points(case, thousandths):
    law, rho = case
    x = Fraction(thousandths, 1000) * max(points(law, rho))
    assert sparsity.two_term_at(law, rho, x) <= sparsity.two_term_bound(law, rho)
    assert sparsity.printed_at(law, rho, x) <= sparsity.printed_bound(law, rho)


@given(joint_laws())
def test_a_larger_rate_is_easier_to_pass(case):
    law, rho = case
    assert p_sparse(law, rho) <= p_sparse(law, (rho + 1) / 2)


@given(st.integers(2, 4), st.integers(1, 9), st.integers(2, 9))
def test_equation_19_holds_where_at_most_one_weight_can_pass(length, tenths, large):
    law = laws.iid("drawn", {1: 1 - Fraction(tenths, 10), large: Fraction(tenths, 10)}, length)
    rho = Fraction(2, length)
    assert sparsity.eq19(law, rho) <= p_sparse(law, rho) == sparsity.counting_bound(law, rho)


@given(joint_laws())
def test_equation_19_holds_for_dependent_logits_of_one_law(case):
    """Every order of each row, equally likely: then each weight has the same law."""
    law, _ = case
    orders = list(permutations(range(law.length)))
    shuffled = FiniteLaw("shuffled", tuple((chance / len(orders), tuple(row[j] for j in order))
                                           for chance, row in law.outcomes for order in orders))
    rho = Fraction(2, law.length)
    assert len(set(sparsity.chances_over(shuffled, rho))) == 1
    assert sparsity.eq19(shuffled, rho) <= p_sparse(shuffled, rho)


def test_what_is_no_law_is_refused():
    for outcomes in (((Fraction(1, 2), (1,)),), ((Fraction(1), (0, 1)),)):
        with pytest.raises(ValueError, match="wanted sum 1"):
            FiniteLaw("bad", outcomes)


@pytest.mark.parametrize("weight, length", [("13/100", 385), ("1/8", 401), ("1/6", 301)])
def test_a_constant_sink_jumps_at_one_length(weight, length):
    weight, rho = Fraction(weight), Fraction(1, 50)
    assert meaning.jump(weight, rho) == length
    sparse = [laws.rho_sparse(sink(n, weight), rho) for n in (length - 1, length)]
    assert sparse == [False, True]


