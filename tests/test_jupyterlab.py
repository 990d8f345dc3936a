"""The reader's notebooks in the real JupyterLab: the menu, the keyboard and the explorer's slider.

Nothing here looks into a kernel, only at the page and at what was saved.
"""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from cca_lab import files
from cca_lab.cli import lab
from cca_lab.course.library import FILE, LADDER, YOURS
from cca_lab.course.release import REGION, STUB, solution_of
from cca_lab.mechanisms.cca import groups
from tests import jupyterlab
from tests.jupyterlab import MARKS
from tests.views.explorer.browser import patient_expect

pytestmark = [*MARKS, pytest.mark.nightly]

NAMES = {path.stem[:2]: path.name for path in sorted(files.notebooks_folder().glob("*.ipynb"))}
NOT_WRITTEN = "not written yet; hints and a solution are folded below"
TEXT = "def average(numbers):\n    return sum(numbers) / len(numbers)\n"
GROUP, WINDOW = 3, 4  # of the explorer at first


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


# A reader who guesses, errs and corrects

def body(number: str, name: str) -> list[str]:
    """Return the lines in the solution of a committed notebook's cell, without indentation."""
    notebook = nbformat.read(files.notebooks_folder() / NAMES[number], as_version=4)
    cell, = (cell for cell in notebook.cells if cell.id == name)
    *_, solved = solution_of(cell.source)
    lines = [line.strip() for line in solved.split("\n")]
    return lines[2 : lines.index("")]  # after the line of def and the docstring


def test_a_guess_a_wrong_answer_and_the_right_one(page):
    """Catches a checker that calls all mistakes the same or is never content, open solutions."""
    expect = patient_expect()
    page.evaluate(jupyterlab.OPEN, NAMES["03"])
    jupyterlab.run(page, "setup")
    question = page.evaluate("() => window.panel.content.widgets.find(cell => cell.model.id === "
                             "'idea-guess').model.sharedModel.getSource().split('\\n')[0]")
    jupyterlab.write_over(page, "idea-guess", [question], [question.replace("...", "0.6", 1)])
    assert "you say 0.6" in jupyterlab.run(page, "idea-guess")
    assert ": 0.8 (you said 0.6: 0.2 too little, 25 %)" in jupyterlab.run(page, "idea-words")

    folded = jupyterlab.cell(page, "turn-core-folded").locator(".jp-RenderedMarkdown")
    hint = folded.get_by_text("one query is enough")
    expect(hint).not_to_be_visible()
    folded.get_by_text("A hint").click()
    expect(hint).to_be_visible()
    expect(folded.get_by_text("torch.softmax").first).not_to_be_visible()

    right = body("03", "turn-core")
    wrong = [line.replace("queries[-1]", "queries[0]") for line in right]
    assert wrong != right
    assert NOT_WRITTEN in jupyterlab.run(page, "turn-core")
    source = jupyterlab.write_over(page, "turn-core", [STUB], wrong)
    assert f"\n    {wrong[0]}\n    {wrong[1]}\n\n\nyour_turn(" in source, source
    said = jupyterlab.run(page, "turn-core")
    for words in ("the first query judges; it is the last one, which has seen the whole group",
                  "CheckFailed: 03.2: not yet"):
        assert words in said, said
    assert "Traceback" not in said and "done" not in said, said
    source = jupyterlab.write_over(page, "turn-core", wrong, right)
    assert f"\n    {right[0]}\n    {right[1]}\n\n\nyour_turn(" in source, source
    said = jupyterlab.run(page, "turn-core")
    assert said == "03.2 The core of one group: done"


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


# A reader who moves a slider

def check_slider(page, name: str, patience: int = jupyterlab.PATIENCE) -> None:
    """Check that the arrow keys on the slider of the group size change what the explorer draws."""
    expect = patient_expect()
    view = jupyterlab.cell(page, name).locator(".jp-OutputArea-output")
    slider = view.locator("label[data-name=group] input[type=range]")
    slider.focus()
    for key, group in (("ArrowRight", GROUP + 1), ("ArrowRight", GROUP + 2),
                       ("ArrowLeft", GROUP + 1)):
        before = view.locator(".ex-lanes").inner_html()
        page.keyboard.press(key)
        expect(view.locator(".ex-title")).to_contain_text(f"group {group}", timeout=patience)
        expect(view.locator("label[data-name=group] output")).to_have_text(str(group))
        check_drawn(view, group)
        assert view.locator(".ex-lanes").inner_html() != before


def check_drawn(view, group: int) -> None:
    """Check that the last row's columns are drawn and lit: its cores, and the tokens after them."""
    expect = patient_expect()
    tokens = view.locator(".ex-word").count()
    cores = groups.visible_cores(tokens, group, WINDOW)[-1].item()
    assert cores > 1
    expect(view.locator(".ex-column.core.seen")).to_have_count(cores)
    expect(view.locator(".ex-column.raw.seen")).to_have_count(tokens - group * cores)


def deaf() -> None:
    """The wrong explorer: it answers, and nothing changes but the number beside the slider."""
    from cca_lab.views.explorer.widget import ExplorerWidget

    ExplorerWidget.receive = lambda self, widget, content, _: setattr(self, "answered",
                                                                      content["serial"])


def test_a_slider_of_the_explorer(page, mine):
    """Catches a widget that is not shown, and one whose picture does not follow its slider."""
    shows = f"explore('gpt2-mini', {TEXT!r}, attention='cca', group={GROUP}, window={WINDOW})"
    sources = {"explorer": f"from cca_lab.views.explorer import explore\n\n{shows}",
               "deaf": f"{inspect.getsource(deaf)}\n\ndeaf()\n{shows}"}
    made = new_notebook(cells=[new_code_cell(source, id=name) for name, source in sources.items()])
    made.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(made, mine / "explorer.ipynb")
    page.evaluate(jupyterlab.OPEN, "explorer.ipynb")
    jupyterlab.run(page, "explorer")
    view = jupyterlab.cell(page, "explorer")
    view.locator(".ex-lanes").wait_for()
    check_drawn(view, GROUP)
    check_slider(page, "explorer")
    jupyterlab.run(page, "deaf")
    with pytest.raises(AssertionError, match=f"group {GROUP + 1}"):
        check_slider(page, "deaf", patience=3000)
