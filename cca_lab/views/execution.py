"""Run one notebook, cell by cell, in a kernel of the current environment."""

import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from cca_lab.files import in_clone, notebooks_folder

MOST_WAIT = 3600  # seconds of one cell by the clock, however busy the machine is
TRACEBACK_LINES = 14
ANSI = re.compile(r"\x1b\[[0-9;]*m")
KERNEL_SETTINGS = {
    "HF_HUB_OFFLINE": "1",  # a hub name fails at once instead of after a minute
    "TOKENIZERS_PARALLELISM": "false",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",  # on a busy machine, threads of small tensors wait for each other
    "CCA_LAB_WIDGETS": "0",  # pictures are stored; the widget appears when a reader runs the cell
}


@dataclass(frozen=True)
class Failure:
    """Why a notebook stopped."""

    cell: int   # number of the code cell, from 1; it is also the cell's `In [n]`
    line: str   # the first line of that cell
    error: str  # in one line
    traceback: str = ""  # its end, without colours


def is_run(cell: NotebookNode) -> bool:
    """Return whether the kernel runs a cell: it is a code cell and not empty."""
    return cell.cell_type == "code" and bool(cell.source.strip())


def kernel_manager(connections: Path) -> AsyncKernelManager:
    """Return a manager whose `python3` kernel is the current interpreter.

    A kernel named `python3` in the user's own Jupyter folders may belong to another environment; if
    there are no kernel folders to search, ipykernel's own is used. `connections` is an existing
    folder with a short path, because sockets use it.
    """
    manager = AsyncKernelManager(kernel_name="python3",
                                 kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
    manager.connection_file = str(connections / "kernel.json")
    if os.name == "posix":
        manager.transport = "ipc"  # sockets in a private folder instead of open TCP ports
    return manager


def execute(notebook: NotebookNode,
            on_cell: Callable[[int], None] = lambda number: None) -> Failure | None:
    """Run the cells of a notebook in order, fill in the outputs, and stop at the first that fails.

    The kernel works in an empty temporary folder, so notebooks find data only through the package.
    `on_cell` is called before each cell that is run, with its number from 1. After a failure or an
    interruption the cells that did not run are empty.
    """
    import matplotlib.font_manager  # noqa: F401  (builds its cache here, or a notebook says so)

    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    number, line = 0, ""
    with tempfile.TemporaryDirectory(prefix="lab", ignore_cleanup_errors=True) as scratch:
        working, private = Path(scratch, "work"), Path(scratch, "jupyter")
        working.mkdir()
        private.mkdir()
        client = NotebookClient(notebook, km=kernel_manager(private), timeout=MOST_WAIT,
                                startup_timeout=120, record_timing=False, coalesce_streams=True)
        environment = os.environ | KERNEL_SETTINGS | {"IPYTHONDIR": str(private / "ipython")}
        if in_clone():  # modules beside the notebooks are found, as in JupyterLab
            beside = [str(notebooks_folder()), *filter(None, [os.environ.get("PYTHONPATH")])]
            environment["PYTHONPATH"] = os.pathsep.join(beside)
        log = private / "kernel.log"  # messages of the kernel itself, not the output of cells
        with log.open("wb") as messages, client.setup_kernel(
                cleanup_kc=True, cwd=str(working), env=environment, stdout=messages,
                stderr=messages):  # not client.execute, which handles Ctrl-C by itself
            try:
                for index, cell in enumerate(notebook.cells):
                    if is_run(cell):
                        number, line = number + 1, cell.source.strip().splitlines()[0]
                        on_cell(number)
                        client.execute_cell(cell, index)
                return None
            except CellExecutionError as raised:
                error, traceback = f"{raised.ename}: {raised.evalue}", raised.traceback
            except CellTimeoutError:
                error, traceback = f"the cell took longer than {MOST_WAIT} s", ""
            except DeadKernelError:
                error = "the kernel died; most often the memory ran out"
                traceback = log.read_text(encoding="utf-8", errors="replace")
    shown = ANSI.sub("", traceback).splitlines()[-TRACEBACK_LINES:]
    return Failure(number, line, error.splitlines()[0], "\n".join(shown))
