"""The articles on the papers run: every block of code, in order, with its assertions."""

import re

import pytest

from cca_lab.files import repository

ARTICLES = sorted(path for path in (repository() / "docs" / "claims").glob("*.md")
                  if "```{code-cell}" in path.read_text(encoding="utf-8"))
CELL = re.compile(r"^```\{code-cell\} python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", ARTICLES, ids=lambda path: path.stem)
def test_an_article_runs(path):
    text, names = path.read_text(encoding="utf-8"), {"__name__": "article"}
    cells = CELL.findall(text)
    assert len(cells) == text.count("```{code-cell}") and all("assert " in cell for cell in cells)
    for number, cell in enumerate(cells, start=1):
        exec(compile(cell, f"{path.name}, block {number}", "exec"), names)
