"""The reader's notebooks in the real JupyterLab: the menu and the keyboard.

Nothing here looks into a kernel, only at the page and at what was saved.
"""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from cca_lab import files
from cca_lab.cli import lab
from cca_lab.course.library import FILE, LADDER, YOURS
from cca_lab.course.release import REGION, STUB
from cca_lab.course.solved import solution_of
from tests import jupyterlab
from tests.jupyterlab import MARKS

pytestmark = [*MARKS, pytest.mark.nightly]

NAMES = {path.stem[:2]: path.name for path in sorted(files.notebooks_folder().glob("*.ipynb"))}


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """The reader's build of all notebooks, by the command."""
    folder = tmp_path_factory.mktemp("jupyterlab") / "work" / "mine"
    assert lab.notebooks(student=folder) == 0
    return folder


@pytest.fixture(scope="module")
def page(mine):
    """JupyterLab in Chromium, in the folder of the reader's notebooks."""
    place = mine.parents[1]
    with jupyterlab.serving(place / "settings", mine) as address:
        with jupyterlab.browsing(address, place / "browser") as shown:
            yield shown


@pytest.fixture(autouse=True)
def tidy(request):
    """Close what a test opened, and end its kernel: one kernel at a time."""
    yield
    if "page" in request.fixturenames:
        request.getfixturevalue("page").evaluate("""async () => {
            const panel = window.panel;
            if (!panel) return;
            window.panel = null;
            await panel.context.save();
            await panel.sessionContext.shutdown();
            panel.dispose();
        }""")


# A reader who climbs

CLIMB = "01", "03", "08", "14"
ASKS = """import my_attention, torch
from cca_lab import load_pretrained
model, tokenizer = load_pretrained("my-gpt2-cca")
assert model.config.cca_lab_attention["name"] == "my_cca", model.config
ids = torch.tensor([tokenizer.encode("A text that is read in a new process.")])
print("it writes:", tokenizer.decode(model.generate(ids, max_new_tokens=4, use_cache=False)[0]))
"""


def solutions(number: str) -> dict[str, list[str]]:
    """Return the lines that a reader writes into each turn's cell of a notebook, by its id."""
    notebook = nbformat.read(files.notebooks_folder() / NAMES[number], as_version=4)
    regions = {cell.id: REGION.search(cell.source) for cell in notebook.cells
               if cell.cell_type == "code"}
    return {name: solution_of(region[0])[-1].split("\n")
            for name, region in regions.items() if region}


@pytest.fixture(scope="module")
def climb(mine):
    """A folder of their own for the notebooks, in which nothing was tried before."""
    assert lab.notebooks(student=mine / "climb") == 0
    return mine / "climb"


@pytest.mark.parametrize("number", CLIMB)
def test_a_reader_climbs(page, climb, number):
    """Catches a cell that needs what the reader did not write, and work that is not kept."""
    page.evaluate(jupyterlab.OPEN, f"climb/{NAMES[number]}")
    for name, lines in solutions(number).items():
        # one statement more than the folded solution: it is nobody's copy
        indentation = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
        jupyterlab.write_lines(page, name, STUB, [f"{indentation}pass", *lines])
    jupyterlab.choose(page, "Run", "Run All Cells")
    page.wait_for_function(jupyterlab.FINISHED, timeout=10 * jupyterlab.PATIENCE)
    jupyterlab.save(page)
    cells = nbformat.read(climb / NAMES[number], as_version=4).cells
    failed = [(cell.id, output.evalue) for cell in cells for output in cell.get("outputs", [])
              if output.output_type == "error"]
    assert not failed
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
