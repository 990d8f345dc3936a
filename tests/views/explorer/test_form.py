"""The widget in a browser, with Python behind it, but without Jupyter."""

import pytest

pytest.importorskip("anywidget", reason="anywidget is not installed")

from cca_lab.views.explorer import explore
from cca_lab.views.explorer.widget import SCRIPT
from cca_lab.views.scripts import VIEW_STYLE
from tests.views.explorer.browser import MARKS, patient_expect

expect = patient_expect()
pytestmark = MARKS
TEXT = "def add(a, b):\n    return a + b\n\n\ndef twice(a):\n    return add(a, a)\n"
TRAITS = ("reading", "row", "overview", "form", "answered")
# What anywidget gives to `render`, as far as the widget uses it; `answer` is the Python function
# below.
MODEL = """traits => {
    const listeners = new Map();
    window.sent = [];
    window.model = {
        get: name => traits[name],
        on: (event, f) => listeners.set(event, [...(listeners.get(event) ?? []), f]),
        off: (event, f) =>
            listeners.set(event, (listeners.get(event) ?? []).filter(other => other !== f)),
        send: async message => {
            sent.push(message);
            const now = await window.answer(message);
            const differs = name => JSON.stringify(now[name]) !== JSON.stringify(traits[name]);
            const changed = Object.keys(now).filter(differs);
            Object.assign(traits, now);
            changed.forEach(name => (listeners.get(`change:${name}`) ?? []).forEach(f => f()));
        },
    };
    window.stop = renderWidget({ model, el: document.body });
    window.listening = () => [...listeners.values()].flat().length;
}"""


@pytest.fixture
def shown(browser):
    """Yield an explorer and the page that shows its widget."""
    explorer = explore("gpt2-mini", TEXT, group=3, window=4)
    widget, page = explorer.widget(), browser.new_page(viewport={"width": 1000, "height": 900})

    def traits():
        return {name: getattr(widget, name) for name in TRAITS}

    def answer(message):
        widget.receive(widget, message, [])
        return traits()

    mistakes = []
    page.on("pageerror", lambda error: mistakes.append(str(error)))
    page.expose_function("answer", answer)
    page.set_content(f"<style>{VIEW_STYLE.read_text(encoding='utf-8')}</style>")
    page.add_script_tag(content=SCRIPT)
    page.evaluate(MODEL, traits())
    yield explorer, page
    assert not mistakes
    page.close()


def says(page, text):
    page.wait_for_function("text => document.querySelector('.ex-title').textContent.includes(text)",
                           arg=text)


def slide(page, name, *values):
    page.evaluate("""([name, values]) => {
        const slider = document.querySelector(`[data-name=${name}] input`);
        for (const value of values) {
            slider.value = value;
            slider.dispatchEvent(new Event('input'));
        }
    }""", [name, values])


def test_controls_change_the_view(shown):
    explorer, page = shown
    says(page, "group 3, window 4")
    slide(page, "window", 9)
    says(page, "group 3, window 9")
    page.select_option("[data-name=attention] select", label="StreamingLLM")
    says(page, "StreamingLLM")
    expect(page.locator("[data-name=recent] input")).to_have_count(1)
    expect(page.locator("[data-name=group]")).to_have_count(0)
    page.select_option("[data-name=layer] select", label="2")
    says(page, "layer 2, head 0")
    page.click(".ex-head >> nth=13")
    says(page, "layer 3, head 1")
    page.wait_for_function("document.querySelector('[data-name=layer] select').selectedIndex === 3")
    assert (explorer.layer, explorer.head) == (3, 1)


def test_a_slider_that_is_dragged_sends_its_first_and_last_values(shown):
    _, page = shown
    slide(page, "group", *range(4, 12))
    says(page, "group 11")
    assert [message["changes"]["options"]["group"] for message in page.evaluate("sent")] == [4, 11]


def test_the_end(shown):
    _, page = shown
    page.evaluate("stop()")
    assert page.locator(".ex").count() == 0 and page.evaluate("listening()") == 0
