"""The papers' printed numbers: each relation holds as the table says, and a misprint is seen."""

from collections import Counter
from decimal import Decimal

import pytest

from cca_lab.theory import numbers
from cca_lab.theory.numbers import RELATIONS, holds, right

FOLLOWS = ("mean", "sum", "product", "quotient", "reduction")


def test_every_row_is_as_the_table_says():
    rows = list(numbers.rows())
    assert [row for row in rows if not row.agrees] == []
    assert Counter(row.relation for row in rows).keys() == RELATIONS.keys()


def test_a_misprint_of_two_units_is_seen_where_a_number_follows_from_others():
    """Catches a formula that is too loose, or that reads the wrong column."""
    for row in numbers.rows():
        if row.relation in FOLLOWS and not row.instead:
            *others, printed = row.numbers.split()
            unit = Decimal(1).scaleb(int(Decimal(printed).as_tuple().exponent))
            for wrong in (Decimal(printed) - 2 * unit, Decimal(printed) + 2 * unit):
                assert not holds(row.relation, " ".join([*others, f"{wrong:f}"])), row


def test_two_sides_that_are_exchanged_are_seen():
    """Catches "above" for "below", and a lead that is counted the other way round."""
    for row in numbers.rows():
        if row.relation in ("above", "below") and not row.instead:
            ours, theirs = row.numbers.split(" / ")
            assert ours == theirs or not holds(row.relation, f"{theirs} / {ours}"), row


@pytest.mark.parametrize(("relation", "good", "bad"), [
    ("lead grows", "1 3 6 / 1 2 4", "1 3 4 / 1 2 3"), ("rises", "1 2 3", "1 2 2"),
    ("falls", "3 2 1", "3 3 1"), ("same", "2.86 2.86", "2.86 2.88"), ("sum", "1 2 3", "1 2.0 3.1"),
    ("above", "3 / 1 2 3", "3 / 1 2 4"), ("below", "1 2 / 1 3", "2 2 / 1 3")])
def test_each_relation_at_its_edge(relation, good, bad):
    assert holds(relation, good) and not holds(relation, bad)


@pytest.mark.parametrize(("exact", "printed", "wanted"), [
    ("35.53", "35", True), ("35.53", "36", True), ("35.53", "34", False), ("35.5", "36", True),
    ("2.4199", "2.42", True), ("2.43", "2.42", False), ("0.005", "0.01", True)])
def test_a_printed_number_is_rounded_or_cut(exact, printed, wanted):
    assert right(Decimal(exact), printed) is wanted
