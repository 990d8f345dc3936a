"""The view in a real browser, as a page without a program: clicks, keys, themes, widths."""

import pytest
import torch

from tests.views.explorer.browser import MARKS, patient_expect
from tests.views.explorer.tensors import explore_tensors

expect = patient_expect()
pytestmark = MARKS

LENGTH = 30
CASES = {"cca": {"group": 4, "window": 5}, "lococo": {"slots": 8, "segment": 3}}


def explorer(attention="cca", heads=2, **options):
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, heads, LENGTH, 6, generator=generator)
    words = [f" w{t}" if t % 7 else "\n    " for t in range(LENGTH)]
    return explore_tensors(q, k, words=words, attention=attention, **(options or CASES[attention]))


@pytest.fixture
def opened(browser, tmp_path):
    """Yield what opens the page of an explorer; errors of its scripts fail the test."""
    pages = []

    def open_page(shown, *, width=1100, scheme="light"):
        shown.save(tmp_path / "page.html")
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        pages.append(page)
        page.mistakes = []
        page.on("pageerror", lambda error: page.mistakes.append(str(error)))
        page.on("console", lambda message: message.type == "error"
                and page.mistakes.append(message.text))
        page.goto((tmp_path / "page.html").as_uri())
        return page

    yield open_page
    mistakes = [mistake for page in pages for mistake in page.mistakes]
    for page in pages:
        page.close()
    assert not mistakes


def lit(page):
    return page.eval_on_selector_all(".ex-column.seen",
                                     "all => all.map(one => Number(one.dataset.column))")


def query(page):
    return page.eval_on_selector_all(".ex-word[aria-selected=true]",
                                     "all => all.map(one => Number(one.dataset.token))")


def check_every_row(page, shown):
    """Raise AssertionError unless what is lit and which words are unread is what queries see."""
    for token in (LENGTH - 1, 17, 0):
        page.click(f"[data-token='{token}']")
        row = shown.reading.row(0, token)
        assert query(page) == [token] and sorted(lit(page)) == row.seen.tolist()
        read = {t for column in row.seen for t in shown.reading.columns(0)[column].tokens.tolist()}
        unread = page.eval_on_selector_all(".ex-word.unread",
                                           "all => all.map(one => Number(one.dataset.token))")
        assert set(unread) == set(range(token + 1)) - read
        assert page.locator(".ex-word.future").count() == LENGTH - 1 - token
        assert f"token {token}, sees" in page.inner_text(".ex-readout")
        assert page.inner_text(".ex-fact:nth-child(5) strong") == str(len(row.seen))


@pytest.mark.parametrize("attention", CASES)
def test_the_lit_columns_are_those_that_the_query_sees(opened, attention):
    shown = explorer(attention)
    page = opened(shown)
    check_every_row(page, shown)


def test_keys_move_the_query(opened):
    page = opened(explorer())
    page.focus(".ex-words")
    for key, wanted in (("ArrowLeft", 28), ("ArrowLeft", 27), ("ArrowRight", 28), ("Home", 0),
                        ("ArrowLeft", 0), ("ArrowRight", 1), ("End", 29)):
        page.keyboard.press(key)
        assert query(page) == [wanted]
    page.keyboard.press("ArrowUp")
    above = query(page)[0]
    boxes = page.eval_on_selector_all(".ex-word",
                                      "all => all.map(one => one.getBoundingClientRect().top)")
    assert boxes[above] < boxes[29]
    active = page.get_attribute(".ex-words", "aria-activedescendant")
    assert active == page.get_attribute(f"[data-token='{above}']", "id")
    page.keyboard.press("ArrowDown")
    assert boxes[query(page)[0]] == boxes[29]


def test_a_column_and_a_word_say_what_they_are(opened):
    shown = explorer()
    page, row = opened(shown), shown.reading.row(0, LENGTH - 1)
    page.hover("[data-column='2'] .ex-frame", force=True)
    text = page.inner_text(".ex-readout")
    assert text.startswith(f"Core, weight {100 * row.weights[2]:.1f} %") and "4 tokens" in text
    marked = page.eval_on_selector_all(
        ".ex-word", "all => all.filter(one => one.style.boxShadow).map(one => one.dataset.token)")
    assert marked == ["8", "9", "10", "11"]
    page.hover("[data-token='9']")
    assert f"weight {100 * row.effective[9]:.1f} %" in page.inner_text(".ex-readout")
    assert page.eval_on_selector_all(".ex-column.marked",
                                     "all => all.map(one => one.dataset.column)") == ["2"]
    page.focus(".ex-lanes")
    page.keyboard.press("ArrowRight")
    assert page.eval_on_selector_all(".ex-column.marked", "all => all.length") == 1


def test_shades_are_monotone_in_the_weights_and_follow_the_choice(opened):
    shown = explorer()
    page, row = opened(shown), shown.reading.row(0, LENGTH - 1)

    def light():
        colours = page.eval_on_selector_all(".ex-word",
                                            "all => all.map(one => one.style.backgroundColor)")
        return [sum(map(int, colour[4:-1].replace(",", " ").split())) for colour in colours]

    for mode, weights in (("effective", row.effective), ("full", row.full)):
        page.click(f"input[value={mode}] + span")
        shades = light()
        order = weights.argsort()
        assert all(shades[a] >= shades[b] for a, b in zip(order, order[1:], strict=False))
    page.click("input[value=difference] + span")
    most = abs(row.effective - row.full).argmax()
    assert light()[most] == min(light()) or row.effective[most] < row.full[most]


@pytest.mark.parametrize(("scheme", "width"), [("light", 400), ("dark", 1100)])
def test_themes_and_widths(opened, scheme, width):
    page = opened(explorer(), width=width, scheme=scheme)
    assert page.get_attribute(".ex", "data-theme") == scheme
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    faint = page.evaluate("""() => [
            ...document.querySelectorAll('.ex-word:not(.future)')].filter(word => {
        const light = colour => colour.match(/\\d+/g).map(x => x / 255).map(
            x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4).reduce(
            (sum, x, n) => sum + x * [.2126, .7152, .0722][n], 0);
        const style = getComputedStyle(word);
        const a = light(style.color), b = light(style.backgroundColor);
        return (Math.max(a, b) + .05) / (Math.min(a, b) + .05) < 4.5;
    }).length""")
    page.emulate_media(color_scheme="dark" if scheme == "light" else "light")
    page.wait_for_function("old => document.querySelector('.ex').dataset.theme !== old", arg=scheme)
    assert faint == 0


def test_the_slider_and_the_button_move_the_query(opened):
    page = opened(explorer())
    page.locator(".ex-player input").fill("27")
    assert query(page) == [27] and "token 27, sees" in page.inner_text(".ex-readout")
    page.get_by_role("button", name="Play").click()
    expect(page.locator(".ex-player input")).to_have_value(str(LENGTH - 1))
    expect(page.locator(".ex-player button")).to_have_text("Play")


def test_a_row_of_a_matrix_becomes_the_query(opened):
    page = opened(explorer())
    page.click(".ex-frame-of-matrix >> nth=0", position={"x": 5, "y": 5})
    assert query(page)[0] < 3
