"""Every claim of the ledger: its check refutes what is wrong and accepts what is right; the files are current."""

import json
import os
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from cca_lab.cli import app
from cca_lab.experiments import verify
from cca_lab.theory import ledger
from cca_lab.theory.claim import Claim, Finding, Strength, Verdict

CLAIMS = {claim.id: claim for claim in ledger.collect()}
MUTANTS = sorted(path.stem for path in (Path(__file__).parents[1] / "mutants").glob("theory_*.py"))


def broken() -> dict:
    """Return the broken subject of every claim; a module of mutants that belongs to no claim has none."""
    found: dict = {}
    for name in MUTANTS:
        subjects = getattr(import_module(f"tests.mutants.{name}"), "BROKEN", {})
        assert not found.keys() & subjects.keys(), f"{name}: {found.keys() & subjects.keys()} stand elsewhere too"
        found |= subjects
    return found


BROKEN = broken()


@cache
def finding(name: str, subject: str) -> Finding:
    """Return what the check of a claim finds on its printed, corrected or broken subject; computed once."""
    claim = CLAIMS[name]
    return claim.check(BROKEN[name] if subject == "broken" else getattr(claim, subject))


def records() -> list[dict]:
    """Return the records of all claims."""
    return [ledger.record(claim, finding(name, "printed"),
                          None if claim.corrected is None else finding(name, "corrected"))
            for name, claim in CLAIMS.items()]


@pytest.mark.parametrize("name", CLAIMS)
def test_the_verdict_is_what_the_check_finds(name):
    found = finding(name, "printed")
    assert CLAIMS[name].agrees(found), found.evidence
    assert found.evidence and "\n" not in found.evidence
    if CLAIMS[name].strength is Strength.MONTE_CARLO:
        assert found.error is not None, "Monte Carlo without an error"


@pytest.mark.parametrize("name", [name for name, claim in CLAIMS.items() if claim.corrected is not None])
def test_the_corrected_statement_is_accepted(name):
    found = finding(name, "corrected")
    assert found.holds, found.evidence


@pytest.mark.parametrize("name", CLAIMS)
def test_a_broken_statement_is_refuted(name):
    assert name in BROKEN, f"tests/mutants/theory_*.py: BROKEN has no wrong subject for {name}"
    found = finding(name, "broken")
    assert not found.holds, found.evidence


def test_every_broken_statement_belongs_to_a_claim():
    assert not BROKEN.keys() - CLAIMS.keys()


def test_the_ledger_is_long_enough():
    assert len(CLAIMS) >= 30
    assert {claim.paper for claim in CLAIMS.values()} == {"CCA", "DGA", "LoCoCo"}


@pytest.mark.parametrize("name", [path.name for path in ledger.paths()])
def test_the_files_of_the_ledger_are_current(name):
    path, text = next((path, text) for path, text in ledger.contents(records()).items() if path.name == name)
    assert path.read_text(encoding="utf-8") == text, f"run `cca-lab verify` and commit {path.name}"


def test_a_changed_finding_would_be_seen_in_every_file():
    changed = records()
    name = next(row["id"] for row in changed if row["verdict"] == Verdict.FALSE.value)
    altered = [row | {"evidence": "nothing"} if row["id"] == name else row for row in changed]
    before, after = ledger.contents(changed), ledger.contents(altered)
    assert all(before[path] != after[path] for path in before)


# ---------------------------------------------------------------- the ledger itself

def claim(**changes) -> Claim:
    """Return a small claim: "the number is even"."""
    facts = dict(id="even", paper="CCA", place="here", statement="it is even", printed=2, corrected=None, repair="",
                 check=lambda number: Finding(number % 2 == 0, f"{number} mod 2 = {number % 2}", {"number": number}),
                 verdict=Verdict.HOLDS, strength=Strength.EXACT, proof="count")
    return Claim(**(facts | changes))


def test_an_id_is_taken_once():
    with pytest.raises(ValueError, match="'even'.*taken"):
        ledger.collect([SimpleNamespace(__name__="module", CLAIMS=(claim(), claim()))])


@pytest.mark.parametrize(("changes", "message"), [
    ({"id": "two words"}, "one word"), ({"paper": "NSA"}, "one of CCA, DGA, LoCoCo"), ({"proof": ""}, "proof is empty"),
    ({"verdict": Verdict.FALSE}, "repair must say"),
])
def test_an_incomplete_claim_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        claim(**changes)


def test_unknown_ids_are_named():
    with pytest.raises(ValueError, match="T0, wanted one of even"):
        ledger.select(["T0"], [claim()])


def test_run_tells_its_progress_and_finds_what_disagrees():
    told = []
    found = ledger.run([claim(), claim(id="odd", printed=3),
                        claim(id="unrepaired", printed=3, corrected=5, verdict=Verdict.FALSE, repair="it is not")],
                       lambda done, text: told.append((done, text)))
    assert told == [(0, "even"), (1, "odd"), (2, "unrepaired"), (3, "")]
    assert ledger.failures(found) == ["odd", "unrepaired"]  # the last one's correction is refuted


def test_numbers_are_rounded_and_json_accepts_them():
    values = [1 / 3, 123456.7, 0.0, float("inf"), 7, "x"]
    assert [ledger.rounded(value) for value in values] == [0.3333, 123500.0, 0.0, "inf", 7, "x"]


def test_writing_leaves_whole_files_only(tmp_path, monkeypatch):
    path = tmp_path / "docs" / "page.md"
    monkeypatch.setattr(ledger, "contents", lambda records: {path: "new"})
    assert ledger.write([]) == [path] and path.read_text() == "new"
    monkeypatch.setattr(ledger, "contents", lambda records: {path: "newer"})
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        ledger.write([])
    assert path.read_text() == "new"


def test_pages_show_every_character_as_it_is():
    found = ledger.run([claim(statement="a_1 | b* < c", verdict=Verdict.FALSE, printed=3, corrected=2, repair="x_2")])
    pages = ledger.contents(found)
    texts = {path.name: text for path, text in pages.items()}
    assert r"a\_1 \| b\* \< c" in texts["claims.md"] and r"a\_1 \| b\* \< c" in texts["errata.md"]
    assert json.loads(texts["claims.json"])[0]["statement"] == "a_1 | b* < c"


# ---------------------------------------------------------------- the command

def invoke(*arguments: str):
    return CliRunner().invoke(app, ["verify", *arguments])


def test_the_command_shows_a_row_and_explains():
    shown = invoke("CCA.5.7x")
    assert shown.exit_code == 0 and "32.43/6.42" in shown.output and "false as printed" in shown.output
    explained = invoke("CCA.5.7x", "--explain")
    assert explained.exit_code == 0 and "whether the time or the factor" in explained.output


def test_the_command_names_an_unknown_claim():
    refused = invoke("T0")
    assert refused.exit_code == 2 and "T0" in refused.output


def test_the_command_fails_and_writes_nothing_where_a_finding_disagrees(monkeypatch):
    monkeypatch.setattr(verify.ledger, "select", lambda ids: (claim(printed=3),))
    monkeypatch.setattr(verify.ledger, "write", lambda records: pytest.fail("written"))
    failed = invoke()
    assert failed.exit_code == 1 and "disagree" in failed.output


def test_the_command_writes_when_all_agree(monkeypatch):
    monkeypatch.setattr(verify.ledger, "select", lambda ids: (claim(),))
    written = []
    monkeypatch.setattr(verify.ledger, "write", lambda records: written.append(records) or [])
    assert invoke().exit_code == 0 and len(written) == 1
    assert invoke("even").exit_code == 0 and len(written) == 1  # a part of the ledger is not written
