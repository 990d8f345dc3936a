"""The file: its size, its policy, the command; and at work in a browser, without a network."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cca_lab.cli import app, doctor
from cca_lab.views.page import write
from cca_lab.views.page.write import MOST_BYTES, page_html

CHROMIUM = doctor.chromium()
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
         "--disable-sync", "--disable-component-update"]
# milliseconds: a machine that is busy with other things is no mistake of the page
PATIENCE = 60_000


@pytest.fixture(scope="module")
def page(data, tmp_path_factory) -> Path:
    """The page with the shipped models."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(page_html(data), encoding="utf-8")
    return path


def test_the_page_is_small_and_names_no_other_place(page):
    text = page.read_text(encoding="utf-8")
    print(f"{page.stat().st_size / 1e6:.2f} MB")
    assert 1e6 < page.stat().st_size < MOST_BYTES
    assert not re.findall(r"\[\[[A-Z]+\]\]", text), "a place that was not filled"
    assert not re.findall(r"\bsrc=|@import|url\((?!#)|\bfetch\(|XMLHttpRequest|WebSocket", text)
    names = {"http://www.w3.org/2000/svg"}  # of a language, not of a place
    assert set(re.findall(r"https?://[\w./]+", text)) <= names
    assert "default-src 'none'" in text and "connect-src" not in text


def test_the_command_writes_what_it_says(monkeypatch, tmp_path, data):
    monkeypatch.setattr(write, "page_data", lambda *arguments: data | {"asked": arguments})
    out = tmp_path / "folder" / "one.html"
    done = CliRunner().invoke(app, ["page", "--out", str(out), "--attention", "cca", "--group",
                                    "4"])
    assert done.exit_code == 0, done.output
    assert f"written: {out}, {out.stat().st_size / 1e6:.1f} MB" in done.output
    assert "gpt2-mini: weights exact" in done.output
    assert [path.name for path in out.parent.iterdir()] == ["one.html"]
    monkeypatch.setattr(write, "MOST_BYTES", 1000)
    done = CliRunner().invoke(app, ["page", "--out", str(tmp_path / "two.html")])
    assert done.exit_code == 2 and "error: model: the page would have 6." in done.output
    assert not (tmp_path / "two.html").exists()


@pytest.mark.parametrize("arguments, words", [
    (["--attention", "h2o"], "attention: got 'h2o', wanted one of full, cca"),
    (["--attention", "nothing"], "attention: got 'nothing', wanted one of"),
    (["--group", "8"], "group: given without --attention"),
    (["--attention", "cca", "--group", "100"], "group: got 100, wanted 1 to 64"),
    (["--model", "data/models/opt-mini"], "model: data/models/opt-mini is a 'opt', wanted a GPT-2"),
    (["--model", "no/such"], "path_or_name: could not load 'no/such'"),
    (["--out", "data/models/gpt2-mini/page.html"],
     "out: data/models/gpt2-mini/page.html is in the folder of")])
def test_the_command_refuses_at_the_door(arguments, words, tmp_path, monkeypatch):
    out = [] if "--out" in arguments else ["--out", str(tmp_path / "page.html")]
    done = CliRunner().invoke(app, ["page", *out, *arguments])
    assert done.exit_code == 2 and f"error: {words}" in done.output, done.output
    assert "Traceback" not in done.output and not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def opened(page):
    """The page in a browser offline, what it asked a network for, and what went wrong in it."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: apt install chromium")
    api = pytest.importorskip("playwright.sync_api",
                              reason="playwright is not installed: pip install playwright")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        context = browser.new_context(offline=True, viewport={"width": 1366, "height": 900})
        tab, asked, problems = context.new_page(), [], []
        tab.on("request", lambda request: asked.append(request.url))
        tab.on("console", lambda message: problems.append(message.text))
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.goto(page.as_uri())
        yield tab, api.expect, asked, problems
        browser.close()


def test_a_drag_changes_the_answer_and_nothing_is_loaded(opened, page):
    tab, expect, asked, problems = opened
    verdict = tab.locator("#verdict")
    tab.get_by_role("button", name="Swapped, not trained for it").click()
    tab.get_by_label("Document asked for").fill("45")       # 17 documents before the question
    expect(tab.locator("#question")).to_contain_text("document 45 of 61", timeout=PATIENCE)
    expect(verdict).to_contain_text("✗ Wrong", timeout=PATIENCE)
    slider = tab.get_by_label("s, nearest tokens that stay raw")
    box = slider.bounding_box()
    assert slider.input_value() == "64" and box is not None
    tab.mouse.move(box["x"] + box["width"] * 64 / 256, box["y"] + box["height"] / 2)
    tab.mouse.down()
    for part in range(5, 11):                                # the window grows over the document
        tab.mouse.move(box["x"] + box["width"] * part / 10, box["y"] + box["height"] / 2)
    tab.mouse.up()
    expect(verdict).to_contain_text("✓ Right", timeout=PATIENCE)
    assert int(slider.input_value()) > 200
    print(tab.locator("#cost").inner_text())
    assert len(asked) == 2 and asked[0] == page.as_uri() and asked[1].startswith("blob:")
    assert problems == []


def test_the_model_that_was_trained_answers_at_every_offset(opened):
    tab, expect, _, _ = opened
    count, first = tab.locator("#every-count"), tab.locator("#strip button").first
    right = {}
    for name in ("Full attention", "Swapped, not trained for it", "Swapped and trained"):
        tab.get_by_role("button", name=name, exact=True).click()
        expect(count).to_have_text(re.compile(r"^\d+ of 61 right$"), timeout=PATIENCE)
        expect(first).to_have_attribute("aria-label",
                                        re.compile(r"^0 tokens before: \d+ of 16 right$"),
                                        timeout=PATIENCE)
        right[name] = int(count.inner_text().split()[0])
    full, swapped, trained = right.values()
    assert full >= 59 and trained >= 45 and swapped <= 20
    tab.get_by_label("Tokens before them").fill("3")
    expect(count).to_have_text(re.compile(r"^\d+ of 61 right$"), timeout=PATIENCE)
    assert int(count.inner_text().split()[0]) >= 40


def test_own_text_is_read_and_continued(opened):
    tab, expect, _, problems = opened
    tab.get_by_label("Your own text").check()
    box = tab.get_by_label("The model goes on after it")
    box.fill("In Marta Keller.\nIn Omar Lindt.\nIn Marta")
    expect(tab.locator("#verdict")).to_have_text(re.compile("“Keller”"), timeout=PATIENCE)
    tab.get_by_role("button", name="Write 24 tokens on").click()
    expect(tab.locator("#question")).to_have_text(re.compile("^It writes: +Keller"),
                                                  timeout=PATIENCE)
    box.fill("")
    expect(tab.locator("#verdict")).to_have_text("Write something first.")
    box.fill("a " * 600)
    expect(tab.locator("#question")).to_contain_text("the model reads 512", timeout=PATIENCE)
    tab.get_by_label("Documents and a question").check()
    expect(tab.locator("#question")).to_contain_text("of 61", timeout=PATIENCE)
    assert problems == []


def test_the_view_shows_heads_and_rows(opened):
    tab, expect, _, problems = opened
    look = tab.locator("#look")
    tab.get_by_role("button", name="Full attention").click()
    expect(look.locator(".ex-title")).to_contain_text("Full causal attention", timeout=PATIENCE)
    tab.get_by_role("button", name="Swapped and trained", exact=True).click()
    expect(look.locator(".ex-title")).to_contain_text("CCA-Attention group 8, window 64",
                                                      timeout=PATIENCE)
    expect(look.locator(".ex-title")).to_contain_text("gpt2-mini-cca, layer 1, head 0")
    expect(look.locator(".ex-readout")).to_contain_text("cores and")
    look.locator(".ex-word").nth(70).click()
    expect(look.locator(".ex-readout")).to_contain_text("token 70", timeout=PATIENCE)
    head = look.get_by_role("button", name=re.compile("^layer 2, head 1"))
    expect(head).to_be_visible(timeout=PATIENCE)
    head.click()
    expect(look.locator(".ex-title")).to_contain_text("layer 2, head 1", timeout=PATIENCE)
    expect(look.locator(".ex-readout")).to_contain_text("token 70")
    assert problems == []


@pytest.fixture
def other_tab(opened, page):
    """A tab for what would disturb the other tests: they run in any order."""
    tab = opened[0].context.new_page()
    tab.goto(page.as_uri())
    yield tab
    tab.close()


def test_the_policy_forbids_every_request(other_tab):
    tab = other_tab
    assert tab.evaluate(
        "() => fetch('https://example.org/').then(() => 'loaded', () => 'refused')") == "refused"
    blocked = tab.evaluate("""() => new Promise(resolve => {
        document.addEventListener("securitypolicyviolation",
            event => resolve(event.violatedDirective));
        const image = Object.assign(new Image(), { src: "https://example.org/x.png" });
        document.body.append(image);
    })""")
    assert blocked == "img-src", "by the policy, not for want of a network"


def test_it_fits_a_phone(other_tab):
    other_tab.set_viewport_size({"width": 360, "height": 740})
    assert other_tab.evaluate("() => document.documentElement.scrollWidth") <= 360


@pytest.fixture
def without_threads(opened, page):
    """The page in a browser that starts no worker."""
    tab = opened[0].context.new_page()
    tab.add_init_script("delete window.Worker")
    tab.goto(page.as_uri())
    yield tab
    tab.close()


def test_it_answers_without_a_thread_of_its_own(without_threads, opened):
    expect = opened[1]
    expect(without_threads.locator("#verdict")).to_contain_text("✗ Wrong", timeout=PATIENCE)
    without_threads.get_by_role("button", name="Full attention").click()
    expect(without_threads.locator("#verdict")).to_contain_text("✓ Right", timeout=PATIENCE)


def test_a_click_on_the_text_before_does_no_harm(opened):
    """A word of a long text is clicked while a short one is read, and the other way round."""
    tab, expect, _, problems = opened
    look, before, own = tab.locator("#look"), len(problems), tab.get_by_label("Your own text")
    own.check()
    tab.get_by_label("The model goes on after it").fill("In Marta Keller.")
    for wait in (0, 30, 100, 200, 270, 300, 350, 450):
        for text in (tab.get_by_label("Documents and a question"), own):
            text.check()
            tab.wait_for_timeout(wait)
            tab.evaluate("[...document.querySelectorAll('#look .ex-word')].at(-1)?.click()")
            tab.wait_for_timeout(600 - wait)
    tab.get_by_label("Documents and a question").check()
    expect(look.locator(".ex-word").nth(100)).to_be_visible(timeout=PATIENCE)
    assert problems[before:] == []
