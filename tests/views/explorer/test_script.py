"""The view's JavaScript: what it may know, its colours, and its own functions (run by Node)."""

import json
import subprocess

from cca_lab.views.explorer import figure
from cca_lab.views.explorer.widget import SCRIPT
from tests.views.test_scripts import NODE, needs_node


def node(tmp_path, code):
    """Run code after the view and the widget, and return what it prints, JSON."""
    path = tmp_path / "test.js"
    path.write_text(f"{SCRIPT}\n{code}", encoding="utf-8")
    return json.loads(subprocess.run([NODE, path], capture_output=True, text=True,
                                     check=True).stdout)


@needs_node
def test_colours_are_the_labs(tmp_path):
    colours = node(tmp_path, 'console.log(JSON.stringify(KIND_COLOURS));')
    assert {kind: colour.upper() for kind, colour in figure.COLOURS.items()} == colours


@needs_node
def test_while_the_program_works_changes_are_joined(tmp_path):
    sent = node(tmp_path, """
        const sent = [], sender = new Sender((message) => sent.push(message));
        sender.ask({ query: 1 });
        sender.ask({ query: 2 });
        sender.ask({ options: { group: 3 } });
        sender.ask({ options: { group: 4, window: 5 } });
        sender.answer(1);
        sender.ask({ options: { group: 6 } });
        sender.ask({ attention: "dga" });
        sender.answer(2);
        sender.answer(3);
        console.log(JSON.stringify(sent));""")
    assert sent == [{"serial": 1, "changes": {"query": 1}},
                    {"serial": 2, "changes": {"query": 2, "options": {"group": 4, "window": 5}}},
                    {"serial": 3, "changes": {"attention": "dga", "options": {}}}]
