"""Peak memory of one call, measured in a separate process."""

import multiprocessing
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from cca_lab.freed_memory import give_back

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def peak_of(prepare: Callable[..., Callable[[], object]], *args: object) -> int | None:
    """Return the bytes by which `prepare(*args)()` raises the resident memory at its peak.

    A fresh process calls prepare(*args), whose memory is not counted, and then the call that it returned.

    Args:
        prepare: a function at the top level of a module (it is sent to the process by name).
        args: its arguments.

    Returns:
        Peak extra bytes; None on a system that does not report it (Windows).
    """
    spawn = multiprocessing.get_context("spawn")  # a fork would start from this process's memory
    with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as pool:
        return pool.submit(measure_peak, prepare, *args).result()


def measure_peak(prepare: Callable[..., Callable[[], object]], *args: object) -> int | None:
    """Do the same as `peak_of` in the current process; exact only in a fresh one."""
    call = prepare(*args)
    give_back()  # what prepare freed would serve the call, and not count
    if _CLEAR.exists():
        try:
            _CLEAR.write_text("5")  # Linux: reset the peak to the present resident memory
        except OSError:
            pass  # without permission the peak includes that of `prepare`
    before = _peak()
    call()
    return None if before is None else max(0, _peak() - before)


def _peak() -> int | None:
    """Return the peak resident memory so far, in bytes; None if the system does not report it."""
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
