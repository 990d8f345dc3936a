"""Every claim's check refutes what is wrong and accepts what is right; the page is current."""

import os
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from cca_lab.files import repository
from cca_lab.theory import ledger, numbers, pages, verify
from cca_lab.theory.claim import (
    LONGEST_QUOTE,
    Claim,
    Hypothesis,
    Judgement,
    Outcome,
    Subjects,
    Verdict,
    chosen,
    contradictions,
    judge,
)
from tests.command import run_command
from tests.theory import quotations

NAMES = list(ledger.words())
PAPERS = Path(os.environ.get("CCA_LAB_PAPERS", "no folder"))


@cache
def claims() -> dict[str, Claim]:
    return {claim.id: claim for claim in ledger.collect()}


@cache
def broken() -> dict:
    """Return the kept mutants of claims: a wrong subject by id."""
    subjects: dict = {}
    for path in sorted((Path(__file__).parents[1] / "mutants").glob("theory_*.py")):
        table = getattr(import_module(f"tests.mutants.{path.stem}"), "BROKEN", {})
        assert not subjects.keys() & table.keys(), f"{path.stem}: a claim of another table"
        subjects |= table
    return subjects


@cache
def judgement(name: str) -> Judgement:
    return judge(claims()[name])


def records() -> list[dict]:
    return [ledger.record(claim, judgement(name)) for name, claim in claims().items()]


@pytest.mark.parametrize("name", NAMES)
def test_the_label_is_what_the_check_finds(name):
    assert list(contradictions(claims()[name], judgement(name))) == []
    evidence = judgement(name).printed.evidence
    assert evidence and "\n" not in evidence


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_statement_is_refuted(name):
    outcome = claims()[name].check(broken()[name])
    assert not outcome.holds, outcome.evidence


def test_each_claim_and_no_other_has_a_broken_statement():
    assert broken().keys() == claims().keys() == {*NAMES}


def test_a_hypothesis_that_says_nothing_or_nothing_right_is_refused():
    for claim in claims().values():
        if not claim.hypothesis:
            continue
        accepts = claim.hypothesis.accepts

        def judged(accepts, claim=claim):
            changed = replace(claim, hypothesis=Hypothesis("other", accepts, "Section 1"))
            return list(contradictions(changed, judge(changed, prove=False)))

        assert judged(lambda *case, accepts=accepts, **named: not accepts(*case, **named))
        with pytest.raises(ValueError, match="no case"):
            judged(lambda *case, **named: True)


def test_the_page_of_errata_is_current():
    page = (repository() / "docs" / "claims" / "errata.md").read_text(encoding="utf-8")
    assert page == pages.errata_page(records()), "run `cca-lab verify --write` and commit"
    assert pages.tally(records()) in page


def test_an_example_runs_by_itself_and_asserts():
    for name, claim in claims().items():
        if not claim.example or claim.verdict is Verdict.HOLDS:
            continue  # shown with `--explain` only
        assert "assert " in claim.example and "cca_lab" not in claim.example, name
        exec(compile(claim.example, name, "exec"), {})


# ---------------------------------------------------------------- quotations

@pytest.mark.skipif(not PAPERS.is_dir(), reason="the papers' texts are not shipped; "
                    "CCA_LAB_PAPERS=FOLDER looks the quotations up")
def test_the_papers_have_every_quotation_and_row():
    papers = quotations.read(PAPERS)
    assert [problem for claim in claims().values()
            for problem in quotations.problems(claim, papers[claim.paper])] == []
    assert [row for row in numbers.rows() if row.relation == "mean"
            and quotations.miscopied(row, papers[row.paper])] == []


PAPER = """# A title

## Abstract

We find that all is well.

# 4. Redundancy

### 4.1. In attention

**Theorem 1.** Weights  are
sparse, $$x \\ge 1. \\tag{8}$$

# References

Weights are sparse and dense.
"""


@pytest.mark.parametrize(("quote", "place", "problem"), [
    ("Weights are sparse, $$x", "Theorem 1", None), ("Weights are sparse,", "Section 4", None),
    ("all is well", "Abstract", None), ("Weights are", "Eq. 8", None),
    ("Weights are sparse,", "Section 3", "not its place"),
    ("all is well", "Section 4.1", "not its place"),
    ("Weights are spare", "Theorem 1", "not in the paper"),
    ("sparse and dense", "Section 4.1", "not its place")])
def test_a_quotation_is_looked_up(tmp_path, quote, place, problem):
    for name in (name for names in quotations.FILES.values() for name in names):
        (tmp_path / name).write_text(PAPER, encoding="utf-8")
    text = quotations.read(tmp_path)["DGA"]
    found = list(quotations.problems(claim(quote=quote, place=place), text))
    assert (found == []) if problem is None else problem in found[0]


# ---------------------------------------------------------------- the ledger itself

def claim(**changes) -> Claim:
    """Return a small claim: "the number is even"."""
    facts = dict(id="even", paper="CCA", place="Section 1", quote="even", reading="it is even",
                 printed=2, check=parity, proof="count")
    return Claim(**(facts | changes))


def parity(cases, within=None) -> Outcome:
    """Judge whether a number, or each number of a list, is even."""
    left = chosen(cases if isinstance(cases, list) else [cases], within)
    odd = [number for number in left if number % 2]
    return Outcome(not odd, f"{left[0]} mod 2 = {left[0] % 2}", {"odd": len(odd)})


WRONG = dict(printed=3, corrected=2, repair="it is not")
SMALL = Hypothesis("n < 3", lambda n: n < 3, "Section 1")

TOML = """["even"]
paper = "CCA"
place = "Section 1"
quote = '''
even,
and \\no escape'''
reading = "it is even"
proof = "count"
"""


def test_words_that_are_not_a_claim_s_are_refused(tmp_path):
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    one.write_text(TOML, encoding="utf-8")
    two.write_text(TOML + "colour = 1", encoding="utf-8")
    with pytest.raises(ValueError, match="'even' is taken"):
        ledger.read([one, one])
    with pytest.raises(ValueError, match="colour is 1"):
        ledger.read([two])


def test_words_and_code_are_joined(tmp_path, monkeypatch):
    path = tmp_path / "a.toml"
    path.write_text(TOML, encoding="utf-8")
    facts = ledger.read([path])
    joined = ledger.joined("even", facts["even"], Subjects(parity, 2))
    assert joined.quotes == (r"even, and \no escape",) and judge(joined).printed.holds
    with pytest.raises(ValueError, match="not those of its check"):
        ledger.joined("even", facts["even"], Subjects(parity, 2, models=(1,)))
    monkeypatch.setattr(ledger, "words", lambda: facts)
    ledger.collect.cache_clear()
    with pytest.raises(ValueError, match="needs words"):
        ledger.collect()


@pytest.mark.parametrize(("changes", "message"), [
    ({"id": "two words"}, "one word"), ({"reading": ""}, "reading is empty"),
    ({"corrected": 2}, "must say what holds"), ({"quote": ""}, "quote is empty"),
    ({"quote": "x" * (LONGEST_QUOTE + 1)}, "are enough"), ({"slip": True}, "no slip"),
    (WRONG | {"hypothesis": SMALL, "sides": {"a": 2, "b": 4}}, "three verdicts"),
    (WRONG | {"models": {"a": (2, True)}}, "one that the check accepts"),
    (WRONG | {"sides": {"a": 2}}, "two places")])
def test_an_incomplete_claim_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        claim(**changes)


@pytest.mark.parametrize(("changes", "said"), [
    ({"printed": 3}, "printed statement fails"),
    (WRONG | {"printed": 4}, "printed statement passes"),
    (WRONG | {"corrected": 5}, "repair fails"),
    (WRONG | dict(printed=[1, 2, 3], hypothesis=SMALL), "within"),
    (WRONG | dict(printed=[1, 2, 4], hypothesis=SMALL), "outside"),
    (WRONG | dict(models={"a": (3, True), "b": (3, False)}), "model 'a' fails"),
    (WRONG | dict(sides={"a": 2, "b": 3}), "'b' by itself fails"),
    ({"machine": lambda: Outcome(False, "x = 1")}, "proof fails: x = 1")])
def test_a_label_that_is_not_what_was_found_is_reported(changes, said):
    judged = claim(**changes)
    assert any(said in words for words in contradictions(judged, judge(judged)))


def test_pages_show_every_character_as_it_is():
    page = pages.errata_page(ledger.run([claim(reading="a_1 | b* < c", **WRONG)]))
    assert r"a\_1 \| b\* \< c" in page


# ---------------------------------------------------------------- the command

def test_the_command_shows_a_row_in_a_hundred_columns_and_explains():
    shown, explained = (run_command(["verify", "T3.lemma4", *more]) for more in ([], ["--explain"]))
    assert shown.exit_code == explained.exit_code == 0 and "false as printed" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= verify.WIDTH
    assert claims()["T3.lemma4"].reading[:30] in ledger.one_line(explained.stdout)


def test_the_command_names_an_unknown_claim():
    unknown = run_command(["verify", "T0"])
    assert unknown.exit_code == 2 and "T0" in unknown.stderr


@pytest.mark.parametrize("printed", [2, 3])
def test_the_command_writes_only_if_asked_and_all_agree(monkeypatch, tmp_path, printed):
    page = tmp_path / "docs" / "claims" / "errata.md"
    page.parent.mkdir(parents=True)
    monkeypatch.setattr(verify, "repository", lambda: tmp_path)
    monkeypatch.setattr(verify.ledger, "select", lambda ids: (claim(printed=printed),))
    assert verify.verify() == verify.verify(write=True) == ([] if printed == 2 else ["even"])
    assert page.is_file() is (printed == 2)
