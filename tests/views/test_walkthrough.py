"""The walkthrough on tiny notebooks: what it shows and keeps, and what it does on failures."""

import functools
import io
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest
from rich.console import Console
from typer.testing import CliRunner

from cca_lab import files
from cca_lab.cli import app
from cca_lab.views import walkthrough
from cca_lab.views.execution import Failure, execute
from cca_lab.views.mathml import to_mathml
from cca_lab.views.pages import notebook_page
from cca_lab.views.walkthrough import refresh
from tests import small_notebooks
from tests.test_stored import places, replaced

GOOD = ("from cca_lab.views.notebook_tools import check, result\n"
        "check('two is two', 2 == 2, 'n = 2')\nresult('pi', 3.14159, 'rad')")
FLAG = "import os\nassert os.environ.get('LAB_TEST_REPAIRED'), 'not repaired yet'"


class _Resources(HTMLParser):
    """Collects what a page would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {"src", "href"} if tag in {"link", "script", "img", "iframe", "use"} else {"src"}
        self.loaded += [value or "" for name, value in attrs if name in names]


def loads_from_elsewhere(html: str) -> list[str]:
    """List the addresses that a page loads and that are not inside it."""
    parser = _Resources()
    parser.feed(html)
    styled = [one or other for one, other in re.findall(r"url\(([^)]*)\)|@import\s+(\S+)", html)]
    return [address for address in parser.loaded + styled
            if not address.strip("'\"").startswith("data:")]


@pytest.fixture(scope="module")
def broken_then_repaired(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list]:
    """Run three notebooks of which the second fails, then repair it and run from there."""
    base = tmp_path_factory.mktemp("walkthrough")
    folder, out = base / "notebooks", base / "out"
    small_notebooks.write(folder, "00_first",
                          "# First $x_i$\n\n$$\\frac{a}{b} < c$$\n\n[on](01_second.ipynb)", GOOD)
    small_notebooks.write(folder, "01_second", "# Second", "kept = 7\nprint('kept', kept)", FLAG,
                          "print('after')")
    small_notebooks.write(folder, "02_third", "# Third", "print('third')")
    command = ["walkthrough", "--folder", str(folder), "--out", str(out)]
    runs = []
    for extra, environment in (([], {}), (["--from", "01"], {"LAB_TEST_REPAIRED": "1"})):
        outcome = CliRunner().invoke(app, command + extra, env=environment)
        runs.append((outcome, json.loads((out / "summary.json").read_text()),
                     {path.name: path.read_text() for path in out.iterdir()}))
    return out, runs


def states(summary: dict) -> list[str]:
    return [record["state"] for record in summary["notebooks"]]


def test_failing_cell_is_named_with_its_error_and_how_to_go_on(broken_then_repaired):
    outcome, summary, _ = broken_then_repaired[1][0]
    assert outcome.exit_code == 1
    for part in ("01_second.ipynb failed in cell 2: import os", "AssertionError: not repaired yet",
                 "make walkthrough FROM=01"):
        assert part in outcome.stdout, outcome.stdout
    assert summary["notebooks"][1]["failure"]["cell"] == 2


def test_failing_cell_keeps_what_had_run_and_stops_there(broken_then_repaired):
    _, summary, files = broken_then_repaired[1][0]
    assert states(summary) == ["ok", "failed", "not run"]
    assert "02_third.ipynb" not in files and "02_third.html" not in files
    assert ">not run<" in files["index.html"]
    partial = nbformat.reads(files["01_second.ipynb"], as_version=4)
    assert partial.cells[1].outputs[0].text == "kept 7\n"
    assert partial.cells[2].outputs[0].output_type == "error"
    assert partial.cells[3].outputs == [] and partial.cells[3].execution_count is None
    assert "kept 7" in files["01_second.html"] and "two is two" in files["index.html"]


def test_resuming_runs_the_rest_and_keeps_the_earlier_results(broken_then_repaired):
    outcome, summary, files = broken_then_repaired[1][1]
    assert outcome.exit_code == 0, outcome.stdout
    assert "00_first" not in outcome.stdout.split("\n\n")[0]
    assert states(summary) == ["ok", "ok", "ok"]
    assert {"00_first.ipynb", "01_second.ipynb", "02_third.ipynb"} <= files.keys()
    assert "3 of 3 notebooks ran to their end, 1 of 1 checks passed" in summary["headline"]


def test_summary_has_each_check_and_result(broken_then_repaired):
    _, summary, files = broken_then_repaired[1][1]
    first = summary["notebooks"][0]
    assert first["checks"] == [{"name": "two is two", "passed": True, "detail": "n = 2"}]
    assert first["results"] == [{"name": "pi", "value": 3.14159, "unit": "rad"}]
    assert "ok: two is two (n = 2)" in files["index.html"]
    assert "pi = 3.142 rad" in files["index.html"]


def test_pages_open_offline_and_lead_to_each_other(broken_then_repaired):
    _, _, files = broken_then_repaired[1][1]
    html = {name: text for name, text in files.items() if name.endswith(".html")}
    assert set(html) == {"index.html", "00_first.html", "01_second.html", "02_third.html"}
    for name, text in html.items():
        assert loads_from_elsewhere(text) == [], name
        for address in re.findall(r'<a [^>]*href="([^"#]+)', text):
            assert address in files, f"{name} leads to {address}, which is not there"
    assert 'href="01_second.html"' in html["00_first.html"]


def test_formulas_are_mathml(broken_then_repaired):
    first = broken_then_repaired[1][1][2]["00_first.html"]
    assert first.count("<math") == 2 and "<mfrac>" in first
    assert "$" not in first.split("<main>")[1].split("</main>")[0]


def test_loader_check_sees_what_a_page_loads():
    """Mutants of an offline page: each way of loading something is noticed."""
    for loading in ('<script src="https://example.org/a.js"></script>', '<img src="figure.png">',
                    '<link rel="stylesheet" href="style.css">', "<style>@import x.css;</style>",
                    "<style>a { background: url(https://example.org/a.png) }</style>"):
        assert loads_from_elsewhere(loading), loading
    assert loads_from_elsewhere(
        '<img src="data:image/png;base64,AA"><a href="https://example.org/">x</a>') == []


@pytest.mark.skipif(os.name != "posix", reason="only POSIX systems send SIGINT to one process")
def test_interruption_keeps_what_had_run_and_exits_130(tmp_path):
    small_notebooks.write(
        tmp_path / "notebooks", "00_slow", "# Slow", "print('before')",
        "import os, signal, time\nos.kill(os.getppid(), signal.SIGINT)\ntime.sleep(300)")
    command = [sys.executable, "-c", "from cca_lab.cli import app; app()", "walkthrough",
               "--no-html", "--folder", tmp_path / "notebooks", "--out", tmp_path / "out"]
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    assert run.returncode == 130, run.stdout + run.stderr
    assert "00_slow.ipynb: interrupted" in run.stdout and "FROM=00" in run.stdout
    assert states(json.loads((tmp_path / "out" / "summary.json").read_text())) == ["interrupted"]
    partial = nbformat.read(tmp_path / "out" / "00_slow.ipynb", 4)
    assert partial.cells[1].outputs[0].text == "before\n"
    assert not list((tmp_path / "out").glob("*.html"))


def test_kernel_is_this_interpreter_in_an_empty_folder_and_offline():
    source = ("import os, sys\nprint(sys.executable, os.listdir(), os.environ['HF_HUB_OFFLINE'], "
              "os.environ['PYTHONHASHSEED'], 'inline' in os.environ['MPLBACKEND'])")
    notebook = small_notebooks.notebook("# Where", source)
    assert execute(notebook) is None
    assert notebook.cells[1].outputs[0].text == f"{sys.executable} [] 1 0 True\n"


def test_dead_kernel_is_a_failure_that_names_the_cell():
    notebook = small_notebooks.notebook("# Dies", "import os\nos._exit(9)", "print('after')")
    failure = execute(notebook)
    assert failure is not None and failure.cell == 1 and "kernel died" in failure.error


def test_refresh_writes_portable_outputs_and_leaves_a_failing_notebook_alone(tmp_path):
    good = small_notebooks.write(tmp_path, "00_good", "# Good", "print('hello')")
    notebook = nbformat.read(good, 4)
    notebook.cells[1].metadata = {"tags": ["volatile"],
                                  "execution": {"iopub.status.busy": "2026-01-01"}}
    nbformat.write(notebook, good)
    bad = small_notebooks.write(tmp_path, "01_bad", "# Bad", "1 / 0")
    before = bad.read_bytes()
    console = Console(file=io.StringIO())
    assert refresh(tmp_path, console=console) == 1
    assert bad.read_bytes() == before and "ZeroDivisionError" in console.file.getvalue()
    written = nbformat.read(good, 4)
    assert written.cells[1].metadata == {"tags": ["volatile"]}
    assert written.cells[1].outputs[0].text == "hello\n"
    assert written.metadata.kernelspec.name == "python3"
    assert "version" not in written.metadata.language_info
    assert isinstance(written.metadata.cca_lab.seconds, int)


def summary_of(folder: Path) -> dict:
    """Return a summary with each kind of record, of the notebooks that are there."""
    first, second = (walkthrough.Record(path.stem, "T", files.digest(path), "ok", 1.5)
                     for path in sorted(folder.glob("*.ipynb")))
    first.checks = [{"name": "two", "passed": True, "detail": ""}]
    first.results = [{"name": "pi", "value": 3.14, "unit": "rad"}]
    second.state, second.failure = "failed", Failure(1, "1 / 0", "ZeroDivisionError")
    second.differences = ["cell 1"]
    return {"headline": "so far", "notebooks": [asdict(first), asdict(second)]}


def test_every_wrong_kind_in_an_earlier_summary_is_named(tmp_path):
    """The mutant that takes what it reads fails after the notebooks ran, in another field each."""
    small_notebooks.write(tmp_path, "00_a", "# T")
    small_notebooks.write(tmp_path, "01_b", "# T", "1 / 0")
    paths, summary = sorted(tmp_path.glob("*.ipynb")), tmp_path / "out" / "summary.json"
    good = summary_of(tmp_path)
    summary.parent.mkdir()
    summary.write_text(json.dumps(good))
    read = walkthrough._records(paths, [], summary.parent)
    assert [asdict(record) for record in read.values()] == good["notebooks"]
    for path in places(good):
        value = functools.reduce(lambda value, key: value[key], path, good)
        for wrong in (5, "x", None, [5], {"x": 5}):
            if type(wrong) is type(value) and not isinstance(value, list | dict) \
                    and path[-1] != "state" or wrong == 5 and isinstance(value, float) \
                    or path[-1] == "failure" and wrong is None:
                continue
            summary.write_text(json.dumps(replaced(path, wrong, good=good)))
            with pytest.raises(ValueError, match=rf"summary\.json: .*{path[-1]}.*: got .*, wanted "
                                                 ".*; delete .*summary.json, and run all") as said:
                walkthrough._records(paths, [], summary.parent)
            assert "\n" not in str(said.value)


def test_the_notebooks_themselves_are_not_overwritten(tmp_path):
    small_notebooks.write(tmp_path, "00_a", "# T")
    outcome = CliRunner().invoke(app, ["walkthrough", "--folder", str(tmp_path), "--out",
                                       str(tmp_path)])
    assert outcome.exit_code == 2 and "choose another" in outcome.output


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_names_notebook_cell_time_and_what_is_left(tmp_path, terminal, monkeypatch):
    paths = [small_notebooks.write(tmp_path, name, "# T", "print(1)", "print(2)")
             for name in ("05_core", "06_next")]
    console = Console(file=io.StringIO(), force_terminal=terminal, width=200)
    monkeypatch.setattr(walkthrough, "execute", lambda notebook, on_cell: on_cell(2))
    assert [run.state for run in walkthrough.run_each(paths, console)] == ["ok", "ok"]
    shown = console.file.getvalue()
    if terminal:
        assert re.search(r"\[2/2\] 06_next: cell 2 of 2 .*so far, about .*left", shown), shown
    else:
        assert "[1/2] 05_core: 2 cells, 60 s on the authors' machine" in shown, shown


def test_unknown_command_in_a_formula_is_reported_and_shown_as_source(tmp_path):
    with pytest.raises(ValueError, match="mystery"):
        to_mathml(r"\mystery{x}", "inline")
    with pytest.raises(ValueError, match="parse"):
        to_mathml(r"\frac{", "inline")
    body = notebook_page(small_notebooks.notebook(r"$\mystery{x}$"), tmp_path, tmp_path, ())
    assert 'class="formula"' in body and "<math" not in body


def test_relative_links_still_lead_to_the_files(tmp_path):
    text = ("[a](../README.md) [b](01_x.ipynb#part) [c](https://example.org/x) [d](#here) "
            "[e](02_y.ipynb)")
    page = notebook_page(small_notebooks.notebook(text), tmp_path / "notebooks",
                         tmp_path / "build/walkthrough", ["01_x"])
    assert re.findall(r'href="([^"]*)"', page.split("<main>")[1])[1:] == [
        "../../README.md", "01_x.html#part", "https://example.org/x", "#here",
        "../../notebooks/02_y.ipynb"]
