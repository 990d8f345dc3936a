"""Every claim's check refutes what is wrong and accepts what is right; the files are current."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cca_lab.cli import app
from cca_lab.theory import ledger, quotes, verify
from cca_lab.theory.claim import (
    LONGEST_QUOTE,
    PAPERS,
    Claim,
    Hypothesis,
    Judgement,
    Outcome,
    Strength,
    Subjects,
    Verdict,
    Weight,
    chosen,
    contradictions,
    judge,
)
from cca_lab.theory.published.printed import TABLES

CLAIMS = {claim.id: claim for claim in ledger.collect()}
MUTANTS = sorted(path.stem for path in (Path(__file__).parents[1] / "mutants").glob("theory_*.py"))


BROKEN: dict = {}  # id -> a wrong subject
for table in MUTANTS:
    subjects = getattr(import_module(f"tests.mutants.{table}"), "BROKEN", {})
    assert not BROKEN.keys() & subjects.keys(), f"{table}: some of its claims are in another table"
    BROKEN |= subjects


@cache
def judgement(name: str) -> Judgement:
    return judge(CLAIMS[name])


@cache
def records() -> list[dict]:
    return [ledger.record(claim, judgement(name)) for name, claim in CLAIMS.items()]


@pytest.mark.parametrize("name", CLAIMS)
def test_the_label_is_what_the_check_finds(name):
    assert list(contradictions(CLAIMS[name], judgement(name))) == []
    evidence = judgement(name).printed.evidence
    assert evidence and "\n" not in evidence


@pytest.mark.parametrize("name", CLAIMS)
def test_a_wrong_label_or_repair_is_refused(name):
    """A false claim without its repair would hold, one that holds would be false with a repair."""
    claim = CLAIMS[name]
    plain = dict(models={}, sides={}, hypothesis=None, weight=None, root="", repair="",
                 repaired=None, corrected=None, machine=None, strength=Strength.PROOF)
    if claim.verdict is Verdict.HOLDS:
        plain |= dict(weight=Weight.SLIP, repair="it", repaired=Strength.PROOF, corrected=0)
    if claim.verdict is not Verdict.DEPENDS:  # whose printed statement is one of its models
        assert refused(claim, judgement(name), **plain)
    if claim.corrected is not None:
        wrong = replace(judgement(name), corrected=claim.check(BROKEN[name]))
        assert list(contradictions(claim, wrong)), "a wrong repair is accepted"
    for model, (subject, accepted) in claim.models.items():
        assert refused(claim, judgement(name),
                       models=dict(claim.models) | {model: (subject, not accepted)}), model


def refused(claim: Claim, judged: Judgement, **changes) -> bool:
    """Whether a changed label is no claim or contradicts what the check saw."""
    try:
        return any(contradictions(replace(claim, **changes), judged))
    except ValueError:
        return True


@pytest.mark.parametrize("name", [name for name, claim in CLAIMS.items() if claim.hypothesis])
def test_a_hypothesis_that_says_nothing_or_nothing_right_is_refused(name):
    claim = CLAIMS[name]
    def judged(accepts):
        changed = replace(claim, hypothesis=Hypothesis("other", accepts, "Section 1"))
        return list(contradictions(changed, judge(changed)))

    assert judged(lambda *case, **named: not claim.hypothesis.accepts(*case, **named))
    with pytest.raises(ValueError, match="no case"):
        judged(lambda *case, **named: True)


@pytest.mark.parametrize("name", CLAIMS)
def test_a_broken_statement_is_refuted(name):
    outcome = CLAIMS[name].check(BROKEN[name])
    assert not outcome.holds, outcome.evidence


def test_each_claim_and_no_other_has_a_broken_statement():
    assert BROKEN.keys() == CLAIMS.keys()


def test_the_ledger_is_long_enough():
    assert len(CLAIMS) >= 30
    assert {claim.paper for claim in CLAIMS.values()} == {"CCA", "DGA", "LoCoCo"}


def test_the_files_of_the_ledger_are_current():
    stale = [path.name for path, text in ledger.contents(records()).items()
             if not path.is_file() or path.read_text(encoding="utf-8") != text]
    assert not stale, "run `cca-lab verify` and commit"


def test_a_changed_finding_would_be_seen_in_every_file():
    name = next(row["id"] for row in records() if row["verdict"] == Verdict.FALSE.value)
    altered = [row | {"evidence": "nothing"} if row["id"] == name else row for row in records()]
    before, after = ledger.contents(records()), ledger.contents(altered)
    kept = {path.name for path in before if before[path] == after[path]}
    assert not kept & {"claims.json", "errata.md"}


def test_the_records_follow_their_schema():
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(ledger.paths()["schema"].read_text(encoding="utf-8"))
    jsonschema.validate(records(), schema)
    enums = {"verdict": Verdict, "strength": Strength, "weight": Weight, "paper": PAPERS}
    for field, kinds in enums.items():
        assert {*schema["items"]["properties"][field]["enum"]} - {None} == {*kinds}
    for wrong in ({"verdict": "perhaps"}, {"extra": 1}, {"contradictions": ["the repair fails"]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate([records()[0] | wrong], schema)


def test_a_changed_statement_is_seen_as_one():
    """What the checks found may change; what is stated only with `--restate`."""
    before = records()
    for field in before[0].keys() - {*ledger.FOUND, "id"}:
        altered = [row | {field: "another"} if row["id"] == "T1" else row for row in before]
        if field not in ("models", "sides"):
            assert ledger.restated(altered, before) == {"T1": field}
    assert ledger.restated(before[1:], before).keys() == {before[0]["id"]}
    assert not ledger.restated([row | {"evidence": "x"} for row in before], before)


# Their proofs compute with printed numbers, and print the results.
COMPUTED = {"T1.few", "T1.artefact", "T3.descent", "P1.float", "P1c.kv", "P1c.amdahl", "D1.cache",
            "LC.overhead", "LC.best", "LC.printed", "LC.ratio", "LC.twice", "CCA.a800",
            "CCA.printed", "CCA.accuracy", "CCA.ablations", "CCA.5.7x", "CCA.minference",
            "CCA.devices", "CCA.default", "DGA.2.4-3.5x", "DGA.table5"}


def unknown_decimals(claim: Claim, record: dict) -> set[str]:
    """Return the decimals in a claim's prose that neither its data nor the tables have."""
    decimal = re.compile(r"(?<![\w.])\d+\.\d+")
    prose = " ".join((claim.reading, claim.repair, claim.proof))
    prose = re.sub(r"(Section|Appendix)s? [\dA-I]+\.\d+", "", prose)
    data = [claim.place, claim.quotes, claim.example, TABLES, *(record[name] for name in (
        "evidence", "numbers", "inside", "corrected", "machine", "models", "sides"))]
    return {*decimal.findall(prose)} - {*decimal.findall(" ".join(map(str, data)))}


def test_decimals_in_prose_are_those_of_the_data():
    """Mutant: 94.34 ms, which DGA's Table 3 prints, as 94.43."""
    unknown = {row["id"]: unknown_decimals(CLAIMS[row["id"]], row) for row in records()}
    assert {name for name, decimals in unknown.items() if decimals} == COMPUTED
    rise = CLAIMS["DGA.rise"]
    row = next(row for row in records() if row["id"] == "DGA.rise")
    assert unknown_decimals(replace(rise, proof=rise.proof.replace("94.34", "94.43")), row)


# ---------------------------------------------------------------- quotations, places, examples

def test_every_quotation_was_found_at_its_place():
    """`cca-lab verify --papers FOLDER` writes the digest, once every quote stands in its place."""
    digests = json.loads(ledger.paths()["found"].read_text(encoding="utf-8"))
    now = {name: quotes.fingerprint(claim) for name, claim in CLAIMS.items()}
    assert now | {"tables": quotes.digest(str(TABLES))} == digests
    assert quotes.fingerprint(replace(CLAIMS["T1"], place="Theorem 2")) != digests["T1"]


@pytest.mark.skipif("CCA_LAB_PAPERS" not in os.environ, reason="the papers' texts are not shipped; "
                    "CCA_LAB_PAPERS=FOLDER looks the quotations up")
def test_the_papers_have_every_quotation():
    papers = quotes.read(Path(os.environ["CCA_LAB_PAPERS"]))
    assert [problem for claim in CLAIMS.values()
            for problem in quotes.problems(claim, papers[claim.paper])] == []
    for claim in CLAIMS.values():
        if claim.quotes:
            turned = replace(claim, quote=claim.quotes[0][::-1])
            assert any(quotes.problems(turned, papers[claim.paper]))
    assert any("Theorem 2" in problem for problem in quotes.problems(
        replace(CLAIMS["T3"], place="Theorem 2, Appendix A.3"), papers["DGA"]))
    assert list(quotes.miscopied(TABLES, papers)) == []
    slip = {"DGA": {"latency": TABLES["DGA"]["latency"] | {"MInference": "93.13 93.93 94.43"}}}
    assert list(quotes.miscopied(slip, papers)) == [
        "DGA, latency MInference: not in the paper: 93.13, 93.93, 94.43"]


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
    ("Weights are sparse, $$x", "Theorem 1", None), ("Weights are sparse,", "Section 4.1", None),
    ("Weights are sparse,", "Section 4", None), ("all is well", "Abstract", None),
    ("Weights are", "Eq. 8", None), ("Weights are sparse,", "Section 3", "not its place"),
    ("all is well", "Section 4.1", "not its place"),
    ("Weights are spare", "Theorem 1", "not in the paper"),
    ("sparse and dense", "Section 4.1", "not its place")])
def test_a_quotation_is_looked_up(tmp_path, quote, place, problem):
    for name in (name for names in quotes.FILES.values() for name in names):
        (tmp_path / name).write_text(PAPER, encoding="utf-8")
    told = list(quotes.problems(claim(quote=quote, place=place), quotes.read(tmp_path)["DGA"]))
    assert (told == []) if problem is None else problem in told[0]


def test_a_folder_without_the_texts_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no cca.txt.*put the papers"):
        quotes.read(tmp_path)


@pytest.mark.parametrize("name", [name for name, claim in CLAIMS.items() if claim.example])
def test_an_example_runs_by_itself_and_asserts(name):
    source = CLAIMS[name].example
    assert "assert " in source and "cca_lab" not in source
    done = subprocess.run([sys.executable, "-I", "-c", source], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 0 and done.stdout.strip(), done.stderr


def test_every_error_of_substance_has_an_example():
    assert [name for name, claim in CLAIMS.items() if claim.weight is Weight.SUBSTANCE
            and not claim.example and not claim.root] == []


# ---------------------------------------------------------------- the ledger itself

def claim(**changes) -> Claim:
    """Return a small claim: "the number is even"."""
    facts = dict(id="even", paper="CCA", place="Section 1", quote="even", reading="it is even",
                 printed=2, check=parity, strength=Strength.PROOF, proof="count")
    return Claim(**(facts | changes))


def parity(numbers, within=None) -> Outcome:
    """Judge whether a number, or each number of a list, is even."""
    cases = chosen(numbers if isinstance(numbers, list) else [numbers], within)
    odd = [number for number in cases if number % 2]
    return Outcome(not odd, f"{cases[0]} mod 2 = {cases[0] % 2}", {"odd": len(odd)})


WRONG = dict(printed=3, corrected=2, repair="it is not", repaired=Strength.PROOF,
             weight=Weight.SLIP)
SMALL = Hypothesis("n < 3", lambda n: n < 3, "Section 1")

TOML = """["even"]
paper = "CCA"
place = "Section 1"
quote = '''
even,
and \\no escape'''
reading = "it is even"
strength = "arithmetic"
proof = "count"
"""


@pytest.mark.parametrize(("texts", "message"), [
    ((TOML, TOML), "'even' is taken or retired"), ((TOML + "colour = 1",), "colour is 1"),
    ((TOML.replace('"even"]', '"T2.open"]'),), "'T2.open' is taken or"),
    ((TOML + "sides = 'x'",), "sides is 'x'")])
def test_words_that_are_not_a_claim_s_are_refused(tmp_path, texts, message):
    paths = [tmp_path / f"{number}.toml" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        ledger.read(paths)


def test_words_and_code_are_joined(tmp_path, monkeypatch):
    path = tmp_path / "a.toml"
    path.write_text(TOML, encoding="utf-8")
    facts = ledger.read([path])
    joined = ledger.joined("even", facts["even"], Subjects(parity, 2))
    assert joined.quotes == (r"even, and \no escape",) and judge(joined).printed.holds
    for code in (Subjects(parity, 2, models=(1,)), Subjects(parity, 2, sides=(1,)),
                 Subjects(parity, 2, within=bool)):
        with pytest.raises(ValueError, match="not those of its check"):
            ledger.joined("even", facts["even"], code)
    monkeypatch.setattr(ledger, "words", lambda: facts)
    ledger.collect.cache_clear()
    with pytest.raises(ValueError, match="needs words"):
        ledger.collect()


def test_an_id_that_was_merged_stands_for_its_new_claim():
    assert [claim.id for claim in ledger.select(["CCA.averages", "T1"])] == ["CCA.printed", "T1"]
    assert {new for new in ledger.retired().values() if new} <= CLAIMS.keys()
    with pytest.raises(ValueError, match=r"got T2\.open"):
        ledger.select(["T2.open"])


@pytest.mark.parametrize(("changes", "message"), [
    ({"id": "two words"}, "one word"), ({"paper": "NSA"}, "one of CCA, DGA, LoCoCo"),
    ({"proof": ""}, "proof is empty"), ({"corrected": 2}, "must say what holds"),
    ({"quote": ""}, "quote is empty"), ({"quote": "x" * (LONGEST_QUOTE + 1)}, "are enough"),
    ({"weight": Weight.SLIP}, "must be empty"), (WRONG | {"weight": None}, "how much it matters"),
    (WRONG | {"repaired": None}, "what stands behind the repair"),
    (WRONG | {"hypothesis": SMALL, "sides": {"a": 2, "b": 4}}, "three verdicts"),
    (WRONG | {"hypothesis": replace(SMALL, assumed="")}, "assumed is empty"),
    ({"machine": parity}, "machine goes with"), ({"strength": Strength.SMT}, "machine goes with"),
    ({"strength": Strength.COUNTEREXAMPLE}, "no counterexample"),
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
    ({"strength": Strength.MONTE_CARLO}, "half-width"),
    ({"strength": Strength.SMT, "machine": lambda: Outcome(False, "x = 1")}, "proof fails: x = 1")])
def test_a_label_that_is_not_what_was_found_is_told(changes, said):
    judged = claim(**changes)
    assert any(said in words for words in contradictions(judged, judge(judged)))


def test_a_root_has_an_error_of_its_own():
    lost = {"good": claim(id="good"), "x": claim(id="x", root="good", **WRONG)}
    with pytest.raises(ValueError, match="root is 'good'"):
        ledger.check_roots(lost)


def test_unknown_ids_are_named():
    with pytest.raises(ValueError, match="T0, wanted one of even"):
        ledger.select(["T0"], [claim()])


def test_run_tells_its_progress_and_finds_what_disagrees():
    told = []
    wrong = claim(id="unrepaired", **WRONG | {"corrected": 5})
    judged = ledger.run([claim(), claim(id="odd", printed=3), wrong], lambda *now: told.append(now))
    assert told == [(0, "even"), (1, "odd"), (2, "unrepaired"), (3, "")]
    assert ledger.failures(judged) == ["odd", "unrepaired"]


def test_numbers_are_rounded_and_json_accepts_them():
    values = [1 / 3, 123456.7, 0.0, float("inf"), 7, "x"]
    assert [ledger.rounded(value) for value in values] == [0.3333, 123500.0, 0.0, "inf", 7, "x"]


def test_writing_leaves_whole_files_only(tmp_path, monkeypatch):
    path = tmp_path / "docs" / "page.md"
    monkeypatch.setattr(ledger, "contents", lambda records: {path: records[0]})
    assert ledger.write(["new"]) == [path] and path.read_text() == "new"
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        ledger.write(["newer"])
    assert path.read_text() == "new"


def test_pages_show_every_character_as_it_is():
    written = ledger.contents(ledger.run([claim(reading="a_1 | b* < c", **WRONG)]))
    texts = {path.name: text for path, text in written.items()}
    assert r"a\_1 \| b\* \< c" in texts["errata.md"]
    assert json.loads(texts["claims.json"])[0]["reading"] == "a_1 | b* < c"


# ---------------------------------------------------------------- the command

def invoke(*arguments: str):
    return CliRunner().invoke(app, ["verify", *arguments])


def test_the_command_shows_a_row_and_explains():
    shown, explained = invoke("CCA.5.7x"), invoke("CCA.5.7x", "--explain")
    assert shown.exit_code == explained.exit_code == 0
    assert "32.43/6.42" in shown.output and "false as printed" in shown.output
    assert "whether the time or the factor" in explained.output


def test_the_command_names_an_unknown_claim():
    unknown = invoke("T0")
    assert unknown.exit_code == 2 and "T0" in unknown.output


def test_the_command_fails_and_writes_nothing_where_a_finding_disagrees(monkeypatch):
    monkeypatch.setattr(verify.ledger, "select", lambda ids: (claim(printed=3),))
    monkeypatch.setattr(verify.ledger, "write", lambda records: pytest.fail("written"))
    failed = invoke()
    assert failed.exit_code == 1 and "disagree" in failed.output


def test_the_command_writes_when_all_agree(monkeypatch):
    monkeypatch.setattr(verify.ledger, "select", lambda ids: (claim(),))
    monkeypatch.setattr(verify.ledger, "stored", lambda: ledger.run([claim()]))
    written = []
    monkeypatch.setattr(verify.ledger, "write",
                        lambda records: written.append(records) or [Path("claims.json")])
    assert invoke().exit_code == 0 and len(written) == 1
    assert invoke("even").exit_code == 0 and len(written) == 1  # a part is not written
    monkeypatch.setattr(verify.ledger, "select", lambda ids: (claim(reading="it is not odd"),))
    refused = invoke()
    assert refused.exit_code == 1 and "even: stated otherwise (reading)" in refused.output
    assert invoke("--restate", "even").exit_code == 0 and len(written) == 2
