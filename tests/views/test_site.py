"""The site: sound links, nothing from a network, a page for all that is documented."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from typer.testing import CliRunner

import cca_lab
from cca_lab import files
from cca_lab.cli import app
from cca_lab.views import site as views_site

LOADING = {"audio": "src", "embed": "src", "iframe": "src", "image": "href", "img": "src",
           "input": "src", "link": "href", "object": "data", "script": "src", "source": "src",
           "track": "src", "use": "href", "video": "src"}
NOT_LOADED = {"index", "search", "next", "prev", "canonical"}  # relations of a link to other pages
IN_STYLE = re.compile(r"url\((?!#)([^)]*)\)|@import\s+([^;\s]+)")
MOST_BYTES = 40_000_000


class Page(HTMLParser):
    """What a page has and asks for: ids, links, and addresses that it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids, self.links, self.loads = set[str](), list[str](), list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids.add(given.get("id", ""))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if LOADING.get(tag) in given and not NOT_LOADED & set(given.get("rel", "").split()):
            self.loads.append(given[LOADING[tag]])
        self.loads += [one.split()[0] for one in given.get("srcset", "").split(",") if one]
        self.loads += in_style(given.get("style", ""))


def in_style(css: str) -> list[str]:
    """Return the addresses that a style sheet loads."""
    return [(one or other).strip("\"'") for one, other in IN_STYLE.findall(css)]


def problems(folder: Path) -> list[str]:
    """Return in words links of a site that lead nowhere, and what comes from elsewhere."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")
             if "_static" not in path.parts}  # templates of the theme
    wrong = []
    for path, page in pages.items():
        name = path.relative_to(folder)
        wrong += [f"{name}: {why}" for address in page.links
                  for why in broken(address, path, pages)]
        wrong += [f"{name}: {why}" for address in page.loads for why in outside(address, path)]
    for path in folder.rglob("*.css"):
        wrong += [f"{path.name}: {why}" for address in in_style(path.read_text(encoding="utf-8"))
                  for why in outside(address, path)]
    return wrong


def broken(address: str, path: Path, pages: dict[Path, Page]) -> Iterator[str]:
    parts = urlsplit(address)
    if parts.scheme in ("http", "https", "mailto"):
        return
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if parts.scheme or parts.netloc or address.startswith("/") or not target.is_file():
        yield f"links to {address}, which is not there"
    elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
        yield f"links to {address}, but there is no such anchor"


def outside(address: str, path: Path) -> Iterator[str]:
    parts = urlsplit(address)
    if parts.scheme != "data" and (
            parts.scheme or parts.netloc or not (path.parent / unquote(parts.path)).is_file()):
        yield f"loads {address}, which is not in the site"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("site").resolve() / "out"
    done = CliRunner().invoke(app, ["site", "--no-models", "--out", str(out)])
    assert done.exit_code == 0, done.output  # a warning of Sphinx is a failure
    return out


def test_links_lead_somewhere_and_nothing_comes_from_elsewhere(site):
    assert problems(site) == []
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < MOST_BYTES


MUTANTS = {
    "a page that is not there": ('<a href="nowhere.html">x</a>', "nowhere.html, which is not"),
    "an anchor that is not there": ('<a href="genindex.html#no">x</a>', "no such anchor"),
    "an anchor of the same page": ('<a href="#nothing">x</a>', "no such anchor"),
    "an address of the server": ('<a href="/index.html">x</a>', "/index.html, which is not"),
    "a script from elsewhere": ('<script src="https://example.org/a.js"></script>', "loads https"),
    "a font": ('<p style="background: url(https://example.org/a)">x</p>', "loads https"),
    "a picture that is not there": ('<img src="none.png" alt="">', "loads none.png"),
    "a set of pictures": ('<img srcset="//example.org/a.png 2x" alt="">', "loads //example.org"),
}


@pytest.mark.parametrize("mutant, words", MUTANTS.values(), ids=MUTANTS)
def test_what_breaks_a_site_is_seen(tmp_path, mutant, words):
    (tmp_path / "genindex.html").write_text("<p id='yes'>")
    (tmp_path / "index.html").write_text(f'<a href="genindex.html#yes">x</a>{mutant}')
    (tmp_path / "a.css").write_text("a { background: url(data:x) }")
    seen = problems(tmp_path)
    assert len(seen) == 1 and words in seen[0] and seen[0].startswith("index.html: "), seen
    (tmp_path / "a.css").write_text("@import 'https://example.org/a.css';")
    assert len(problems(tmp_path)) == 2


def test_every_notebook_and_document_has_its_page(site):
    root = files.repository()
    for path in (*root.glob("notebooks/*.ipynb"), *root.glob("lab/release/*/*.ipynb"),
                 *root.glob("docs/*/*.md")):
        assert (site / path.relative_to(root).with_suffix(".html")).is_file(), path


def test_formulas_are_mathml_and_outputs_are_shown(site):
    page = (site / "notebooks" / "03_core_tokens_and_the_local_window.html").read_text()
    assert page.count("<math") > 5 and "[ok]" in page and "_images/" in page


def test_every_public_name_is_in_the_reference(site):
    page = (site / "docs" / "use" / "api.html").read_text(encoding="utf-8")
    assert [name for name in cca_lab.__all__ if f'id="cca_lab.{name}"' not in page] == []


def test_the_search_knows_words_of_the_notebooks(site):
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    for word in ("lse", "streamingllm"):  # Sphinx's index has the stems of words
        assert f'"{word}":' in index or f"{word}:" in index


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ValueError, match="choose another"):
        views_site.build(files.repository(), tmp_path)


def test_the_command_fails_where_sphinx_warns(monkeypatch, tmp_path):
    monkeypatch.setattr(views_site, "build", lambda *given, **options: "WARNING: no such page\n")
    done = CliRunner().invoke(app, ["site", "--no-models", "--out", str(tmp_path)])
    assert done.exit_code == 1 and "no such page" in done.output
