"""The page of what is proved for all integers: current, and not written where something failed."""

from typer.testing import CliRunner

from cca_lab import files
from cca_lab.cli import app
from cca_lab.theory import prove
from cca_lab.theory.claim import Outcome
from cca_lab.theory.forall import report
from cca_lab.theory.pages import plain

PROVED = report.Row("it holds", "x < x + 1", ("cca_lab.a.b",), "",
                    Outcome(True, "none", {"obligations": 1}), 0.5)


def test_the_page_lists_every_statement_as_it_is():
    page = (files.repository() / "docs" / "claims" / "proved.md").read_text(encoding="utf-8")
    listed = [(theorem.name, theorem.says) for theorem in report.THEOREMS]
    listed += [(name, says) for name, says, *_ in report.printed()]
    assert [name for name, says in listed if f"| {plain(name)} | {plain(says)}" not in page] == []
    assert page.count("\n| ") == len(listed) + 2, "run `cca-lab prove`"


def run(monkeypatch, tmp_path, *rows: report.Row):
    (tmp_path / "docs" / "claims").mkdir(parents=True)
    monkeypatch.setattr(prove, "proofs", lambda: iter(rows))
    monkeypatch.setattr(prove, "repository", lambda: tmp_path)
    return CliRunner().invoke(app, ["prove"])


def test_the_command_writes_what_it_proved(monkeypatch, tmp_path):
    done = run(monkeypatch, tmp_path, PROVED)
    assert done.exit_code == 0 and "1 of 1 as wanted" in done.output
    page = (tmp_path / "docs" / "claims" / "proved.md").read_text()
    assert "| it holds | x \\< x + 1 | `a.b` | 1 | 0.50 | - |" in page


def test_the_command_writes_nothing_where_a_proof_fails(monkeypatch, tmp_path):
    wrong = report.Row("it fails", "x < x", (), "", Outcome(False, "x = 0", {"obligations": 1}),
                       0.5)
    done = run(monkeypatch, tmp_path, PROVED, wrong)
    assert done.exit_code == 1 and "FAILS" in done.output and "x = 0" in done.output
    assert not list((tmp_path / "docs" / "claims").iterdir())
