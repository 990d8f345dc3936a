"""A browser for the tests of the view: that of the machine, or none."""

import shutil

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome",
                                                "google-chrome-stable"))), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking"]
PATIENCE = 60_000  # milliseconds
MARKS = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None,
                                              reason="no Chromium here: apt install chromium")]


def patient_expect():
    """Return playwright's `expect`, which waits for a busy machine too; without it tests skip."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    sync_api.expect.set_options(timeout=PATIENCE)
    return sync_api.expect


@pytest.fixture(scope="module")
def browser():
    """Start Chromium."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield running
        running.close()
