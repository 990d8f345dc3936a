"""The map of the claims and the generated pages: sound, counted, current, and readable."""

import json
import re
from importlib import import_module

import networkx as nx
import pytest

from cca_lab.files import repository
from cca_lab.theory import claim_map, ledger, pages
from cca_lab.theory.claim import Strength, Verdict
from cca_lab.theory.forall import report

RECORDS = json.loads(ledger.paths()["records"].read_text(encoding="utf-8"))
CLAIMS = {record["id"]: record for record in RECORDS}
MAP = claim_map.graph(RECORDS)
DOCS = repository() / "docs" / "claims"


def record(name: str, **changes) -> dict:
    """Return a record of a small claim, false unless said otherwise."""
    facts = dict.fromkeys(CLAIMS["T1"]) | dict(
        id=name, paper="DGA", place="Section 1", quote=["q"], reading="r", weight="slip",
        verdict="false as printed", root=name, strength="counterexample", evidence="e",
        repair="better_one", repaired="proof + finite check", proof="p", example="", models={},
        sides={}, formula=False)
    return facts | changes


# ---------------------------------------------------------------- the map's data

def test_every_arrow_ends_at_something_that_exists():
    """Catches a misspelled id, a claim that is gone, and the repair of what holds."""
    assert claim_map.named() - MAP.nodes == set()


def test_an_arrow_back_is_refused(monkeypatch):
    """Catches a statement that rests on itself."""
    monkeypatch.setitem(claim_map.DATA, "new", {"T3.hessian": {"T3.proof": "nowhere"}})
    with pytest.raises(ValueError, match="circle"):
        claim_map.graph(RECORDS)


def test_a_line_of_the_solver_s_page_that_an_arrow_names_is_there():
    names = {name.partition(":")[2] for name in MAP if name.startswith("z3:")}
    assert names <= {theorem.name for theorem in report.THEOREMS}


def test_an_arrow_between_theorems_of_coq_is_a_call_in_the_proof():
    """Catches an arrow that the proof does not bear out, such as one that is turned round."""
    proofs = {}
    for path in (repository() / "proofs").glob("*.v"):
        for name, proof in re.findall(r"^Theorem (\w+)(.*?)Qed\.", path.read_text(encoding="utf-8"),
                                      re.MULTILINE | re.DOTALL):
            proofs[f"coq:{name}"] = proof.partition("Proof.")[2]
    assert {name for name in MAP if name.startswith("coq:")} <= proofs.keys()
    assert [(user, used) for user, used in MAP.edges if user.startswith("coq:")
            and not re.search(rf"\b{used[4:]}\b", proofs[user])] == []


def test_a_function_that_an_arrow_names_is_there():
    sources = [facts["source"] for *_, facts in MAP.edges(data=True)
               if facts["source"].startswith("mechanisms.")]
    assert sources and all(sources)
    for source in set(sources):
        module, name = (source.split(".") + [""])[1:3]
        assert not name or hasattr(import_module(f"cca_lab.mechanisms.{module}"), name), source


def test_every_claim_is_on_the_map_or_only_compares_printed_numbers():
    """Catches a new claim without an arrow, and one that is said to be alone and is not."""
    alone = {name for name in CLAIMS if not MAP.degree(name)}
    assert {name for name in alone
            if CLAIMS[name]["strength"] != Strength.ARITHMETIC} == claim_map.ALONE.keys()
    assert [name for name in claim_map.WORDS if not MAP.degree(name)] == []


def test_the_root_of_an_error_is_something_that_it_uses():
    """Catches a root that is exchanged with another, or that points from cause to effect."""
    roots = {name: CLAIMS[name]["root"] for name in CLAIMS if CLAIMS[name]["weight"]}
    assert [f"{name}: {root}" for name, root in roots.items() if not nx.has_path(MAP, name, root)] \
        == []
    assert not nx.has_path(MAP, "T1.eq20", "T1")


def test_what_falls_is_computed():
    """Catches a fall that stops too early, or that goes through other evidence or a repair."""
    assert claim_map.fall(MAP, "T3.eq49")["keeps"] == ["T3"]
    assert "DGA.design" in claim_map.fall(MAP, "T1")["falls"]
    assert claim_map.fall(MAP, "D1.alg2") == {"falls": [], "keeps": [], "again": ["DGA.alg1"]}
    small = nx.DiGraph([("c", "b"), ("b", "a"), ("d", "a"), ("d", "a'"), ("e", "d"), ("f", "h"),
                        ("h", "b")])
    nx.set_node_attributes(small, None, "verdict")
    small.nodes["h"]["verdict"] = Verdict.HOLDS
    assert claim_map.fall(small, "a") == {"falls": ["b", "c"], "keeps": ["h"], "again": ["d"]}


def test_what_must_be_trusted_follows_from_the_check():
    """Catches a letter that is set by hand, and Coq's for a theorem that says only a part."""
    assert claim_map.trusted(CLAIMS["T1"]) == ("E†", "CW")
    assert claim_map.trusted(CLAIMS["T3"])[0] == "CW†"
    assert claim_map.trusted(CLAIMS["T3.lemma3"])[0] == "W†"
    assert claim_map.trusted(record("x", strength="for all (SMT)", repair="", repaired=None)) \
        == ("Z", "")
    assert set(claim_map.BEHIND) == set(Strength)
    trust = (DOCS / "trust.md").read_text(encoding="utf-8")
    assert [letter for letter in claim_map.LAYERS if f"| {letter} | " not in trust] == []


def test_the_picture_has_a_box_and_a_link_for_each_statement():
    pytest.importorskip("matplotlib")
    svg = claim_map.picture(MAP)
    boxes = [name for name in MAP if MAP.degree(name)]
    assert [name for name in boxes if f'id="node-{name}"' not in svg.replace("&#39;", "'")] == []
    assert 'href="T3.proof.html"' in svg and "✗ T3.proof [E]" in svg
    changed = claim_map.graph([row | {"strength": "enclosure"} for row in RECORDS])
    assert claim_map.digest(MAP) in svg and claim_map.digest(changed) not in svg


# ---------------------------------------------------------------- the pages

def test_the_pages_of_the_clone_are_current():
    stale = [path.name for path, text in pages.committed(DOCS, RECORDS).items()
             if path.read_text(encoding="utf-8") != text]
    assert not stale, "run `cca-lab verify` and commit"


def test_errors_are_counted_once_and_conditions_apart():
    """Catches a count that has conditions among the errors, or an error for each repetition."""
    wrong = [record("even"), record("again", root="even"),
             record("great", weight="substance", verdict="inconsistent within the paper"),
             record("if", verdict="model dependent"),
             record("good", verdict="holds", weight=None, root=None, repair="", repaired=None)]
    said = pages.tally(wrong)
    assert "5 claims: 1 holds, 1 model dependent, 1 inconsistent within the paper, 2 false" in said
    assert "2 errors (1 of substance, 1 of slip)" in said and "1 statements that need" in said


def test_the_errata_lead_with_errors_of_substance():
    """Catches a slip among the errors of substance, and one without example or pasteable repair."""
    page = (DOCS / "errata.md").read_text(encoding="utf-8")
    entries, _, appendix = page.partition("\n## Appendix: slips")
    for row in RECORDS:
        substance = row["weight"] == "substance"
        assert (f"(`{row['id']}`)\n" in entries) == substance, row["id"]
        assert (f"| `{row['id']}` " in appendix) != substance, row["id"]
        if substance and row["verdict"] in pages.ERRORS:
            entry = entries.split(f"(`{row['id']}`)\n")[1].split("\n### ")[0]
            assert " ".join(row["repair"].split()) in " ".join(entry.split()), row["id"]
            assert "```python\n" in entry, row["id"]
    assert pages.tally(RECORDS) in page


def test_a_claim_s_page_names_its_layers_and_its_arrows(tmp_path):
    """Catches a page that hides Coq, or the finite spaces of Coq."""
    ledger_page, *rest = pages.write(tmp_path, RECORDS)
    assert {path.stem for path in rest} == CLAIMS.keys()
    assert "| stands on |" in ledger_page.read_text(encoding="utf-8")
    texts = {name: (tmp_path / f"{name}.md").read_text(encoding="utf-8") for name in ("T1", "T3")}
    assert "`coq:two_term_bound` (the same statement, for finitely many outcomes)" in texts["T1"]
    assert "`coq:hessian_condition`" in texts["T3"] and "Coq (C)" in texts["T3"]
    assert "P_sparse >= sup" in texts["T1"]  # not escaped: it can be pasted
