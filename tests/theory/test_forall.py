"""Index statements for all integers: each is proved, and fails for every slip in what it runs."""

from functools import cache
from itertools import combinations, product
from unittest.mock import patch

import pytest
import torch

from cca_lab.mechanisms import indices
from cca_lab.theory.forall import papers, report, terms
from cca_lab.theory.forall.core import Obligation, Theorem, _variables, demand, prove
from cca_lab.theory.forall.terms import (
    Symbol,
    Truth,
    answered,
    assume,
    divided_by,
    every,
    function,
    integers,
    lemma,
    rising,
    some,
    where,
)
from tests.mutants.theory_cca import window_mod_row
from tests.mutants.theory_forall import NARROWER, SLIPS, WEAKER, weaker

z3 = pytest.importorskip("z3")
THEOREMS = {theorem.name: theorem for theorem in report.THEOREMS}
SIZES = {"g", "s", "S", "m", "M", "B", "sinks", "recent", "chunk", "floor", "share"}


@cache
def obligations(name: str) -> list[Obligation]:
    return list(THEOREMS[name].obligations())


@pytest.mark.parametrize("name", THEOREMS)
def test_a_theorem_is_proved(name):
    outcome = prove(obligations(name))
    assert outcome.holds and outcome.numbers["proved"] >= 1, outcome.evidence


@pytest.mark.parametrize(("name", "right", "wrong"), WEAKER)
def test_a_bound_that_says_less_than_holds_is_refused(name, right, wrong):
    outcome = prove(weaker(THEOREMS[name], right, wrong).obligations())
    assert not outcome.holds and "is never attained" in outcome.evidence


def impossible(theorem: Theorem) -> list[str]:
    """Return the orders of two sizes that no way through a theorem allows: it says nothing then."""
    ways = [[fact.term for fact in each.hypotheses] for each in theorem.obligations()]
    present = {str(x) for facts in ways for fact in facts for x in _variables(fact)} & SIZES
    orders = [order for a, b in combinations(map(z3.Int, sorted(present)), 2)
              for order in (a < b, a == b, a > b)]
    return [str(order) for order in orders or [z3.BoolVal(True)]
            if not any(answered([*facts, order], 10**6) == z3.sat for facts in ways)]


@pytest.mark.parametrize("name", THEOREMS)
def test_a_theorem_assumes_no_order_of_its_sizes(name):
    """A contradiction would prove anything, and a hypothesis more would be no theorem of ours."""
    assert impossible(THEOREMS[name]) == []


@pytest.mark.parametrize(("name", "right", "wrong"), NARROWER)
def test_a_hypothesis_more_is_noticed(name, right, wrong):
    narrower = weaker(THEOREMS[name], right, wrong)
    assert prove(narrower.obligations()).holds and impossible(narrower)


@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_in_the_code_breaks_its_proof(name):
    slip = SLIPS[name]
    assert slip.function in THEOREMS[slip.theorem].runs
    owner, attribute = slip.place
    with patch.object(owner, attribute, slip.made()):
        assert any(" fails at " in prove([obligation]).evidence  # not given up
                   for obligation in THEOREMS[slip.theorem].obligations())


# ----------------------------------------- the functions are the same for numbers, tensors, symbols

ROW = {"core_count": ("i", "g", "s"), "cca_columns": ("i", "j", "g", "s"),
       "behind_sinks": ("i", "j"), "cca_sink_columns": ("i", "j", "k", "g", "s", 2),
       "sink_columns": ("i", "j", "s", "g"), "prompt_columns": ("i", "j", 1, "k", "j", "g")}


def flat(value) -> list:
    return [x for item in value for x in flat(item)] if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("name", ROW)
def test_numbers_tensors_and_symbols_agree(name):
    called = getattr(indices, name)
    for g, s, j, k in [(1, 1, 0, 5), (3, 2, 1, 7), (2, 5, 4, 11)]:
        values = {"g": g, "s": s, "j": j, "k": k}
        others = [values.get(argument, argument) for argument in ROW[name][1:]]
        wanted = [flat(called(i, *others)) for i in range(9)]
        by_tensor = [torch.as_tensor(x).expand(9).tolist()
                     for x in flat(called(torch.arange(9), *others))]
        by_number = [[int(x) for x in row] for row in wanted]
        assert [list(row) for row in zip(*by_tensor, strict=True)] == by_number
        (i,) = integers("i")

        def statement(i=i, others=others, row=4, wanted=wanted):
            assume(i == row)
            return every(*(where(True, a, 0) == int(b)
                           for a, b in zip(flat(called(i, *others)), wanted[row], strict=True)))

        assert prove(demand(name, [], statement)).holds


# ------------------------------------------------------------------------- the solver's side


def test_division_is_pythons_for_positive_divisors():
    x, d = integers("x d")
    for value, divisor in product(range(-5, 6), range(1, 4)):
        def statement(value=value, divisor=divisor):
            return every(x // d == value // divisor, x % d == value % divisor,
                         x // divisor == value // divisor, divmod(x, divisor)[1] == value % divisor,
                         divmod(value, d)[1] == value % divisor)

        assert prove(demand("division", [x == value, d == divisor], statement)).holds


def test_a_divisor_has_to_be_positive():
    x, d = integers("x d")
    with pytest.raises(ZeroDivisionError, match="1 or more"):
        x // 0
    with pytest.raises(ZeroDivisionError, match="1 or more"):
        x // d
    refused = prove(demand("quotient", [], lambda: x // d * d <= x))
    assert not refused.holds and "refused" in refused.evidence
    assert prove(demand("quotient", [d >= 1], lambda: x // d * d <= x)).holds


def test_a_number_has_one_division():
    """What `divided_by` uses, from the definition of quotient and remainder."""
    x, d, q, r = integers("x d q r")
    known = [d >= 1, x == d * q + r, 0 <= r, r < d]
    wrong = Obligation("another", known, every(x == d * (q + 1) + r - d))
    assert prove([wrong]).holds
    assert prove(demand("one division", known, lambda: lemma(x // d == q) or x % d == r)).holds

    def used():
        assume(*known)
        divided_by(x, d, q, r)
        return x // d == q

    assert prove(demand("used", [], used)).holds
    other = prove(demand("other", [d >= 1], lambda: divided_by(x, d, q, r) or x // d == q))
    assert " fails at " in other.evidence  # without x = d q + r nothing is used


def test_the_counterexample_is_the_smallest():
    from cca_lab.theory.reachability.indices import printed_cover, reads

    finding = papers.read_once(printed_cover)
    values = {name: finding.numbers[name] for name in "igst"}
    wrong = [(i + g + s + t, g, i, s, t) for i, g, s, t in product(range(1, 6), repeat=4)
             if t <= i and reads(printed_cover, i, g, s, t) != 1]
    assert not finding.holds
    assert (sum(values.values()), *(values[name] for name in "gist")) == min(wrong)
    assert finding == papers.read_once(printed_cover)  # the same words again
    assert papers.reached(printed_cover).holds and not papers.reached(window_mod_row).holds


def test_a_statement_that_no_small_number_refutes_is_undecided():
    x, y = integers("x y")
    fermat = Obligation("Fermat", [x >= 1, y >= 1], x * x * x + y * y * y != 4104 * 4104 * 4104)
    finding = prove([fermat], steps=10**5)
    assert not finding.holds and finding.evidence.startswith("undecided: Fermat")


def test_lemmas_are_proved_before_they_are_used():
    x, y = integers("x y")
    assert prove(demand("sum", [x >= 1, y >= 1], lambda: lemma(x * y >= x) or x * y + 1 > x)).holds
    wrong = prove(demand("sum", [x >= 1], lambda: lemma(x >= 3) or x >= 2))
    assert wrong.evidence.startswith("'sum (a lemma of it)' fails at x = 1;")
    with pytest.raises(ValueError, match="got none"):
        prove([])
    with pytest.raises(RuntimeError, match="need `demand`"):
        lemma(x >= 3)


def test_an_unknown_function_rises_between_its_arguments():
    x, y, z = integers("x y z")
    f = function("f")
    assert prove([Obligation("rises", [rising(f, [x, y]), x <= y], f(x) <= f(y))]).holds
    assert prove([Obligation("by one", [rising(f, [x, y], 1), y == x + 2], f(y) <= f(x) + 2)]).holds
    assert not prove([Obligation("others", [rising(f, [x, y]), x <= z], f(x) <= f(z))]).holds


def test_branches_are_followed_both_ways():
    (x,) = integers("x")
    assert prove(demand("absolute", [], lambda: max(x, -x) >= 0)).numbers["obligations"] == 2
    assert prove(demand("known", [x >= 1], lambda: max(x, 0) == x)).numbers["obligations"] == 1

    def endless():
        n = x
        while n > 0:
            n = n - 1
        return every()

    with patch.object(terms, "MOST", 16), pytest.raises(RuntimeError, match="prove one pass"):
        list(demand("loop", [x >= 0], endless))
    with pytest.raises(TypeError, match="outside of"):
        bool(x > 0)


def test_symbols_are_numbers_of_one_kind():
    (x,) = integers("x")
    assert prove([Obligation("truths", [], every((x > 0) + (x <= 0) == 1, where(x > 0, x, -x) >= 0,
                                                 (x > 0) * x >= 0, some(x > 0, x <= 0)))]).holds
    with pytest.raises(TypeError, match="symbols stand for integers"):
        where(x > 0, 0.5, 1)
    with pytest.raises(TypeError):
        range(x)
    assert isinstance(x, Symbol) and isinstance(x > 0, Truth)


def test_the_report_has_every_theorem_s_finding():
    with patch.object(report, "THEOREMS", (THEOREMS["CCA's cover"],)):
        (row,) = report.proofs()
    assert row.name == "CCA's cover" and row.finding.holds
