"""The page of what is proved for all integers, and the command that proves it."""

import re
import signal
from threading import Timer

import pytest

from cca_lab.theory import prove
from cca_lab.theory.claim import Outcome
from cca_lab.theory.forall import report
from cca_lab.theory.forall.core import Obligation
from cca_lab.theory.forall.core import prove as prove_obligations
from cca_lab.theory.forall.terms import integers
from tests.command import run_command
from tests.theory import tex


def test_the_page_lists_every_theorem_once():
    assert sorted(re.findall(r"\* \*\*(.+?)\*\*: ", tex.text("proved"))) == sorted(
        theorem.name for theorem in report.THEOREMS)


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
