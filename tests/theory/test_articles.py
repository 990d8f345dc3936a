"""The articles on the papers run, every block with its assertions, and quote what is printed."""

import os
import re
from pathlib import Path

import pytest

from cca_lab.files import repository

ARTICLES = sorted(path for path in (repository() / "docs" / "claims").glob("*.md")
                  if "```{code-cell}" in path.read_text(encoding="utf-8"))
PAPERS = Path(os.environ.get("CCA_LAB_PAPERS", "no folder"))
CELL = re.compile(r"^```\{code-cell\} python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", ARTICLES, ids=lambda path: path.stem)
def test_an_article_runs(path):
    text, names = path.read_text(encoding="utf-8"), {"__name__": "article"}
    cells = CELL.findall(text)
    assert len(cells) == text.count("```{code-cell}") and all("assert " in cell for cell in cells)
    for number, cell in enumerate(cells, start=1):
        exec(compile(cell, f"{path.name}, block {number}", "exec"), names)


def letters(text: str) -> str:
    """Return the letters and digits of a text, without TeX's commands, markup and white space."""
    return re.sub(r"[^a-z0-9]", "", re.sub(r"\\[A-Za-z]+|</?\w+>", "", text).lower())


@pytest.mark.skipif(not PAPERS.is_dir(), reason="the papers' texts are not shipped; "
                    "CCA_LAB_PAPERS=FOLDER looks the quotations up")
@pytest.mark.parametrize("path", ARTICLES, ids=lambda path: path.stem)
def test_an_article_quotes_its_paper(path):
    files = {"cca": ("cca", "cca-poster")}.get(path.stem, (path.stem,))
    paper = letters(" ".join((PAPERS / f"{name}.txt").read_text(encoding="utf-8")
                             for name in files))
    prose = CELL.sub("", path.read_text(encoding="utf-8"))
    quoted = [piece for quote in re.findall(r'"([^"]+)"', prose) for piece in quote.split("[...]")]
    assert [piece for piece in quoted if letters(piece) not in paper] == []
