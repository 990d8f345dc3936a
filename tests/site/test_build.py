"""What the site is made of, on a small clone: addresses, links, anchors, pictures, the files that it may remove."""

import re
import shutil
from pathlib import Path

import pytest

from cca_lab.site import hosted, outline
from cca_lab.site.build import MANIFEST, Extra, build
from cca_lab.site.links import problems
from cca_lab.site.plan import entries
from tests.site import small_clone


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    return small_clone.write(tmp_path_factory.mktemp("clone"))


@pytest.fixture(scope="module")
def built(clone) -> Path:
    out = clone / "site"
    build(clone, out, extras=[Extra("model.html", "A model", "", lambda path: path.write_text("the model"))])
    return out


@pytest.fixture
def copy(built, tmp_path) -> Path:
    """The site once more, to break it."""
    return shutil.copytree(built, tmp_path / "site")


def read(folder: Path, name: str) -> str:
    return (folder / name).read_text(encoding="utf-8")


def links(text: str) -> list[str]:
    """The addresses of the links in the text of a page, without navigation and footer."""
    return re.findall(r'href="([^"]*)"', text.split("<main")[1].split("<footer")[0])


def test_the_order_of_the_navigation(clone):
    names = [entry.address for entry in entries(clone)]
    assert names == ["index.html", "00_first.html", "01_second.html", "ledger.html", "errata.html", "course.html",
                     "a2_two.html", "a10_ten.html", "own_page.html"]


def test_the_built_site_is_sound(built):
    assert problems(built) == []


MUTANTS = {
    "a page that is not there": ('<a href="nowhere.html">x</a>', "nowhere.html, which is not there"),
    "an anchor that is not there": ('<a href="ledger.html#T1.eq20">x</a>', "no such anchor"),
    "an anchor of the same page": ('<a href="#nothing">x</a>', "no such anchor"),
    "a file outside": ('<a href="../README.md">x</a>', "which is not there"),
    "an address of the server": ('<a href="/index.html">x</a>', "no relative address"),
    "an id twice": ('<p id="One">x</p>', "stands twice"),
    "a script from elsewhere": ('<script src="https://example.org/a.js"></script>', "loads https://example.org/a.js"),
    "a font from elsewhere": ('<p style="background: url(https://example.org/a)">x</p>', "loads https://example.org/a"),
    "a picture that is not there": ('<img src="figures/none.png" alt="">', "loads figures/none.png"),
    "a set of pictures": ('<img srcset="//example.org/a.png 2x" alt="">', "loads //example.org/a.png"),
}


@pytest.mark.parametrize("broken, words", MUTANTS.values(), ids=MUTANTS)
def test_what_breaks_a_site_is_found(copy, broken, words):
    page = copy / "index.html"
    page.write_text(read(copy, "index.html").replace("<footer>", f"{broken}<footer>"), encoding="utf-8")
    found = problems(copy)
    assert len(found) == 1 and words in found[0] and found[0].startswith("index.html: "), found


@pytest.mark.parametrize("rule", ["@import 'https://example.org/a.css';", "p { background: url(//example.org/a.png) }"])
def test_what_a_style_sheet_loads_is_found(copy, rule):
    (copy / "site.css").write_text(f"{rule}\n{read(copy, 'site.css')}", encoding="utf-8")
    assert len(problems(copy)) == 1


def test_links_of_the_clone_lead_to_pages_and_files(built):
    # The fragment is GitHub's; the folder tests/ is not in the site, and so no link.
    assert links(read(built, "index.html")) == ["00_first.html#A-part", "index.html", "files/lab/adapters.py",
                                                "https://example.org/x"]
    assert ">tests</a>" not in read(built, "index.html") and "tests" in read(built, "index.html")
    assert read(built, "files/lab/adapters.py") == small_clone.DOCUMENTS["lab/adapters.py"]
    assert links(read(built, "a2_two.html"))[0] == "00_first.html"


def test_headings_of_one_name_have_two_anchors(built):
    assert re.findall(r'<h2 id="([^"]*)"', read(built, "index.html")) == ["One", "One-2"]


def test_each_claim_has_its_anchor_and_pages_lead_there(built):
    ledger = read(built, "ledger.html")
    for claim in small_clone.CLAIMS:
        assert f'<h3 id="{claim["id"]}"' in ledger
    assert "a &lt; b, as P1 says" in ledger
    assert links(read(built, "errata.html")) == ["ledger.html#T1.eq19"] * 2
    assert "00_first.html" in links(ledger), "the notebook that names a claim is listed with it"


def test_previous_and_next_stay_in_their_row(built):
    assert links(read(built, "01_second.html"))[-1] == "00_first.html"
    assert links(read(built, "a2_two.html"))[-1] == "a10_ten.html"
    assert "Previous:" not in read(built, "a2_two.html") and "Next:" not in read(built, "errata.html")


def test_pictures_are_files_with_a_size_and_a_text(built):
    first = read(built, "00_first.html")
    tags = re.findall(r"<img[^>]*>", first)
    assert len(tags) == 2 and all('width="30" height="20"' in tag and 'loading="lazy"' in tag for tag in tags)
    assert 'alt="two &lt; three"' in tags[0] and re.search(r'alt="[^"]+"', tags[1])
    assert (built / "figures" / "00_first-1.png").read_bytes() == small_clone.picture(30, 20)
    assert "data:image/png" not in first


def test_a_notebook_says_how_to_open_it(built):
    assert "jupyter lab notebooks/00_first.ipynb" in read(built, "00_first.html")
    assert "mybinder" not in read(built, "00_first.html")


def test_a_public_clone_gives_links_to_open_a_notebook(clone, tmp_path):
    build(clone, tmp_path / "site", repository="own/lab", branch="a/b")
    page = read(tmp_path / "site", "00_first.html")
    assert "https://mybinder.org/v2/gh/own/lab/a%2Fb?urlpath=lab%2Ftree%2Fnotebooks%2F00_first.ipynb" in page
    assert "https://colab.research.google.com/github/own/lab/blob/a/b/notebooks/00_first.ipynb" in page
    assert hosted.colab_cell("own/lab").replace("&", "&amp;") in page
    assert "model.html" not in page
    with pytest.raises(ValueError, match="OWNER/NAME"):
        build(clone, tmp_path / "site", repository="https://github.com/own/lab")


def test_the_model_is_linked_where_it_is_written(built):
    assert 'href="model.html"' in read(built, "index.html") and read(built, "model.html") == "the model"


def test_a_second_build_removes_what_the_first_alone_had(copy, clone):
    (copy / "my_notes.txt").write_text("mine")
    build(clone, copy)
    assert not (copy / "model.html").exists() and (copy / "my_notes.txt").exists()
    assert "model.html" not in read(copy, MANIFEST)


def test_a_build_that_was_stopped_can_be_repeated(clone, tmp_path):
    def stopped(path: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(clone, tmp_path, extras=[Extra("model.html", "A model", "", stopped)])
    build(clone, tmp_path)
    assert problems(tmp_path) == []


def test_nothing_outside_of_the_folder_is_removed(copy, clone):
    other = copy.parent / "other.html"
    other.write_text("mine")
    (copy / MANIFEST).write_text(read(copy, MANIFEST) + "../other.html\n")
    build(clone, copy)
    assert other.exists()


def test_a_folder_with_other_files_is_refused(clone, tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ValueError, match="choose another"):
        build(clone, tmp_path)


def test_two_files_of_one_address_are_refused(clone, tmp_path):
    root = shutil.copytree(clone, tmp_path / "clone")
    (root / "docs" / "01_second.md").write_text("# x")
    with pytest.raises(ValueError, match=r"both be 01_second.html"):
        build(root, tmp_path / "site")


def test_sections_hold_what_was_written_and_not_what_was_printed(built):
    first = outline.sections(read(built, "00_first.html").split('tabindex="-1">')[1])
    assert [(one.level, one.anchor) for one in first[1:]] == [(1, "00-First-xi"), (2, "A-part")]
    assert "Core tokens, see second." in first[2].text and "verify('T1.eq19')" in first[2].text
    assert "printed_only" not in first[2].text and "In [" not in first[2].text


def test_long_contents_keep_the_upper_level():
    found = [outline.Section(1, "t"), *(outline.Section(2 + place % 2, str(place)) for place in range(10))]
    assert len(outline.contents(found, most=10)) == 10
    assert {one.level for one in outline.contents(found, most=9)} == {2}
