"""The page of what is proved for all integers, and the command that proves it."""

import re
import signal
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from threading import Timer

import pytest

from cca_lab.mechanisms import indices
from cca_lab.theory import cores, prove
from cca_lab.theory.claim import Outcome
from cca_lab.theory.forall import report
from cca_lab.theory.forall.core import Obligation
from cca_lab.theory.forall.core import prove as prove_obligations
from cca_lab.theory.forall.terms import integers
from tests.command import run_command
from tests.theory import tex

CASES = [*product(range(1, 6), range(1, 6), range(12))]  # g, s, and i or L


def seen(i: int, g: int, s: int) -> int:
    return indices.core_count(i + 1, g, s)


def cores_of_a_row(formula: str) -> Iterator[bool]:
    for g, s, i in CASES:
        yield tex.value(formula, g=Fraction(g), s=s, i=i) == seen(i, g, s)


def window(formula: str) -> Iterator[bool]:
    for g, s, i in CASES:
        names = dict(g=g, s=s, i=i, n=lambda row, g=g, s=s: seen(row, g, s), functions=("n",))
        _, (start, end) = indices.cca_columns(i, 0, g, s)
        yield tex.holds(formula, **names) and tex.value(formula, side=1, **names) == end - start
        yield tex.value(formula, **names) == cores.most_raw(g, s)


def entries(formula: str) -> Iterator[bool]:
    for g, s, length in CASES:
        names = dict(g=g, s=s, L=length, n=lambda row, g=g, s=s: seen(row, g, s), functions=("n",))
        kept = indices.cca_entries(length, g, s) - length // g
        yield tex.value(formula, side=0, **names) == kept
        yield tex.value(formula, **names) == cores.most_kept(g, s)


def pairs(formula: str) -> Iterator[bool]:
    for g, s, N in CASES:
        yield tex.value(formula, g=Fraction(g), s=s, N=N, r=N % g) == indices.cca_pairs(s + N, g, s)


def stretch(formula: str) -> Iterator[bool]:
    for m in range(1, 60):
        yield tex.value(formula, m=Fraction(m)) == indices.decode_span(m)


def slots(formula: str) -> Iterator[bool]:
    for B, M, n in CASES:
        yield tex.value(formula, B=B, M=M, n=n) == indices.held_columns(n, B, M)


def twice(formula: str) -> Iterator[bool]:
    for w, m, more in CASES:
        i = w - 1 + more  # the window is full
        found = indices.read_twice(i, w, m), indices.unread(i, w, m)
        yield found == tuple(tex.value(formula, w=a, r=b) for a, b in ((w, (i + 1) % m),
                                                                      ((i + 1) % m, w)))


FORMULAS = {  # by label: what it is compared with, a piece of it, and a wrong one in its place
    "cores": (cores_of_a_row, "+ 1", "+ 2"), "window": (window, "s + g - 1", "s + g"),
    "entries": (entries, "s + g - 2", "s + g"), "pairs": (pairs, "(r + 1)", "r"),
    "stretch": (stretch, r"\lceil 11 m / 10 \rceil", "m + 1"), "slots": (slots, "n B", "n"),
    "twice": (twice, "w - r", "w - r + 1")}


@pytest.mark.parametrize("label", FORMULAS)
def test_a_formula_is_what_is_proved_and_a_changed_one_is_not(label):
    computed, right, wrong = FORMULAS[label]
    formula = tex.formula("proved", f"proved-{label}")
    assert right in formula and all(computed(formula))
    assert not all(computed(formula.replace(right, wrong)))


def test_the_page_lists_every_theorem_once_and_no_formula_that_is_not_tested():
    page = tex.text("proved")
    assert sorted(re.findall(r"\* \*\*(.+?)\*\*: ", page)) == sorted(
        theorem.name for theorem in report.THEOREMS)
    assert re.findall(r"\$\$ \(proved-([\w-]+)\)", page) == [*FORMULAS]


@pytest.mark.parametrize(("holds", "words"), [(True, "1 of 1 proved"), (False, "x = 0")])
def test_the_command_fails_where_a_proof_does(monkeypatch, holds, words):
    row = report.Row("x", Outcome(holds, "x = 0", {"obligations": 1}), 0.5)
    monkeypatch.setattr(prove, "proofs", lambda: iter([row]))
    done = run_command(["prove"])
    assert done.exit_code == (not holds) and words in done.output


def test_ctrl_c_ends_a_query_of_the_solver():
    """Catches a solver that takes Ctrl-C for itself, so that the next proof begins."""
    pytest.importorskip("z3")
    x, y, z = integers("x y z")
    endless = Obligation("Fermat", [x >= 1, y >= 1, z >= 1], x * x * x + y * y * y != z * z * z)
    timer = Timer(0.5, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        prove_obligations([endless])
    assert prove_obligations([Obligation("more", [x >= 1], x + 1 >= 2)]).holds
