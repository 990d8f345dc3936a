"""Every claim's check refutes what is wrong and accepts what is right."""

from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from cca_lab.theory import ledger, pages, verify
from cca_lab.theory.claim import (
    Claim,
    Finding,
    Outcome,
    Subjects,
    contradictions,
    judge,
)
from tests.command import run_command

NAMES = list(ledger.WORDS)


@cache
def claims() -> dict[str, Claim]:
    return {claim.id: claim for claim in ledger.collect()}


MUTANTS = [import_module(f"tests.mutants.{path.stem}")
           for path in sorted((Path(__file__).parents[1] / "mutants").glob("theory_*.py"))]
BROKEN = [(name, subject) for module in MUTANTS
          for name, subject in getattr(module, "BROKEN", {}).items()]
ALSO_BROKEN = [case for module in MUTANTS for case in getattr(module, "ALSO_BROKEN", [])]


@cache
def findings(name: str) -> list[Finding]:
    return judge(claims()[name])


@pytest.mark.parametrize("name", NAMES)
def test_the_label_is_what_the_check_finds(name):
    assert list(contradictions(findings(name))) == []
    evidence = findings(name)[0].outcome.evidence
    assert evidence and "\n" not in evidence


@pytest.mark.parametrize(("name", "subject"), BROKEN + ALSO_BROKEN,
                         ids=lambda x: x if isinstance(x, str) else getattr(x, "__name__", ""))
def test_a_statement_that_is_wrong_or_says_less_than_holds_is_refused(name, subject):
    outcome = claims()[name].check(subject)
    assert not outcome.holds, outcome.evidence


def test_each_claim_has_a_broken_statement():
    assert sorted(name for name, _ in BROKEN) == sorted(claims()) == sorted(NAMES)


# ---------------------------------------------------------------- the ledger itself

def claim(**changes) -> Claim:
    """Return a small claim: "the number is even"."""
    facts = dict(id="even", paper="CCA", place="Section 1", quote=["even"], reading="it is even",
                 printed=2, check=parity)
    return Claim(**(facts | changes))


def parity(number) -> Outcome:
    """Judge whether a number is even."""
    return Outcome(number % 2 == 0, f"{number} mod 2 = {number % 2}")


WRONG = dict(printed=3, corrected=2, repair="it is not")


def test_words_and_code_are_joined():
    facts = {"paper": "CCA", "place": "Section 1", "quote": ["even,\nand \\no escape"],
             "reading": "it is even"}
    joined = ledger.joined("even", facts, Subjects(parity, 2))
    assert joined.quote == [r"even, and \no escape"] and judge(joined)[0].outcome.holds
    checked = [import_module(f"cca_lab.theory.{name}").SUBJECTS for name in ledger.MODULES]
    assert sorted(ledger.WORDS) == sorted(name for table in checked for name in table)


@pytest.mark.parametrize("changes", [
    {"corrected": 2}, {"repair": "none"}, {"sides": (2, 4)},
    WRONG | {"sides": (2,), "places": "a"}], ids=str)
def test_a_claim_whose_words_and_check_do_not_go_together_is_refused(changes):
    with pytest.raises(ValueError, match="even: what does not hold"):
        claim(**changes)


@pytest.mark.parametrize(("changes", "said"), [
    ({"printed": 3}, "printed statement fails"),
    (WRONG | {"printed": 4}, "printed statement passes"),
    (WRONG | {"corrected": 5}, "repair fails"),
    (WRONG | dict(sides=(2, 3), places="ab"), "'b' by itself fails"),
    ({"machine": lambda: Outcome(False, "x = 1")}, "proof fails: x = 1")])
def test_a_label_that_is_not_what_was_found_is_reported(changes, said):
    assert any(said in words for words in contradictions(judge(claim(**changes))))


def test_a_table_shows_every_character_as_it_is():
    shown = pages.short_table(ledger.run([claim(reading="a_1 | b* < c", **WRONG)]))
    assert r"a\_1 \| b\* \< c" in shown and "**false as printed**" in shown


# ---------------------------------------------------------------- the command

def test_the_command_shows_a_row_in_a_hundred_columns_and_explains():
    shown, explained = (run_command(["verify", "T3.proof", *more]) for more in ([], ["--explain"]))
    assert shown.exit_code == explained.exit_code == 0 and "false as printed" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= verify.WIDTH
    assert claims()["T3.proof"].reading[:30] in ledger.one_line(explained.stdout)


def test_the_command_names_an_unknown_claim():
    unknown = run_command(["verify", "T0"])
    assert unknown.exit_code == 2 and "T0" in unknown.stderr


@pytest.mark.parametrize("printed", [2, 3])
def test_the_command_says_what_disagrees_and_writes_nothing(monkeypatch, tmp_path, printed):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(verify.ledger, "select", lambda ids: (claim(printed=printed),))
    done = run_command(["verify"])
    assert done.exit_code == printed - 2 and ("disagrees: even" in done.stdout) == (printed == 3)
    assert not list(tmp_path.iterdir())
