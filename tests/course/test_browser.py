"""JupyterLab with nbgrader in a real browser: the release notebook of a5 is opened, filled in, checked, validated."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from cca_lab import files
from cca_lab.cli import doctor
from tests.course import matrix

CHROMIUM = doctor.chromium()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt install chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]
NOTEBOOK = "a5_cca.ipynb"
# The wrong answer: windows that begin one token early.
WRONG = ("start = torch.minimum(sinks + group * cores, row + 1)",
         "start = torch.where(cores > 0, sinks + group * cores - 1, torch.minimum(row + 1, 0 * row + sinks))")


@pytest.fixture
def lab(tmp_path):
    """JupyterLab on a free port, with settings of its own; yields its address and its folder."""
    work = tmp_path / "work"
    work.mkdir()
    shutil.copy(files.course_folder() / "release" / "a5_cca" / NOTEBOOK, work)
    for name in ("config", "data", "runtime", "settings", "workspaces"):
        (tmp_path / name).mkdir()
    (tmp_path / "settings" / "@jupyterlab" / "apputils-extension").mkdir(parents=True)
    (tmp_path / "settings" / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings").write_text(
        json.dumps({"fetchNews": "false", "checkForUpdates": False}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = Path(sys.executable).parent
    environment = os.environ | {"JUPYTER_CONFIG_DIR": str(tmp_path / "config"), "JUPYTER_DATA_DIR":
                                str(tmp_path / "data"), "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
                                "JUPYTERLAB_SETTINGS_DIR": str(tmp_path / "settings"), "JUPYTERLAB_WORKSPACES_DIR":
                                str(tmp_path / "workspaces"), "PATH": f"{place}:{os.environ['PATH']}"}
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}",
             "--ServerApp.port_retries=0", "--IdentityProvider.token=abc", f"--ServerApp.root_dir={work}",
             "--LabApp.expose_app_in_browser=True"], cwd=work, env=environment, stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}"
        for _ in range(240):
            try:
                urllib.request.urlopen(f"{address}/api?token=abc", timeout=2)
                break
            except OSError:
                assert server.poll() is None, (tmp_path / "log").read_text()
                time.sleep(0.5)
        yield address, work
    finally:
        server.terminate()
        server.wait(20)


OPEN = """async name => {
    const app = window.jupyterapp;
    const panel = await app.commands.execute('docmanager:open', {path: name, factory: 'Notebook'});
    await panel.context.ready;
    await panel.sessionContext.ready;
    window.panel = panel;
}"""
FILL = """([id, source]) => {
    const cells = window.panel.content.widgets;
    const cell = cells.find(cell => cell.model.id === id);
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


def shown(page, cell: str) -> str:
    """Return the text that stands below a cell on the page."""
    page.evaluate("""id => {
        const notebook = window.panel.content;
        const index = notebook.widgets.findIndex(cell => cell.model.id === id);
        notebook.activeCellIndex = index;
        notebook.scrollToItem(index, 'center');
    }""", cell)
    output = page.locator(".jp-Notebook .jp-Cell.jp-mod-active .jp-OutputArea-output")
    output.first.wait_for(timeout=30_000)
    return " ".join(" ".join(output.all_inner_texts()).split())


def test_a_student_opens_fills_in_checks_and_validates(lab, tmp_path):
    from playwright.sync_api import sync_playwright

    address, work = lab
    right = matrix.solved("a5")["a5-2-answer"]
    assert WRONG[0] in right
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            str(tmp_path / "browser"), executable_path=CHROMIUM, headless=True, args=FLAGS,
            viewport={"width": 1300, "height": 1000})
        page = browser.new_page()
        page.goto(f"{address}/lab?token=abc&reset")
        page.wait_for_function("window.jupyterapp && window.jupyterapp.restored", timeout=90_000)
        page.evaluate("async () => { await window.jupyterapp.restored; }")
        page.evaluate(OPEN, NOTEBOOK)

        page.evaluate(RUN, ["given-setup", "a5-2-answer", "a5-2-check"])
        assert "NotImplementedError" in shown(page, "a5-2-check")
        page.evaluate(FILL, ["a5-2-answer", right.replace(*WRONG)])
        page.evaluate(RUN, ["a5-2-answer", "a5-2-check"])
        message = shown(page, "a5-2-check")
        assert "row 3 reads token 1 2 times, inside a core and raw" in message, message
        assert "CheckFailed: a5.2: not yet: every earlier token is read exactly once" in message, message
        page.evaluate(FILL, ["a5-2-answer", right])
        page.evaluate(RUN, ["a5-2-answer", "a5-2-check"])
        assert "6 of 6 points" in shown(page, "a5-2-check")

        commands = page.evaluate("window.jupyterapp.commands.listCommands()")
        assert [name for name in commands if "nbgrader" in name], "nbgrader's extension is not there"
        validate = page.locator("text=Validate").first
        validate.wait_for(timeout=30_000)
        validate.click()
        dialog = page.locator(".jp-Dialog")
        dialog.wait_for(timeout=120_000)
        assert "failed" in dialog.inner_text().lower()  # six tasks are still to be written
        browser.close()
    saved = json.loads((work / NOTEBOOK).read_text())
    assert any(cell["id"] == "a5-2-answer" and "torch.minimum" in "".join(cell["source"]) for cell in saved["cells"])
