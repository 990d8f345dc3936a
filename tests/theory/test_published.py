"""Published numbers: the rule of rounding, checks on small tables, the numbers in proofs."""

from decimal import ROUND_DOWN, ROUND_HALF_DOWN, ROUND_HALF_UP, Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cca_lab.theory import ledger
from cca_lab.theory.published import printed, sentences
from cca_lab.theory.published.printed import Printed, agree, check_printed, joined, right
from cca_lab.theory.published.sentences import Pair, check_ahead, check_curves
from tests.mutants.theory_published import MISPRINTS

# ---------------------------------------------------------------- the rule

@settings(deadline=None, derandomize=True)
@given(st.decimals(0, 1000, places=5), st.integers(0, 4))
def test_rounded_and_cut_numbers_are_right(exact, places):
    for mode in (ROUND_HALF_UP, ROUND_HALF_DOWN, ROUND_DOWN):
        assert right(exact, str(exact.quantize(Decimal(1).scaleb(-places), mode)))


@settings(deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(0, 3), st.sampled_from([-1, 2, 3, -7]))
def test_a_number_that_is_neither_is_wrong(digits, places, off):
    """One below the cut number, and two above it, are nobody's rounding."""
    if digits + off >= 0:
        assert not right(Fraction(digits, 10**places), str(Decimal(digits + off).scaleb(-places)))


@pytest.mark.parametrize(("exact", "printed", "fits"), [
    ("104.86", "104", True), ("104.86", "105", True), ("104.86", "103", False),
    ("35.53", "35", True), ("35.53", "36", True), ("2.5", "3", True), ("2.4", "3", False),
    ("5.05", "5.7", False), ("7.857", "7.8", True), ("8", "7", False)])
def test_one_rule_for_all(exact, printed, fits):
    assert right(exact, printed) is fits


@pytest.mark.parametrize(("printed", "fits"), [
    (("28.80", "28.79"), True), (("2.85", "2.86", "2.86"), True), (("3.5706", "3.5714"), False),
    (("462.8", "461.4"), False), (("3.53", "3.5451"), False), (("3.53", "3.5414"), False),
    (("36", "36.49"), True), (("7", "8", "9"), False)])
def test_numbers_agree_if_one_number_is_printed_so(printed, fits):
    assert agree(printed) is agree(printed[::-1]) is fits


def test_counts_and_names_are_not_rounded():
    apart = {"GPUs": {"Section 1": "1", "Table 1": "2"}}
    assert printed.check_same(apart).holds and not printed.check_equal(apart).holds


def test_places_are_joined():
    both = joined({"a": {"Table 1": "3"}}, {"a": {"Table 2": "4"}, "b": {"Table 2": "5"}})
    assert both == {"a": {"Table 1": "3", "Table 2": "4"}, "b": {"Table 2": "5"}}


# ---------------------------------------------------------------- checks on small tables

def test_wrong_numbers_are_counted_and_named():
    rows = (Printed("a", "quotient", ("9", "3"), "3.0"),
            Printed("b", "quotient", ("9", "4"), "3.0"), Printed("c", "mean", ("1", "2"), "1.7"),
            Printed("d", "sum", ("1", "2"), "3.0"))
    outcome = check_printed(rows)
    assert not outcome.holds and outcome.numbers == {"numbers": 4, "wrong": 2}
    assert "2 of 4 printed" in outcome.evidence and "b: 9/4 = 2.25; printed 3.0" in outcome.evidence
    assert "c: " in outcome.evidence and check_printed(rows[::3]).holds
    rounded = rows[3]._replace(printed="3.01")  # but a sum is exact
    assert not check_printed((*rows[::3], rounded)).holds


def test_the_numbers_of_each_paper_are_there():
    assert [len(rows) for rows in (printed.CCA_RIGHT, printed.DGA, printed.LOCOCO)] == [57, 16, 4]


@pytest.mark.parametrize(("name", "rows"), MISPRINTS, ids=lambda x: x if isinstance(x, str) else "")
def test_one_wrong_number_refutes_its_table(name, rows):
    check = {claim.id: claim.check for claim in ledger.collect()}[name]
    assert check(rows).numbers["wrong"] == 1


def test_lower_is_better_where_it_is_said():
    pair = Pair("Table 1, seconds", "2", "other", "3", lower=True)
    assert check_ahead((pair,)).holds and not check_ahead((pair._replace(lower=False),)).holds
    assert check_ahead((pair._replace(theirs="2"),)).holds  # as good as


def test_a_lead_that_stays_does_not_grow():
    pairs = tuple(Pair(f"Table 1, {length}", ours, "other", "1")
                  for length, ours in (("4K", "1"), ("8K", "2")))
    assert sentences.check_growth(pairs).holds
    assert not sentences.check_growth((*pairs, pairs[-1])).holds


@pytest.mark.parametrize(("curve", "way", "fits"), [
    ("1 2 3", "rises", True), ("1 2 2", "rises", False), ("3 2 2", "falls", False),
    ("10 9", "falls", True), ("9 10", "falls", False)])
def test_curves_rise_or_fall_strictly(curve, way, fits):
    assert check_curves({"x": way}, {"x": tuple(curve.split())}).holds is fits


def test_a_table_has_only_its_rows():
    pairs = sentences.columns("CCA", "Table 4", ("8K", "16K", "32K", "64K"))
    assert len(pairs) == 8 and {pair.other for pair in pairs} == {"vanilla", "MInference"}


# ---------------------------------------------------------------- numbers that the proofs state

def test_cca_loses_and_gains_by_what_is_said():
    means = [pair.gain for pair in sentences.MEANS if pair.other == "vanilla"]
    assert len(means) == 6 and max(means) == Decimal("-0.12") and min(means) == Decimal("-1.6")
    assert " ".join(str(pair.gain) for pair in sentences.EM_LEADS) == "-0.1 -4.6 -2.2 -4.8 0.7 1.7"
    assert sorted(pair.gain for pair in sentences.SUPERIOR)[:2] == [Decimal("0.07"), Decimal("0.1")]
    at_32k = {pair.other: pair.theirs for pair in sentences.EM
              if pair.place == "Table 3, 32K" and pair.gain < 0}
    assert at_32k == {"vanilla": "36.2", "LM-Infinite": "32.2", "MInference": "36.0"}


def test_cca_minference_is_either_of_two():
    ours = Fraction("15.89")
    assert right(Fraction("44.50") / ours, "2.80") and right(Fraction("20.18") / ours, "1.27")
    assert right(Fraction("32.43") / Fraction("5.7"), "5.69")
    assert len(sentences.LOWEST) == 16 and len(sentences.THREE_METRICS) == 6


def test_cca_latencies_spread_by_what_is_said():
    spread = {name: Decimal(max(curve, key=Decimal)) / Decimal(min(curve, key=Decimal)) - 1
              for name, curve in sentences.CURVES.items() if name in sentences.CCA_TRENDS}
    assert right(100 * spread["latency with g"], "20")
    assert right(100 * spread["latency with s"], "3.4")


def test_dga_speeds_and_standard_errors_are_as_stated():
    factors = ("1.40", "1.57", "2.42")
    times = zip(sentences.LATENCY["vanilla"], sentences.LATENCY["DGA-LLM"], factors, strict=True)
    assert all(right(Fraction(before) / Fraction(after), factor) for before, after, factor in times)
    share, step = Fraction("0.67"), (Fraction("67.00") - Fraction("66.91")) / 100
    assert right(2 * share * (1 - share) / (step / 2)**2 / 10**6, "2.2")
    curves = sentences.CURVES
    assert curves["accuracy with m"][2] == curves["accuracy with gamma"][0] == "67.00"
    assert [sentences.rate(length) < sentences.floored(length)
            for length in (1024, 2048, 2**14)] == [True, True, False]


def test_lococo_is_behind_full_sequences_by_what_is_said():
    behind = [Fraction(ours) / Fraction(full) - 1 for table in sentences.PERPLEXITY.values()
              for ours, full in zip(table["LoCoCo"].split(), table["full"].split(), strict=True)]
    assert min(behind) > 0 and right(100 * max(behind), "2.3") and len(sentences.BEST) == 65
    assert right(Fraction(3482, 128), "27.2")
