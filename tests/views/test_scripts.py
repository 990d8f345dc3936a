"""The JavaScript of the explorer: scripts that share one scope, joined as they are."""

import re
import shutil
import subprocess

import pytest

from cca_lab.views.scripts import VIEW, VIEW_FILES, inline_json, joined

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="no Node here: apt install nodejs")
JOINED = {"widget": [*VIEW_FILES, VIEW / "widget.js"]}


def declared(tmp_path, script):
    """Return what Node says of a script whose names may be declared only once."""
    path = tmp_path / "joined.mjs"  # a module: it refuses what a script would overwrite
    path.write_text(script, encoding="utf-8")
    return subprocess.run([NODE, "--check", path], capture_output=True, text=True, check=False)


@needs_node
@pytest.mark.parametrize("paths", JOINED.values(), ids=JOINED)
def test_no_two_files_declare_one_name(tmp_path, paths):
    done = declared(tmp_path, joined(paths))
    assert done.returncode == 0, done.stderr
    assert "already been declared" in declared(tmp_path, joined([*paths, paths[0]])).stderr


@pytest.mark.parametrize("path", sorted({path for paths in JOINED.values() for path in paths}),
                         ids=lambda path: path.name)
def test_files_are_plain_scripts_that_name_no_other_place(path):
    text = path.read_text(encoding="utf-8")
    assert text.startswith("/**") and max(map(len, text.splitlines())) <= 100
    assert not re.search(r"^(import|export)\b", text, re.MULTILINE)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)


def test_what_is_inline_cannot_end_its_element():
    script = joined(JOINED["widget"])
    assert "</script" not in script and "<!--" not in script
    assert "<" not in inline_json({"words": ["</script><script>"]})
