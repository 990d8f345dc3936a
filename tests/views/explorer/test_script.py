"""The view's JavaScript: what it may know, its colours, and its own functions (run by Node)."""

import json
import re
import subprocess

import pytest
import torch

from cca_lab.views.explorer import figure
from cca_lab.views.explorer.widget import SCRIPT, ExplorerWidget
from cca_lab.views.scripts import VIEW_FILES, VIEW_STYLE, joined
from tests.views.test_scripts import NODE, needs_node


def node(tmp_path, code):
    """Run code after the view and the widget, and return what it prints, JSON."""
    path = tmp_path / "test.js"
    path.write_text(f"{SCRIPT}\n{code}", encoding="utf-8")
    return json.loads(subprocess.run([NODE, path], capture_output=True, text=True,
                                     check=True).stdout)


def test_the_widget_is_one_module():
    assert not re.search(r"^import\b", ExplorerWidget._esm, re.MULTILINE)
    exports = re.findall(r"^export.*", ExplorerWidget._esm, re.MULTILINE)
    assert exports == ["export default { render: renderWidget };"]


def test_the_view_knows_nothing_of_jupyter():
    assert not re.search(r"anywidget|model\.(get|set|send|on)\b", joined(VIEW_FILES))


def test_every_rule_of_the_style_is_below_its_own_class():
    style = VIEW_STYLE.read_text(encoding="utf-8")
    rules = re.sub(r"/\*.*?\*/|@media[^{]*\{(.*?\})\s*\}", r"\1", style, flags=re.DOTALL)
    selectors = [selector.strip() for rule in re.findall(r"([^{}]+)\{", rules)
                 for selector in rule.split(",")]
    assert selectors and all(selector.startswith(".ex") for selector in selectors)


@needs_node
def test_colours_are_the_labs(tmp_path):
    colours = node(tmp_path, 'console.log(JSON.stringify(KIND_COLOURS));')
    assert {kind: colour.upper() for kind, colour in figure.COLOURS.items()} == colours


@needs_node
@pytest.mark.parametrize("seed", range(5))
def test_no_two_columns_of_a_lane_overlap(tmp_path, seed):
    generator = torch.Generator().manual_seed(seed)
    columns = []
    for kind in ("slot", "group", "core", "kept", "focal", "sink", "raw"):
        for _ in range(6):
            tokens = torch.randperm(30, generator=generator)[: 4 if kind
                                                             in ("slot", "group", "core") else 1]
            columns.append({"kind": kind, "tokens": tokens.sort().values.tolist()})
    lanes = node(tmp_path, f"const columns = {json.dumps(columns)};"
                           'console.log(JSON.stringify(lanesOf(columns, [...columns.keys()])));')
    assert sorted(one for lane in lanes for one in lane["columns"]) == list(range(len(columns)))
    for lane in lanes:
        taken = [t for one in lane["columns"]
                 for t in range(columns[one]["tokens"][0], columns[one]["tokens"][-1] + 1)]
        assert len(taken) == len(set(taken))


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
