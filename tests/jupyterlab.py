"""JupyterLab in a real browser, for tests that use notebooks by mouse and keys, like a person."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.views.explorer.browser import CHROMIUM

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync"]
MISSING = [name for name in ("jupyterlab", "ipykernel", "playwright") if find_spec(name) is None]
MARKS = [pytest.mark.slow,
         pytest.mark.skipif(CHROMIUM is None,
                            reason="no Chromium on this machine: apt install chromium"),
         pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")]
PATIENCE = 120_000  # milliseconds: that a machine is busy is no mistake of a notebook
# What tests/conftest.py and walkthroughs set: a reader's kernel has none of it.
NOT_A_READERS = ("MPLBACKEND", "CCA_LAB_WIDGETS", "TRITON_INTERPRET")

OPEN = """async name => {
    const { commands } = window.jupyterapp;
    const panel = await commands.execute('docmanager:open', {path: name, factory: 'Notebook'});
    await panel.context.ready;
    await panel.sessionContext.ready;
    window.panel = panel;
}"""
SHOW = """id => {
    const notebook = window.panel.content;
    const index = notebook.widgets.findIndex(cell => cell.model.id === id);
    notebook.deselectAll();
    notebook.activeCellIndex = index;
    return notebook.scrollToItem(index, 'center');
}"""
FINISHED = """() => {
    const cells = window.panel.content.widgets.map(cell => cell.model);
    const models = cells.filter(model => model.type === 'code');
    return models.some(model => model.executionCount)
        && models.every(model => model.executionState !== 'running')
        && window.panel.sessionContext.session.kernel.status === 'idle';
}"""


@contextlib.contextmanager
def serving(place: Path, work: Path) -> Iterator[str]:
    """Start JupyterLab on a free port with settings of its own, and yield its address.

    Args:
        place: folder for its settings and its log.
        work: folder of the notebooks.
    """
    folders = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data",
               "JUPYTER_RUNTIME_DIR": "runtime", "JUPYTERLAB_SETTINGS_DIR": "settings",
               "JUPYTERLAB_WORKSPACES_DIR": "workspaces", "IPYTHONDIR": "ipython"}
    settings = place / "settings" / "@jupyterlab" / "apputils-extension"
    for folder in [*(place / name for name in folders.values()), settings]:
        folder.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text(
        json.dumps({"fetchNews": "false", "checkForUpdates": False}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if name not in NOT_A_READERS}
    environment |= {name: str(place / folder) for name, folder in folders.items()}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with (place / "log").open("wb") as log:
        server = subprocess.Popen([sys.executable, "-m", "jupyterlab", "--no-browser",
                                   "--allow-root", f"--port={port}", "--ServerApp.port_retries=0",
                                   "--IdentityProvider.token=abc", f"--ServerApp.root_dir={work}",
                                   "--LabApp.expose_app_in_browser=True"], cwd=work,
                                  env=environment, stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}"
        for _ in range(240):
            try:
                urllib.request.urlopen(f"{address}/api?token=abc", timeout=2)
                break
            except OSError:
                assert server.poll() is None, (place / "log").read_text()
                time.sleep(0.5)
        yield address
    finally:
        server.terminate()  # and with it its kernels
        server.wait(20)


@contextlib.contextmanager
def browsing(address: str, profile: Path) -> Iterator[Any]:
    """Open JupyterLab in Chromium, wait until it is there, and yield the page."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            str(profile), executable_path=CHROMIUM, headless=True, args=FLAGS,
            viewport={"width": 1300, "height": 1000})
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(f"{address}/lab?token=abc&reset")
        page.wait_for_function("window.jupyterapp && window.jupyterapp.restored")
        page.evaluate("async () => { await window.jupyterapp.restored; }")
        yield page
        browser.close()


def cell(page: Any, name: str) -> Any:
    """Bring the cell with this id into sight, and return its place on the page."""
    page.evaluate(SHOW, name)
    return page.locator(".jp-Notebook:visible .jp-Cell.jp-mod-active")


def choose(page: Any, menu: str, entry: str) -> None:
    """Choose an entry of the menu bar with the mouse."""
    page.locator(".lm-MenuBar-itemLabel", has_text=menu).first.click()
    page.locator(".lm-Menu-itemLabel").get_by_text(entry, exact=True).click()


def save(page: Any) -> None:
    """Save the open notebook by the keys."""
    page.keyboard.press("Control+s")
    page.wait_for_function("() => !window.panel.context.model.dirty")


def write_lines(page: Any, name: str, old: str, new: list[str]) -> None:
    """Replace a line by lines that are typed on the keyboard, each with its own indentation."""
    cell(page, name).locator(".cm-line").filter(has_text=old).last.click()
    # to the end, back to the indentation, to the beginning of the line
    keys = ("End", "Shift+Home", "Shift+Home")
    for text in new:
        for key in keys:
            page.keyboard.press(key)
        page.keyboard.type(text)
        keys = ("Enter", "Shift+Home")  # the editor indents a new line, which has nothing else
