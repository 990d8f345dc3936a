"""A reader who climbs: every turn is written, and the notebooks run in one folder, in order."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from cca_lab import files
from cca_lab.cli import lab
from cca_lab.course.library import FILE, LADDER, YOURS
from cca_lab.course.release import REGION, STUB, solution_of
from cca_lab.views.execution import kernel_manager

pytestmark = pytest.mark.nightly

NAMES = {path.stem[:2]: path.name for path in sorted(files.notebooks_folder().glob("*.ipynb"))}
CLIMB = "01", "03", "08", "14"
NOT_A_READERS = ("MPLBACKEND", "CCA_LAB_WIDGETS", "TRITON_INTERPRET")  # what walkthroughs set
ASKS = """import my_attention, torch
from cca_lab import load_pretrained
model, tokenizer = load_pretrained("my-gpt2-cca")
assert model.config.cca_lab_attention["name"] == "my_cca", model.config
ids = torch.tensor([tokenizer.encode("A text that is read in a new process.")])
print("it writes:", tokenizer.decode(model.generate(ids, max_new_tokens=4, use_cache=False)[0]))
"""


def solutions(number: str) -> dict[str, str]:
    """Return what a reader writes into each turn's cell of a notebook, by its id."""
    notebook = nbformat.read(files.notebooks_folder() / NAMES[number], as_version=4)
    regions = {cell.id: REGION.search(cell.source) for cell in notebook.cells
               if cell.cell_type == "code"}
    return {name: solution_of(region[0])[-1] for name, region in regions.items() if region}


@pytest.fixture(scope="module")
def climb(tmp_path_factory):
    """The reader's build of all notebooks, by the command."""
    folder = tmp_path_factory.mktemp("climb") / "mine"
    assert lab.notebooks(student=folder) == 0
    return folder


@pytest.mark.parametrize("number", CLIMB)
def test_a_reader_climbs(climb, number, monkeypatch):
    """Catches a cell that needs what the reader did not write, and work that is not kept."""
    for name in NOT_A_READERS:
        monkeypatch.delenv(name, raising=False)
    notebook = nbformat.read(climb / NAMES[number], as_version=4)
    written = solutions(number)
    for cell in notebook.cells:
        if cell.id in written:
            # one statement more than the folded solution: it is nobody's copy
            stub = re.search(rf"^([ \t]*){re.escape(STUB)}$", cell.source, re.MULTILINE)
            cell.source = cell.source.replace(stub[0], f"{stub[1]}pass\n{written[cell.id]}")
    with tempfile.TemporaryDirectory(prefix="lab") as sockets:
        client = NotebookClient(notebook, km=kernel_manager(Path(sockets)), timeout=600)
        client.execute(cwd=str(climb))
    kept = (climb / FILE).read_text()
    for task_id, name in LADDER.items():
        if task_id.startswith(number):
            assert f"# ---- {task_id} {name}: {YOURS}\n" in kept


def test_what_is_left_works_in_a_new_process(climb):
    """The library passes the bench, and the model that was trained with it is loaded and writes.

    It needs what the climb above leaves.
    """
    if not (climb / "my-gpt2-cca").is_dir():
        pytest.skip("nobody climbed")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    bench = subprocess.run([sys.executable, "-m", "pytest", "-q", FILE], cwd=climb, env=environment,
                           capture_output=True, text=True, check=False)
    assert bench.returncode == 0 and "2 passed" in bench.stdout, bench.stdout
    asked = subprocess.run([sys.executable, "-c", ASKS], cwd=climb, env=environment,
                           capture_output=True, text=True, check=False)
    assert "it writes: A text" in asked.stdout, asked.stderr
