"""The walkthrough on tiny notebooks: what it says, and what it does on failures."""

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from rich.console import Console

from cca_lab.views.execution import execute
from cca_lab.views.walkthrough import refresh, walkthrough
from tests import small_notebooks

GOOD = ("from cca_lab.views.notebook_tools import check, result\n"
        "check('two is two', 2 == 2, 'n = 2')\nresult('pi', 3.14159, 'rad')")


def said_of(paths, show=None) -> tuple[int, str]:
    console = Console(file=io.StringIO(), width=200)
    return walkthrough(paths, console, show), console.file.getvalue()


def test_what_runs_is_shown_compared_and_counted(tmp_path):
    paths = [small_notebooks.write(tmp_path, "00_a", "# A", GOOD),
             small_notebooks.write(tmp_path, "01_b", "# B", "print(7)")]
    committed = small_notebooks.printed("8\n")
    committed.cells[1].source = "print(7)"
    nbformat.write(committed, paths[1])
    before, shown = paths[1].read_bytes(), {}

    def show(name, notebook):
        shown[name] = notebook.cells[1].outputs
        return Path("page of", name)

    status, said = said_of(paths, show)
    assert status == 0 and "00_a.ipynb: ok" in said and "1 checks passed" in said
    assert "pi = 3.142 rad" in said and f"  {Path('page of', '01_b.ipynb')}" in said
    assert "unlike the committed outputs: cell 1: stdout: 8 became 7" in said
    assert shown["01_b.ipynb"][0].text == "7\n" and paths[1].read_bytes() == before


def test_a_failure_is_named_and_shown_and_ends_the_run(tmp_path):
    paths = [small_notebooks.write(tmp_path, "01_b", "# B", "print('kept')", "1 / 0",
                                   "print('after')"),
             small_notebooks.write(tmp_path, "02_c", "# C", "print('third')")]
    shown = []
    status, said = said_of(paths, lambda name, notebook: shown.append(notebook))
    assert status == 1 and "ZeroDivisionError" in said and "02_c" not in said
    assert "01_b.ipynb failed in cell 2: 1 / 0" in said and "make walkthrough FROM=01" in said
    (ran,) = shown
    assert ran.cells[1].outputs[0].text == "kept\n" and ran.cells[3].outputs == []
    assert ran.cells[2].outputs[0].output_type == "error"


@pytest.mark.skipif(os.name != "posix", reason="only POSIX systems send SIGINT to one process")
def test_an_interruption_ends_with_130(tmp_path):
    path = small_notebooks.write(
        tmp_path, "00_slow", "# Slow",
        "import os, signal, time\nos.kill(os.getppid(), signal.SIGINT)\ntime.sleep(300)")
    program = ("import sys; from pathlib import Path; from rich.console import Console\n"
               "from cca_lab.views.walkthrough import walkthrough\n"
               f"sys.exit(walkthrough([Path({str(path)!r})], Console()))")
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    assert run.returncode == 130, run.stdout + run.stderr
    assert "00_slow.ipynb: interrupted" in run.stdout and "FROM=00" in run.stdout


def test_the_kernel_is_this_interpreter_in_an_empty_folder_offline_and_on_one_thread():
    source = ("import os, sys\nprint(sys.executable, os.listdir(), os.environ['HF_HUB_OFFLINE'], "
              "os.environ['OMP_NUM_THREADS'], 'inline' in os.environ['MPLBACKEND'])")
    notebook = small_notebooks.notebook("# Where", source)
    assert execute(notebook) is None
    assert notebook.cells[1].outputs[0].text == f"{sys.executable} [] 1 1 True\n"


def test_a_dead_kernel_is_a_failure_that_names_the_cell():
    failure = execute(small_notebooks.notebook("# Dies", "import os\nos._exit(9)", "print(1)"))
    assert failure is not None and failure.cell == 1 and "kernel died" in failure.error


def test_refresh_writes_portable_outputs_and_leaves_a_failing_notebook_alone(tmp_path):
    good = small_notebooks.write(tmp_path, "00_good", "# Good", "print('hello')")
    notebook = nbformat.read(good, 4)
    notebook.cells[0].metadata = {"tags": [], "jp-MarkdownHeadingCollapsed": True}
    notebook.cells[1].metadata = {"tags": ["volatile"], "collapsed": True,
                                  "execution": {"iopub.status.busy": "2026-01-01"}}
    nbformat.write(notebook, good)
    bad = small_notebooks.write(tmp_path, "01_bad", "# Bad", "1 / 0")
    before, console = bad.read_bytes(), Console(file=io.StringIO())
    assert refresh([good, bad], console) == 1
    assert bad.read_bytes() == before and "ZeroDivisionError" in console.file.getvalue()
    written = nbformat.read(good, 4)
    assert [cell.metadata for cell in written.cells] == [{"jp-MarkdownHeadingCollapsed": True},
                                                         {"tags": ["volatile"]}]
    assert written.cells[1].outputs[0].text == "hello\n"
    assert written.metadata.kernelspec.name == "python3"
    assert "version" not in written.metadata.language_info
    assert isinstance(written.metadata.cca_lab.seconds, int)
