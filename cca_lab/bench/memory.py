"""Peak memory of one call, each measured in a process of its own."""

import multiprocessing
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def peak_of(prepare: Callable[..., Callable[[], object]], *args: object) -> int | None:
    """Bytes by which `prepare(*args)()` raises the resident memory at its highest point.

    A fresh process calls prepare(*args), whose memory does not count, and then what it returned.

    Args:
        prepare: a function at a module's top level (it is sent to the process by name).
        args: its arguments.

    Returns:
        Peak extra bytes; None on a system that does not tell (Windows).
    """
    spawn = multiprocessing.get_context("spawn")  # a fork would start from this process's memory
    with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as pool:
        return pool.submit(measure_peak, prepare, *args).result()


def measure_peak(prepare: Callable[..., Callable[[], object]], *args: object) -> int | None:
    """`peak_of`, in this process; only exact in a fresh one."""
    call = prepare(*args)
    if _CLEAR.exists():
        try:
            _CLEAR.write_text("5")  # Linux: the high-water mark starts again at what is resident now
        except OSError:
            pass  # without that right the mark is that of `prepare`
    before = _peak()
    call()
    return None if before is None else max(0, _peak() - before)


def _peak() -> int | None:
    """The highest resident memory so far, in bytes; None where the system does not tell."""
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
