"""The page's modules in node: the same files that the page holds, without a browser."""

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from cca_lab.views.page.write import MODULES

NODE = shutil.which("node")
RUN = Path(__file__).parent / "run.mjs"
needs_node = pytest.mark.skipif(NODE is None, reason="no node on this machine: apt install nodejs")


def run(task: str, job: dict[str, Any], change: tuple[str, str, str] | None = None) -> Any:
    """Return what a task of run.mjs returns for a job, both JSON values.

    Args:
        task: name of the task.
        job: its arguments.
        change: a file, what stands in it once, and what shall stand there instead.
    """
    assert NODE is not None
    with tempfile.TemporaryDirectory() as folder:
        for path in MODULES.glob("*.js"):
            source = path.read_text(encoding="utf-8")
            if change is not None and path.name == change[0]:
                assert source.count(change[1]) == 1
                source = source.replace(*change[1:])
            (Path(folder) / path.name).write_text(source, encoding="utf-8")
        (Path(folder) / "package.json").write_text('{"type": "module"}')  # else node takes .js for its older modules
        done = subprocess.run([NODE, str(RUN), folder, task], input=json.dumps(job), capture_output=True, text=True,
                              check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
