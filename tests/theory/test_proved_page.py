"""The page of what is proved for all integers: current, and not written where something failed."""

import signal
from threading import Timer

import pytest

from cca_lab import files
from cca_lab.theory import prove
from cca_lab.theory.claim import Outcome
from cca_lab.theory.forall import report
from cca_lab.theory.forall.core import Obligation
from cca_lab.theory.forall.core import prove as prove_obligations
from cca_lab.theory.forall.terms import integers
from cca_lab.theory.pages import plain
from tests.command import run_command

PROVED = report.Row("it holds", "x < x + 1", ("cca_lab.a.b",), "",
                    Outcome(True, "none", {"obligations": 1}), 0.5)


def test_the_page_lists_every_statement_as_it_is():
    page = (files.repository() / "docs" / "claims" / "proved.md").read_text(encoding="utf-8")
    listed = [(theorem.name, theorem.says) for theorem in report.THEOREMS]
    assert [name for name, says in listed if f"| {plain(name)} | {plain(says)}" not in page] == []
    assert page.count("\n| ") == len(listed) + 2, "run `cca-lab prove`"


def run(monkeypatch, tmp_path, *rows: report.Row, words=("prove", "--write")):
    (tmp_path / "docs" / "claims").mkdir(parents=True)
    monkeypatch.setattr(prove, "proofs", lambda: iter(rows))
    monkeypatch.setattr(prove, "repository", lambda: tmp_path)
    return run_command(words), list((tmp_path / "docs" / "claims").iterdir())


def test_the_command_writes_what_it_proved_if_asked(monkeypatch, tmp_path):
    done, written = run(monkeypatch, tmp_path, PROVED)
    assert done.exit_code == 0 and "1 of 1 proved" in done.output
    assert "| it holds | x \\< x + 1 | `a.b` | 1 | 0.50 | - |" in written[0].read_text()
    done, written = run(monkeypatch, tmp_path / "other", PROVED, words=["prove"])
    assert done.exit_code == 0 and not written


def test_the_command_writes_nothing_where_a_proof_fails(monkeypatch, tmp_path):
    wrong = report.Row("it fails", "x < x", (), "", Outcome(False, "x = 0", {"obligations": 1}),
                       0.5)
    done, written = run(monkeypatch, tmp_path, PROVED, wrong)
    assert done.exit_code == 1 and "FAILS" in done.output and "x = 0" in done.output
    assert not written


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
