"""The page's program in node: the script that the page holds, without a browser."""

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from cca_lab.views.page.write import FILES, OWN_FILES
from cca_lab.views.scripts import joined

NODE = shutil.which("node")
RUN = Path(__file__).parent / "run.mjs"
NAMES = ("HeadReading, LABELS, MECHANISMS, Reader, Tokenizer, draw, entries, numbersOf, question, "
         "unpack")
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
        script = Path(folder) / "page.mjs"
        program = joined(FILES)
        if change is not None:
            name, right, wrong = change
            (text,) = (path.read_text(encoding="utf-8") for path in OWN_FILES if path.name == name)
            assert text.count(right) == 1 and program.count(text) == 1
            program = program.replace(text, text.replace(right, wrong))
        script.write_text(f"{program}\nexport {{ {NAMES} }};\n", encoding="utf-8")
        done = subprocess.run([NODE, str(RUN), str(script), task], input=json.dumps(job),
                              capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
