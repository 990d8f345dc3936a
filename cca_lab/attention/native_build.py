"""Where the native op is stored on this machine, and how it is compiled: once, on first use.

The library's name contains a digest of the sources, the compiler's options, the versions of Python
and torch, and the processor, so an outdated library is not used. Each build runs in a temporary
folder and ends by moving the library to its final path: it is never seen incomplete, and no lock is
needed.
"""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

SOURCES = Path(__file__).parent / "cpp"
SWITCH = "CCA_LAB_NATIVE"  # if this variable is 0, "auto" neither builds nor uses the native op
# a build takes half a minute; an older folder belongs to a build that was killed
_STALE_SECONDS = 3600


def switched_off() -> bool:
    """Return whether the user has switched the native op off for "auto"."""
    return os.environ.get(SWITCH) == "0"


def missing() -> str | None:
    """Name what is missing for a build on this machine, or return None."""
    if sys.platform == "win32":
        return "a GCC or Clang compiler, which torch's extension tools do not use on Windows"
    compiler = os.environ.get("CXX", "c++").strip() or "CXX is empty"
    if not shutil.which(compiler.split()[0]):
        return f"a C++ compiler ({compiler}; install g++ or clang, or set CXX)"
    if not shutil.which("ninja", path=_search_path()):
        return "ninja (`pip install ninja`)"
    return None


def library() -> Path:
    """Return the path of the library on this machine, whether it exists or not."""
    return _root() / f"cca_lab-{_digest(SOURCES)}.so"


def build(sources: Path = SOURCES, target: Path | None = None) -> Path:
    """Compile the op and register it in this process, unless the library exists.

    Args:
        sources: the folder with interval_attention.cpp and its headers.
        target: path of the library; None means `library()`.

    Returns:
        The path of the library.

    Raises:
        ValueError: naming what is missing, or with the first compiler error.
    """
    target = target or library()
    if target.is_file():
        return target
    if needed := missing():
        raise ValueError(f'backend: got "native", which cannot be built here: it lacks {needed}; '
                         'wanted that, or backend="blocked" or "auto"')
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(target.parent)
        with TemporaryDirectory(prefix="building-", dir=target.parent) as folder:
            _compile(sources, Path(folder)).replace(target)
    except OSError as error:
        raise ValueError(f"native: cannot write to {target.parent} ({error}); set "
                         "TORCH_EXTENSIONS_DIR to a folder that can be written") from error
    return target


def build_for_auto() -> bool:
    """Build the library for backend "auto", once on a machine, and return whether it is there.

    One line on stderr says that it compiles, and one why it fails; after a failure only `build`
    tries again. Processes that come meanwhile wait.
    """
    target = library()
    failed = target.with_suffix(".failed")
    if target.is_file() or failed.is_file() or missing():
        return target.is_file()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _alone(target.with_suffix(".lock")):
            if target.is_file() or failed.is_file():  # by a process that was here before
                return target.is_file()
            _say(f"compiles once on this machine, about half a minute; {SWITCH}=0 prevents it")
            try:
                build(target=target)
            except ValueError:
                failed.touch()
                raise
    except (ValueError, OSError) as error:
        _say(f"{' '.join(str(error).split())}; attention stays in plain PyTorch, `cca-lab native` "
             "tries again")
    return target.is_file()


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold a lock that one process at a time can have; the system releases it when that ends."""
    import fcntl

    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _say(words: str) -> None:
    print(f"native attention on the CPU: {words}", file=sys.stderr, flush=True)


def _compile(sources: Path, folder: Path) -> Path:
    """Compile in `folder` for this processor and with OpenMP; if that fails, without either."""
    from torch.utils import cpp_extension

    message = ""
    for attempt, flags in enumerate((_flags(), [])):
        build_folder = folder / str(attempt)
        build_folder.mkdir()
        try:
            with _searched(), _quoted(cpp_extension):
                cpp_extension.load(  # which also registers the op in this process
                    name=f"cca_lab_{attempt}", sources=[str(sources / "interval_attention.cpp")],
                    extra_cflags=["-O3", *flags],
                    extra_ldflags=[flag for flag in flags if flag == "-fopenmp"],
                    build_directory=str(build_folder), with_cuda=False, is_python_module=False)
        except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
            message = _last_words(error)
            continue
        return next(build_folder.glob("*.so"))
    raise ValueError(f"native: the compiler fails: {message.strip().rstrip('.')}; fix it, or use "
                     'backend="blocked"')


def _last_words(error: BaseException) -> str:
    """Return the line of a compiler's output that says what is wrong: its first error or its end.

    torch asks the compiler for its version first, in a process of its own.
    """
    asked = isinstance(error, subprocess.CalledProcessError)
    output = getattr(error, "output", None) or b""
    said = output.decode("utf-8", "replace") if asked else str(error)
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith("ninja:")]
    words = next((line for line in lines if "error:" in line), lines[-1] if lines else "")
    return f"{str(error).rstrip('.')}, and says {words!r}" if asked else words or str(error)


def _search_path() -> str:
    """Return PATH with the folder of this Python, where pip puts ninja."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])


@contextmanager
def _searched() -> Iterator[None]:
    """Set PATH to `_search_path` for torch's extension tools."""
    before = os.environ.get("PATH")
    os.environ["PATH"] = _search_path()
    try:
        yield
    finally:
        if before is None:
            del os.environ["PATH"]
        else:
            os.environ["PATH"] = before


@contextmanager
def _quoted(cpp_extension: Any) -> Iterator[None]:
    """Quote the path of torch's libraries, which torch passes unquoted: it may contain a space."""
    before = cpp_extension.TORCH_LIB_PATH
    cpp_extension.TORCH_LIB_PATH = shlex.quote(before).replace("$", "$$")
    try:
        yield
    finally:
        cpp_extension.TORCH_LIB_PATH = before


def _flags() -> list[str]:
    """Return compiler options for threads and for the instructions that torch names."""
    capability = torch.backends.cpu.get_cpu_capability()
    vectors = [f"-DCPU_CAPABILITY={capability}", f"-DCPU_CAPABILITY_{capability}"]
    return [*(vectors if capability in ("AVX2", "AVX512") else []), "-march=native", "-fopenmp"]


@cache
def _digest(sources: Path) -> str:
    """Return 16 hexadecimal digits of what a library depends on, from sources to processor."""
    parts = [torch.__version__, str(sysconfig.get_config_var("SOABI")), *_flags(),
             platform.system(), *platform.libc_ver(), platform.machine(), _processor()]
    parts += [path.name + path.read_text(encoding="utf-8") for path in sorted(sources.iterdir())]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    """Return what identifies the processor (machines may share a home folder)."""
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
        return next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    return platform.processor()


def _root() -> Path:
    """Return the folder of torch's extensions: TORCH_EXTENSIONS_DIR, or one in the user's cache."""
    if folder := os.environ.get("TORCH_EXTENSIONS_DIR"):
        return Path(folder)
    cache_folder = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache_folder) if cache_folder else Path.home() / ".cache") / "torch_extensions"


def _remove_stale(root: Path) -> None:
    """Remove the folders that killed builds left behind."""
    for folder in root.glob("building-*"):
        if time.time() - folder.stat().st_mtime > _STALE_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)
