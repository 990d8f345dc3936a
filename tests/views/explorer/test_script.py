"""The view's JavaScript: it is one script, its colours are the lab's, and its own functions are right (run by Node)."""

import json
import re
import shutil
import subprocess

import pytest
import torch

from cca_lab.attention import statistics as analysis
from cca_lab.views.explorer import figure
from cca_lab.views.explorer.script import MODULES, script, style, widget_module
from tests.attention.test_statistics import causal_maps

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="no Node on this machine: apt install nodejs")


def node(tmp_path, code, module="widget.js"):
    """Run code after a module and all that it imports, and return what it prints, JSON."""
    path = tmp_path / "test.js"
    path.write_text(f"{script(module)}\n{code}", encoding="utf-8")
    return json.loads(subprocess.run([NODE, path], capture_output=True, text=True, check=True).stdout)


def test_the_widget_is_one_module():
    module = widget_module()
    assert not re.search(r"^import\b", module, re.MULTILINE)
    assert re.findall(r"^export.*", module, re.MULTILINE) == ['export default { render: modules["widget.js"].render };']


@pytest.mark.parametrize("path", sorted(MODULES.glob("*.js")), ids=lambda path: path.name)
def test_modules_are_short_and_need_no_network(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("/**") and len(lines) <= 250 and max(map(len, lines)) <= 120
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", "\n".join(lines))


def test_the_view_knows_nothing_of_jupyter():
    assert not re.search(r"anywidget|model\.(get|set|send|on)\b", script("view.js"))


def test_every_rule_of_the_style_is_below_its_own_class():
    rules = re.sub(r"/\*.*?\*/|@media[^{]*\{(.*?\})\s*\}", r"\1", style(), flags=re.DOTALL)
    selectors = [one.strip() for rule in re.findall(r"([^{}]+)\{", rules) for one in rule.split(",")]
    assert selectors and all(one.startswith(".ex") for one in selectors), [s for s in selectors if s[:3] != ".ex"]


@needs_node
def test_colours_are_the_labs(tmp_path):
    colours = node(tmp_path, 'console.log(JSON.stringify(modules["palette.js"].KIND_COLOURS));')
    assert {kind: colour.upper() for kind, colour in figure.COLOURS.items()} == colours


@needs_node
def test_numbers_are_those_of_the_package(tmp_path):
    own, full = causal_maps(9, 9, seed=1)[3], causal_maps(9, 9, seed=2)[3]
    rows = [{"query": i, "seen": list(range(0, i + 1, 2)) or [0], "effective": own[i, : i + 1].tolist(),
             "full": full[i, : i + 1].tolist()} for i in range(9)]
    columns = [{"tokens": [t], "weights": [1]} for t in range(9)]
    found = node(tmp_path, f"const rows = {json.dumps(rows)}, columns = {json.dumps(columns)};"
                           'const { numbersOf } = modules["numbers.js"];'
                           'console.log(JSON.stringify(rows.map((row) => numbersOf(row, columns))));', "numbers.js")
    for i, numbers in enumerate(found):
        lost = sum(float(full[i, t]) for t in range(i + 1) if t % 2)
        wanted = {"lost": lost, "distance": 1 - float(analysis.overlap(own[i], full[i])),
                  "k90": int(analysis.k90(own[i])), "k90Full": int(analysis.k90(full[i])),
                  "entropy": float(analysis.entropy(own[i])), "entropyFull": float(analysis.entropy(full[i]))}
        assert numbers == pytest.approx(wanted, abs=1e-12)


@needs_node
@pytest.mark.parametrize("seed", range(5))
def test_no_two_columns_of_a_lane_overlap(tmp_path, seed):
    generator = torch.Generator().manual_seed(seed)
    columns = []
    for kind in ("slot", "group", "core", "kept", "focal", "sink", "raw"):
        for _ in range(6):
            tokens = torch.randperm(30, generator=generator)[: 4 if kind in ("slot", "group", "core") else 1]
            columns.append({"kind": kind, "tokens": tokens.sort().values.tolist()})
    lanes = node(tmp_path, f"const columns = {json.dumps(columns)};"
                           'console.log(JSON.stringify(modules["lanes.js"].lanesOf(columns, [...columns.keys()])));')
    assert sorted(one for lane in lanes for one in lane["columns"]) == list(range(len(columns)))
    for lane in lanes:
        taken = [t for one in lane["columns"] for t in range(columns[one]["tokens"][0], columns[one]["tokens"][-1] + 1)]
        assert len(taken) == len(set(taken))


@needs_node
def test_while_the_program_works_changes_are_joined(tmp_path):
    sent = node(tmp_path, """
        const sent = [], sender = new modules["sender.js"].Sender((message) => sent.push(message));
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
