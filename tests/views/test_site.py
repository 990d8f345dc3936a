"""The site: sound links, nothing from a network, a page for all that is documented."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_output

import cca_lab
from cca_lab import files
from cca_lab.cli import lab
from cca_lab.views.site import Site

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
def site(tmp_path_factory) -> Iterator[Site]:
    """The site of the clone; a warning of Sphinx is a failure."""
    out = tmp_path_factory.mktemp("site").resolve() / "out"
    with Site(files.repository(), out) as made:
        assert made.build() == ""
        yield made


def test_links_lead_somewhere_and_nothing_comes_from_elsewhere(site):
    assert problems(site.out) == []
    assert sum(path.stat().st_size for path in site.out.rglob("*") if path.is_file()) < MOST_BYTES


def test_every_notebook_and_document_has_its_page(site):
    root = files.repository()
    for path in (*root.glob("notebooks/*.ipynb"), *root.glob("lab/release/*/*.ipynb"),
                 *root.glob("docs/*/*.md")):
        assert (site.out / path.relative_to(root).with_suffix(".html")).is_file(), path


def test_solutions_are_folded_and_figures_described(site):
    pages = [path.read_text(encoding="utf-8") for path in (site.out / "notebooks").glob("*.html")]
    for page in pages:
        assert "BEGIN SOLUTION" not in re.sub(r"<details.*?</details>", "", page, flags=re.DOTALL)
        assert not re.search(r'<img alt="[^"]*[0-9a-f]{40}', page)
    assert sum(page.count("BEGIN SOLUTION") for page in pages) > 40


def test_every_public_name_is_in_the_reference(site):
    page = (site.out / "docs" / "use" / "api.html").read_text(encoding="utf-8")
    assert [name for name in cca_lab.__all__ if f'id="cca_lab.{name}"' not in page] == []


def test_a_notebook_that_ran_replaces_its_page_and_no_other(site):
    """The last test: the other pages and the search stay those of the whole site."""
    name, other = (path.name for path in sorted((site.root / "notebooks").glob("*"))[3:5])
    before = (site.out / "notebooks" / other).with_suffix(".html").read_bytes()
    notebook = nbformat.read(site.root / "notebooks" / name, as_version=4)
    notebook.cells.append(new_code_cell("zyzzyva = 1",
                                        outputs=[new_output("stream", text="fresh output\n")]))
    page = site.show(name, notebook).read_text(encoding="utf-8")
    assert "fresh output" in page and page.count("<math") > 5 and "[ok]" in page
    assert (site.out / "notebooks" / other).with_suffix(".html").read_bytes() == before
    index = (site.out / "searchindex.js").read_text(encoding="utf-8")
    for word in ("zyzzyva", "lse", "streamingllm"):  # Sphinx's index has the stems of words
        assert f'"{word}":' in index or f"{word}:" in index
    assert problems(site.out) == []


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ValueError, match="choose another"):
        Site(files.repository(), tmp_path)


def test_the_command_fails_where_sphinx_warns(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(Site, "build", lambda self: "WARNING: no such page\n")
    assert lab.site(out=tmp_path / "site", models=False) == 1
    assert "no such page" in capsys.readouterr().err
