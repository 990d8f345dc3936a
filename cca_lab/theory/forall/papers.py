"""The papers' index arithmetic, proved for all integers from the functions that claims judge.

Each takes the function that a claim's check judges, printed or repaired, and proves what that asks
of it in finitely many cases. Rows and tokens count from 1 in CCA, from 0 in DGA.
"""

from collections.abc import Callable
from typing import Any

from cca_lab.theory.claim import Outcome
from cca_lab.theory.cores import Cover, reads
from cca_lab.theory.forall.core import demand, prove
from cca_lab.theory.forall.terms import Truth, every, integers, number


def read_once(cover: Cover) -> Outcome:
    """Prove that row i reads each token of its past once, in a core or raw, and no other token."""
    return _each_token(cover, lambda times, past: times == number(past))


def reached(cover: Cover) -> Outcome:
    """Prove that row i reads each token of its past, in a core or raw, and no other token."""
    return _each_token(cover, lambda times, past: every((times >= 1).iff(past), times >= 0))


def _each_token(cover: Cover, wanted: Callable[[Any, Truth], Truth]) -> Outcome:
    i, g, s, t = integers("i g s t")
    known = [i >= 1, g >= 1, s >= 1, t >= 1]
    return prove(demand("each token", known, lambda: wanted(reads(cover, i, g, s, t), t <= i)))


def members_read_once(reads: Callable[..., Any], mask) -> Outcome:
    """Prove that a row reads a group's member once, if it is not after the row (DGA, Algorithm 2).

    `reads` counts how often, of row, member, (first member, last member) and mask.
    """
    i, t, first, last = integers("i t first last")
    known = [first >= 0, first <= t, t <= last, i >= 0]
    return prove(demand("each member", known,
                        lambda: number(reads(i, t, (first, last), mask)) == number(t <= i)))
