"""What notebooks call: the switch before Triton, sources, a bar without times."""

import itertools
import subprocess
import sys
from types import SimpleNamespace

import pytest

from cca_lab.attention.fused import installed
from cca_lab.files import repository
from cca_lab.views import notebook_tools, reader
from cca_lab.views.notebook_tools import live_progress


def run(program: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=repository(), capture_output=True, text=True, check=False)


@pytest.mark.skipif(not installed(), reason="triton exists for Linux only")
def test_kernels_are_interpreted_after_the_call():
    done = run(
        "from cca_lab.views.notebook_tools import interpret_kernels\n"
        "interpret_kernels()\ninterpret_kernels()\n"
        "import torch\n"
        "from cca_lab.mechanisms import Full\n"
        "x = torch.randn(1, 1, 5, 4)\n"
        "kernel, dense = Full(backend='triton'), Full()\n"
        "error = (kernel.attention(x, x, x) - dense.attention(x, x, x)).abs().max()\n"
        "assert error < 1e-6, error")
    assert done.returncode == 0, done.stderr


def test_nothing_that_a_first_cell_imports_imports_triton():
    done = run("import torch\nfrom cca_lab.course import your_turn\nimport cca_lab.views.reader\n"
               "from cca_lab.views.notebook_tools import interpret_kernels\ninterpret_kernels()")
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not installed(), reason="triton exists for Linux only")
def test_a_call_that_comes_too_late_says_so():
    done = run("import triton\nfrom cca_lab.views.notebook_tools import interpret_kernels\n"
               "interpret_kernels()")
    assert done.returncode != 0 and "restart the notebook's kernel" in done.stderr


def test_without_triton_it_says_so_and_goes_on():
    done = run(
        "from importlib import util\nfind = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name == 'triton' else find(name, *rest)\n"
        "from cca_lab.views.notebook_tools import interpret_kernels\n"
        "interpret_kernels()")
    assert done.returncode == 0, done.stderr
    assert "the lab's own interpreter runs the kernels" in done.stdout


class Screen:
    """What a notebook shows: IPython's `display`, with a handle where it is asked for one."""

    def __init__(self):
        self.shown = []

    def display(self, thing, display_id=False):
        self.shown.append(thing.data)
        return self if display_id else None

    def update(self, thing):
        self.shown.append(thing.data)


def total_of(a, b):
    r"""Add, $a \oplus b$, as ```+``` does."""
    total = 0
    for part in (a, b):
        total += part  # the sum
    return total


def test_a_source_is_shown_after_its_turn_and_as_a_difference_where_the_two_are_alike(
        monkeypatch, capsys):
    screen, yours = Screen(), """def total(a, b):
    total = 0
    for part in (a,  b):  # mine
        total += part
        return total
"""
    monkeypatch.setattr(notebook_tools, "display", screen.display)
    monkeypatch.setattr(reader, "_entries", {})
    notebook_tools.show_source(total_of, after="99.1")
    assert not screen.shown and "once your turn 99.1 is done" in capsys.readouterr().out
    for source in (yours, "def total(a, b):\n    return a + b\n", ""):
        reader.written("99.1", "a sum", True, source=source)
        notebook_tools.show_source(total_of, after="99.1")
    difference, *sources = screen.shown
    assert difference.splitlines() == [
        "```diff", "- yours, + the package's", "- def total(a, b):", "+ def total_of(a, b):",
        "      total = 0", "      for part in (a, b):", "          total += part  # the sum",
        "-         return total", "+     return total", "```"]
    assert all(shown.startswith('````python\ndef total_of(a, b):\n    r"""Add, ')
               and shown.endswith("    return total\n````") for shown in sources)


def shown_while(monkeypatch, total, reports, seconds=2.0):
    """Return the texts of a bar whose reports come so many seconds after each other."""
    screen, clock = Screen(), itertools.count(100.0, seconds)
    monkeypatch.setattr(notebook_tools, "display", screen.display)
    monkeypatch.setattr(notebook_tools, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    with live_progress("training", total) as report:
        for each in reports:
            report(*each)
    return screen.shown


def test_a_bar_moves_and_ends_as_one_line_without_times(monkeypatch):
    """So that a notebook that is run again is the same file."""
    begun, first, second, ended = shown_while(monkeypatch, 4, [(1, "loss 3"), (4, "loss 2")])
    assert begun == "training: 0 of 4" and ended == "training: 4 of 4 done"
    # 2 s for one of four
    assert first == "training [########......................] 1 of 4  loss 3  6 s left"
    assert second == f"training [{30 * '#'}] 4 of 4  loss 2  0 s left"
    slower = shown_while(monkeypatch, 4, [(1, "loss 3"), (4, "loss 2")], seconds=3.0)
    assert slower[1] != first and slower[-1] == ended
