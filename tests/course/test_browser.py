"""JupyterLab with nbgrader in a browser: a release notebook is filled in, checked, validated."""

import json
import re
import shutil

import pytest

from cca_lab.files import course_folder
from tests import jupyterlab
from tests.course import matrix
from tests.views.explorer.browser import patient_expect

pytestmark = [*jupyterlab.MARKS, pytest.mark.nightly]
NOTEBOOK = "a5_cca.ipynb"
# The wrong answer: windows that begin one token early.
WRONG = ("start = torch.minimum(sinks + group * cores, row + 1)",
         "start = torch.where(cores > 0, sinks + group * cores - 1, "
         "torch.minimum(row + 1, 0 * row + sinks))")
FILL = """([id, source]) => {
    const cell = window.panel.content.widgets.find(cell => cell.model.id === id);
    cell.model.sharedModel.setSource(source);
}"""
RUN = """async ids => {
    const notebook = window.panel.content;
    for (const id of ids) {
        notebook.activeCellIndex = notebook.widgets.findIndex(cell => cell.model.id === id);
        notebook.deselectAll();
        await window.jupyterapp.commands.execute('notebook:run-cell');
    }
    await window.panel.context.save();
}"""


def test_a_student_opens_fills_in_checks_and_validates(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    shutil.copy(course_folder() / "release" / "a5_cca" / NOTEBOOK, work)
    right = matrix.solved("a5")["a5-2-answer"]
    assert WRONG[0] in right
    with (jupyterlab.serving(tmp_path, work) as address,
          jupyterlab.browsing(address, tmp_path / "browser") as page):
        page.evaluate(jupyterlab.OPEN, NOTEBOOK)
        page.evaluate(RUN, ["given-setup", "a5-2-answer", "a5-2-check"])
        assert "NotImplementedError" in jupyterlab.shown(page, "a5-2-check")
        page.evaluate(FILL, ["a5-2-answer", right.replace(*WRONG)])
        page.evaluate(RUN, ["a5-2-answer", "a5-2-check"])
        message = jupyterlab.shown(page, "a5-2-check")
        assert "row 3 reads token 1 twice, inside a core and raw" in message, message
        once = "CheckFailed: a5.2: not yet: every earlier token is read exactly once"
        assert once in message, message
        page.evaluate(FILL, ["a5-2-answer", right])
        page.evaluate(RUN, ["a5-2-answer", "a5-2-check"])
        assert "6 of 6 points" in jupyterlab.shown(page, "a5-2-check")

        commands = page.evaluate("window.jupyterapp.commands.listCommands()")
        assert "nbgrader:open-formgrader" in commands, "nbgrader's extension is missing"
        page.locator("text=Validate").first.click()
        dialog = page.locator(".jp-Dialog")
        # six tasks are still to be written
        patient_expect()(dialog).to_contain_text(re.compile("failed", re.IGNORECASE))
    saved = json.loads((work / NOTEBOOK).read_text())
    assert any(cell["id"] == "a5-2-answer" and "torch.minimum" in "".join(cell["source"])
               for cell in saved["cells"])
