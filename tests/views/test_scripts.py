"""The JavaScript of the explorer: scripts that share one scope, joined as they are."""

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


def test_what_is_inline_cannot_end_its_element():
    script = joined(JOINED["widget"])
    assert "</script" not in script and "<!--" not in script
    assert "<" not in inline_json({"words": ["</script><script>"]})
