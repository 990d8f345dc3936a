"""Settings of the whole suite, which stand before any import of torch or transformers."""

import os
import signal
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["MPLBACKEND"] = "Agg"
# "auto" means the same on every machine, and what tests build is kept for the next run, out of the
# user's cache.
os.environ["CCA_LAB_NATIVE"] = "0"
os.environ["TORCH_EXTENSIONS_DIR"] = str(Path(__file__).parents[1] / "build" / "native")

# workers share the cores: several threads each would only wait
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

# A shell lets its background jobs ignore Ctrl-C, which some tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples every time, and no deadline: how fast a machine is does not decide a test.
settings.register_profile("lab", deadline=None, derandomize=True)
settings.load_profile("lab")

# Not in `make quick`: folders and files that train, compile, run notebooks or start programs.
SLOW = ("course", "attention/kernels", "mechanisms", "models", "studies",
        "attention/test_fused.py", "attention/test_native.py", "attention/test_native_bf16.py",
        "attention/test_kernels.py", "attention/test_kernels_offline.py", "test_docs.py",
        "test_extras.py", "test_notebooks.py", "test_wheel.py", "theory/test_claims.py",
        "theory/test_forall.py", "views/explorer/test_browser.py", "views/test_notebook_tools.py",
        "views/test_site.py", "views/test_walkthrough.py")


def pytest_xdist_auto_num_workers() -> int:
    """Return one worker more than there are cores: some tests wait for a browser or a clock."""
    return min(4, (os.cpu_count() or 1) + 1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what stands in `SLOW`; each worker begins with some of the longest.

    At first each is given as many tests, in a row; with the longest in one row, one worker would
    run them alone.
    """
    slow = [Path(__file__).parent / name for name in SLOW]
    for item in items:
        if any(item.path.is_relative_to(place) for place in slow):
            item.add_marker("slow")
    first = ("test_notebooks.py", "test_kernels_offline.py", "test_kernels.py", "test_docs.py")
    long = [item for item in items if item.path.name in first]
    others = [item for item in items if item.path.name not in first]
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    bounds = [worker * len(others) // workers for worker in range(workers + 1)]
    items[:] = [item for worker in range(workers) for item in (
        *long[worker::workers], *others[bounds[worker] : bounds[worker + 1]])]
