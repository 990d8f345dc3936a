"""Every promise of CONTRIBUTING.md names a test that is there, and no room promises too much."""

import ast
import re

from cca_lab import files

ROOT = files.repository()
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MOST = 10  # promises a room
PROMISE = re.compile(r"^\* .*?\(`([\w/.]+)::(\w+)`\)$", re.DOTALL | re.MULTILINE)


def rooms() -> dict[str, str]:
    """Return the lines below each room's heading."""
    _, *parts = re.split(r"^### `(\w+)/`\n", PAGE, flags=re.MULTILINE)
    return {name: text.partition("\n## ")[0] for name, text in zip(*[iter(parts)] * 2, strict=True)}


def test_every_room_makes_a_few_promises():
    folders = {path.parent.name for path in (ROOT / "cca_lab").glob("*/__init__.py")}
    assert rooms().keys() == folders
    for name, text in rooms().items():
        promises = re.findall(r"^\* ", text, re.MULTILINE)
        assert 1 <= len(promises) == len(PROMISE.findall(text)) <= MOST, name


def test_every_promise_has_its_test():
    for path, name in PROMISE.findall(PAGE):
        tree = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, path
