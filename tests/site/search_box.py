"""Runs the search of the pages in node."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from cca_lab.site import build
from cca_lab.views.page.bundle import bundle

SOURCE = Path(build.__file__).parent / "js" / "search.js"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="no node on this machine: apt install nodejs")


def in_node(source: Path, program: str, index: str = "") -> object:
    """Return what a program gives, as JSON.

    Args:
        source: search.js, or a mutant of that name.
        program: an expression, which may use `find`, `excerpt`, `words` and `siteIndex`.
        index: the script search-index.js.
    """
    script = (f'{index}\n{bundle(source)}\nconst {{ find, excerpt, words }} = modules["search.js"];\n'
              f"process.stdout.write(JSON.stringify({program}));")
    done = subprocess.run([NODE, "-"], input=script, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)
