"""The site of this clone: sound, offline, with all claims, readable in both colours and on a phone."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cca_lab import files
from cca_lab.cli import app, doctor
from cca_lab.site import build, links, search
from cca_lab.site.links import problems
from cca_lab.walkthrough.pages import stylesheet
from tests.site.search_box import SOURCE, in_node, needs_node

MOST_BYTES = 20_000_000
CHROMIUM = doctor.chromium()
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt install chromium")
PHONE, DESK = {"width": 360, "height": 740}, {"width": 1300, "height": 900}
WIDTH = "document.documentElement.scrollWidth"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("site") / "out"
    done = CliRunner().invoke(app, ["site", "--no-models", "--out", str(out)])
    assert done.exit_code == 0, done.output
    return out


@pytest.fixture(scope="module")
def browser() -> Iterator:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield running
        running.close()


def address(folder: Path, name: str) -> str:
    page, _, anchor = name.partition("#")
    return (folder / page).as_uri() + (f"#{anchor}" if anchor else "")


def test_links_lead_somewhere_and_nothing_comes_from_elsewhere(site):
    assert problems(site) == []


def test_it_is_small(site):
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < MOST_BYTES
    assert (site / "search-index.js").stat().st_size < search.MOST_BYTES


def test_every_notebook_and_document_has_its_page(site):
    for path in (*files.notebooks_folder().glob("*.ipynb"), *(files.course_folder() / "release").glob("*/*.ipynb"),
                 *(files.repository() / "docs").glob("*.md")):
        assert (site / f"{path.stem.replace('claims', 'ledger')}.html").is_file()


def test_the_command_fails_where_a_link_is_broken(monkeypatch, tmp_path):
    monkeypatch.setattr(build, "build", lambda *arguments, **options: build.Built(1, 1, 1))
    monkeypatch.setattr(links, "problems", lambda folder: ["index.html: links to x, which is not there"])
    done = CliRunner().invoke(app, ["site", "--no-models", "--out", str(tmp_path)])
    assert done.exit_code == 1 and "which is not there" in done.output


def test_every_claim_has_its_anchor(site):
    ledger = (site / "ledger.html").read_text(encoding="utf-8")
    claims = json.loads((files.results_folder() / "claims.json").read_text(encoding="utf-8"))
    assert "T1.eq19" in {claim["id"] for claim in claims}
    assert [claim["id"] for claim in claims if f'<h3 id="{claim["id"]}">' not in ledger] == []


def test_every_picture_has_a_text(site):
    for page in site.glob("*.html"):
        for tag in re.findall(r"<img\b[^>]*>", page.read_text(encoding="utf-8")):
            assert re.search(r'\salt="[^"]+"', tag), f"{page.name}: {tag[:200]}"


@needs_node
def test_search_finds_the_right_page(site):
    index = (site / "search-index.js").read_text(encoding="utf-8")
    asked = {"online softmax": "01_attention_from_loops_to_tiles.html", "T1.eq19": "ledger.html#T1.eq19",
             "rotary positions": "05_core_tokens_and_the_local_window.html", "bubblewrap": "course.html"}
    found = in_node(SOURCE, f"{list(asked)}.map((one) => find(siteIndex, one, 5).map((place) => place.address))", index)
    for (question, wanted), places in zip(asked.items(), found, strict=True):
        assert any(place.startswith(wanted) for place in places), f"{question}: {places}"


@needs_browser
def test_no_page_is_wider_than_a_phone_or_asks_for_anything_else(site, browser):
    page = browser.new_page(viewport=PHONE)
    asked, errors, wide = set(), [], []
    page.on("request", lambda request: asked.add(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    for path in sorted(site.glob("*.html")):
        page.goto(path.as_uri(), wait_until="domcontentloaded")
        if page.evaluate(WIDTH) > PHONE["width"]:
            wide.append(path.name)
    assert not wide and not errors
    assert {url for url in asked if not url.startswith((site.as_uri(), "data:"))} == set()
    page.evaluate("document.querySelector('main').style.width = '400px'")
    assert page.evaluate(WIDTH) > PHONE["width"], "a page that is too wide would be seen"
    page.close()


@needs_browser
def test_the_list_of_pages_opens_on_a_phone(site, browser):
    page = browser.new_page(viewport=PHONE)
    page.goto(address(site, "00_start_here.html"))
    here = page.locator("#side [aria-current=page]")
    assert not here.is_visible()
    page.click("#menu")
    assert here.is_visible() and page.get_attribute("#menu", "aria-expanded") == "true"
    page.keyboard.press("Escape")
    assert not here.is_visible()
    page.close()


@needs_browser
def test_search_works_with_the_keyboard_alone(site, browser):
    page = browser.new_page(viewport=DESK)
    page.goto(address(site, "index.html"))
    page.keyboard.press("/")
    page.keyboard.type("T1.eq19")
    page.wait_for_selector("#found a")
    assert "T1.eq19" in page.inner_text("#found li:first-child")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(address(site, "ledger.html#T1.eq19"))
    page.keyboard.press("/")
    page.keyboard.type("qwertz")
    page.wait_for_function("document.querySelector('#found [role=status]').textContent === 'Nothing found'")
    page.keyboard.press("Escape")
    assert page.locator("#found").is_hidden()
    page.close()


@needs_browser
@pytest.mark.parametrize("system", ["light", "dark"])
def test_colours_follow_the_system_until_the_reader_chooses(site, browser, system):
    context = browser.new_context(viewport=DESK, color_scheme=system)
    page = context.new_page()
    paper = "getComputedStyle(document.body).backgroundColor"
    colours = {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}
    other = {"light": "dark", "dark": "light"}[system]
    page.goto(address(site, "00_start_here.html"))
    assert page.evaluate(paper) == colours[system]
    page.click("#colours")
    assert page.evaluate(paper) == colours[other]
    page.goto(address(site, "01_attention_from_loops_to_tiles.html"))
    assert page.evaluate(paper) == colours[other], "the choice is kept for the next page"
    page.emulate_media(media="print", color_scheme="light")
    assert page.evaluate(paper) == colours["light"], "paper is white"
    context.close()


@needs_browser
def test_without_scripts_every_page_can_be_reached(site, browser):
    context = browser.new_context(viewport=PHONE, java_script_enabled=False)
    page = context.new_page()
    page.goto(address(site, "00_start_here.html"))
    assert page.locator("#side a[href='15_speed.html']").is_visible() and not page.locator("#query").is_visible()
    context.close()


def luminance(colour: str) -> float:
    """Relative luminance of a colour such as #1f2328 or #bbb, as WCAG 2 defines it."""
    digits = colour.lstrip("#")
    digits = "".join(2 * one for one in digits) if len(digits) == 3 else digits
    parts = [int(digits[at:at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def faint(style: str) -> list[str]:
    """List the colours of text that have too little contrast: those of the page, and those of code."""
    rules = {"light": (r":root \{([^}]*)\}", r"\.highlight"),
             "dark": (r':root\[data-scheme="dark"\] \{([^}]*)\}', r':root\[data-scheme="dark"\] \.highlight')}
    found = []
    for scheme, (variables, code) in rules.items():
        given = dict(re.findall(r"--(\w+): (#\w+)", re.search(variables, style)[1]))
        pairs = [(name, given[name], given[under]) for name in ("ink", "soft", "link", "good", "bad")
                 for under in ("paper", "box")] + [("ink on mark", given["ink"], given["mark"])]
        for token, rule in re.findall(rf"^{code} \.(\w+) \{{([^}}]*)\}}", style, re.MULTILINE):
            colours = dict(re.findall(r"(?<![\w-])(background-color|color): (#\w+)", rule))
            if "color" in colours and token != "w":  # w is white space
                pairs.append((f"code .{token}", colours["color"], colours.get("background-color", given["box"])))
        found += [f"{scheme}: {name} {one} on {other}" for name, one, other in pairs if contrast(one, other) < 4.5]
    return found


def test_text_has_contrast():
    assert contrast("#000", "#ffffff") == pytest.approx(21)
    assert faint(stylesheet()) == []
    mutant = stylesheet().replace("--soft: #59636e", "--soft: #8c959f").replace("--bad: #ff7b72", "--bad: #a03030")
    assert {one.split()[1] for one in faint(mutant)} == {"soft", "bad"}
