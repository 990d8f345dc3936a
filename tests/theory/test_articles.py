"""The articles on the papers run, every block with its assertions, and quote what is printed."""

import os
import re
from pathlib import Path

import pytest

from cca_lab.files import repository
from cca_lab.theory import ledger, numbers
from cca_lab.theory.claim import Verdict

ARTICLES = sorted(path for path in (repository() / "docs" / "claims").glob("*.md")
                  if "```{code-cell}" in path.read_text(encoding="utf-8"))
PAPERS = Path(os.environ.get("CCA_LAB_PAPERS", "no folder"))
CELL = re.compile(r"^```\{code-cell\} python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAYS = {"holds": Verdict.HOLDS, "true": Verdict.HOLDS, "right": Verdict.HOLDS,
        "false": Verdict.FALSE, "contradicts": Verdict.INCONSISTENT}
ID = r"`((?:P1c?|T\d|D1|LC)(?:\.[\w-]+)?)`"


@pytest.mark.parametrize("path", ARTICLES, ids=lambda path: path.stem)
def test_an_article_runs(path):
    text, names = path.read_text(encoding="utf-8"), {"__name__": "article"}
    cells = CELL.findall(text)
    assert len(cells) == text.count("```{code-cell}") and all("assert " in cell for cell in cells)
    for number, cell in enumerate(cells, start=1):
        exec(compile(cell, f"{path.name}, block {number}", "exec"), names)


def verdict(words: str) -> Verdict:
    """Return what a phrase in bold says: the one word of `SAYS` in it."""
    said, = (SAYS[word] for word in re.findall(r"\w+", words) if word in SAYS)
    return said


@pytest.mark.parametrize("path", ARTICLES, ids=lambda path: path.stem)
def test_an_article_is_short_and_gives_every_claim_of_its_paper_the_ledger_s_verdict(path):
    prose = CELL.sub("", path.read_text(encoding="utf-8"))
    assert len(re.sub(r"\$\$.*?\$\$|\$.*?\$", "x", prose, flags=re.DOTALL).split()) <= 2200
    found = re.findall(r"\*\*([^*]+)\*\*\s\(" + ID, prose)
    said = [(name, verdict(words)) for words, name in found]
    assert len(said) == len(re.findall(ID, prose))
    assert sorted(said) == sorted((claim.id, claim.verdict) for claim in ledger.collect()
                                  if claim.paper.lower() == path.stem)


def test_what_holds_and_what_falls_in_short_is_the_ledger_s():
    page = (ARTICLES[0].parent / "index.md").read_text(encoding="utf-8")
    verdicts = {claim.id: claim.verdict for claim in ledger.collect()}
    for start, holds in (("What holds", True), ("What falls", False)):
        named = re.findall(ID, page.partition(f"**{start}.**")[2].partition("\n\n")[0])
        assert named and {verdicts[name] is Verdict.HOLDS for name in named} == {holds}


def letters(text: str) -> str:
    """Return the letters and digits of a text, without TeX's commands, markup and white space."""
    return re.sub(r"[^a-z0-9]", "", re.sub(r"\\[A-Za-z]+|</?\w+>", "", text).lower())


def paper(name: str) -> str:
    """Return the text of a paper, with the poster of CCA."""
    files = PAPERS.glob(f"{name.lower()}*.txt")
    return " ".join(path.read_text(encoding="utf-8") for path in files)


with_the_papers = pytest.mark.skipif(
    not PAPERS.is_dir(), reason="the papers' texts are not shipped; CCA_LAB_PAPERS=FOLDER looks up "
                                "what is quoted")


@with_the_papers
@pytest.mark.parametrize("path", ARTICLES, ids=lambda path: path.stem)
def test_an_article_quotes_its_paper(path):
    printed, prose = letters(paper(path.stem)), CELL.sub("", path.read_text(encoding="utf-8"))
    quoted = [piece for quote in re.findall(r'"([^"]+)"', prose) for piece in quote.split("[...]")]
    assert [piece for piece in quoted if letters(piece) not in printed] == []


@with_the_papers
@pytest.mark.parametrize("name", ["CCA", "DGA", "LoCoCo"])
def test_the_ledger_quotes_its_paper_and_its_numbers(name):
    text = paper(name)
    quoted = [quote for claim in ledger.collect() if claim.paper == name for quote in claim.quote]
    assert [quote for quote in quoted if letters(quote) not in letters(text)] == []
    words = re.sub(r"<[^>]+>|[*\\$|_]", " ", text)
    for row in (row for row in numbers.rows() if row.paper == name):
        printed = [number for number in row.numbers.split() if re.fullmatch(r"\d+\.\d+", number)]
        for number in printed:
            assert re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", words), (number, row)
        if row.relation == "mean":
            side_by_side = r"\D{1,60}?".join(map(re.escape, row.numbers.split()))
            assert re.search(rf"(?<![\d.]){side_by_side}(?!\d)", words), row
