"""The article as a PDF."""

import pytest
from typer.testing import CliRunner

from cca_lab import files
from cca_lab.cli import app, doctor
from cca_lab.site import article


def invoke(*arguments: str):
    return CliRunner().invoke(app, ["article", *arguments])


def test_the_page_loads_nothing_and_shows_formulas(tmp_path):
    source = tmp_path / "small.md"
    source.write_text("# On $x$\n\nLet $x_i \\ge 1$.\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n", encoding="utf-8")
    text = article.page(source)
    assert "<math" in text and "<td>2</td>" in text and "<script" not in text and "src=" not in text


def test_what_is_no_article_is_refused(tmp_path):
    (tmp_path / "untitled.md").write_text("no title", encoding="utf-8")
    for name, words in (("missing.md", "is not a file"), ("untitled.md", "has no title")):
        refused = invoke("--source", str(tmp_path / name), "--out", str(tmp_path / "a.pdf"))
        assert refused.exit_code == 2 and words in refused.output
    assert not (tmp_path / "a.pdf").exists()


def test_without_a_browser_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "chromium", lambda: None)
    refused = invoke("--out", str(tmp_path / "a.pdf"))
    assert refused.exit_code == 2 and "no Chromium" in refused.output and not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(doctor.chromium() is None, reason="no Chromium on this machine: apt install chromium")
def test_the_article_is_printed(tmp_path):
    out = article.write_pdf(files.repository() / "docs" / "article.md", tmp_path / "a.pdf", doctor.chromium())
    assert out.read_bytes().startswith(b"%PDF-") and out.stat().st_size > 20_000
