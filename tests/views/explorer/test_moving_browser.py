"""The moving view in a real browser; without scripts, the strip of pictures."""

import pytest

from cca_lab import CCA
from cca_lab.views.explorer.moving import moving
from tests.views.explorer.browser import MARKS, patient_expect

expect = patient_expect()
pytestmark = MARKS
SHOWN = moving(CCA(group=2, window=2), 10)


@pytest.fixture
def page_of(browser, tmp_path):
    """Return what opens the view's page, with or without scripts; an error of a script fails."""
    contexts, mistakes = [], []
    (tmp_path / "page.html").write_text(f"<!doctype html><meta charset=utf-8>{SHOWN.html('')}"
                                        f"{SHOWN.html('')}", encoding="utf-8")

    def open_page(*, scripts):
        contexts.append(browser.new_context(java_script_enabled=scripts))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: mistakes.append(str(error)))
        page.goto((tmp_path / "page.html").as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not mistakes


def kinds(page):
    return page.eval_on_selector_all(
        "[data-moving]:first-of-type rect[data-kind]", "all => all.map(one => one.dataset.kind)")


def test_the_slider_shows_each_row(page_of):
    page = page_of(scripts=True)
    assert page.locator("img").count() == 0 and page.locator("input").count() == 2
    for row, expected in enumerate(SHOWN.data["rows"]):
        page.locator("input").first.fill(str(row))
        expect(page.locator("p[aria-live]").first).to_have_text(expected["text"])
        expect(page.locator("svg").first.locator("rect[data-column]")).to_have_count(
            len(expected["columns"]))
        assert kinds(page) == [kind or "future" for kind in expected["tokens"]]


def test_the_button_plays_and_stops(page_of):
    page = page_of(scripts=True)
    page.locator("button").first.click()
    page.wait_for_function("document.querySelector('input').value === '2'")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("button").first).to_have_text("Play")
    at = page.locator("input").first.input_value()
    page.wait_for_timeout(1000)
    assert page.locator("input").first.input_value() == at


def test_without_scripts_the_strip_stays(page_of):
    page = page_of(scripts=False)
    assert page.locator("img[alt*='CCA-Attention']").count() == 2
    assert page.locator("input").count() == 0
