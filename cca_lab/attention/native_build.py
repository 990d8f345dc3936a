"""Where the native op lives on this machine, and how it is compiled: once, when it is first asked for.

The library's name holds a digest of the sources, the compiler's options, the torch version and the processor,
so that a library that is there fits, and one that no longer fits is not found. A build happens in a folder of its
own and ends by moving the library to its place: nothing half-built is ever found, and there is no lock to wait for.
"""

import hashlib
import os
import platform
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

SOURCES = Path(__file__).parent / "cpp"
SWITCH = "CCA_LAB_NATIVE"  # set to 0, "auto" does not take the native op
_STALE_SECONDS = 3600  # a build takes half a minute; a folder this old was left by one that was killed


def switched_off() -> bool:
    """Whether the user keeps "auto" from the native op."""
    return os.environ.get(SWITCH) == "0"


def missing() -> str | None:
    """Name what a build lacks here, or return None."""
    if sys.platform == "win32":
        return "a GCC or Clang compiler, which torch's extension tools do not use on Windows"
    compiler = os.environ.get("CXX", "c++")
    if not shutil.which(compiler.split()[0]):
        return f"a C++ compiler ({compiler}; install g++ or clang, or set CXX)"
    if not shutil.which("ninja", path=_search_path()):
        return "ninja (`pip install ninja`)"
    return None


def library() -> Path:
    """Return the path that the library has on this machine, whether it is there or not."""
    return _root() / f"cca_lab-{_digest(SOURCES)}.so"


def build(sources: Path = SOURCES, target: Path | None = None) -> Path:
    """Compile the op and register it in this process, unless the library is there.

    Args:
        sources: the folder with interval_attention.cpp and its headers.
        target: where the library goes; None means `library()`.

    Returns:
        The path of the library.

    Raises:
        ValueError: naming what is missing, or with the compiler's first complaint.
    """
    target = target or library()
    if target.is_file():
        return target
    if lacking := missing():
        raise ValueError(f'backend: got "native", which cannot be built here: it lacks {lacking}; wanted that, or '
                         'backend="blocked" or "auto"')
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(target.parent)
        with TemporaryDirectory(prefix="building-", dir=target.parent) as folder:
            _compile(sources, Path(folder)).replace(target)
    except OSError as error:
        raise ValueError(f"native: cannot write to {target.parent} ({error}); set TORCH_EXTENSIONS_DIR to a folder "
                         "that can be written") from error
    return target


def _compile(sources: Path, folder: Path) -> Path:
    """Compile in `folder` with the processor's instructions and OpenMP, or failing that without."""
    from torch.utils import cpp_extension

    complaint = ""
    for attempt, flags in enumerate((_flags(), [])):
        place = folder / str(attempt)
        place.mkdir()
        try:
            with _searched(), _quoted(cpp_extension):
                cpp_extension.load(  # which also registers the op in this process
                    name=f"cca_lab_{attempt}", sources=[str(sources / "interval_attention.cpp")],
                    extra_cflags=["-O3", *flags], extra_ldflags=[flag for flag in flags if flag == "-fopenmp"],
                    build_directory=str(place), with_cuda=False, is_python_module=False)
        except (RuntimeError, OSError) as error:
            complaint = next((line for line in str(error).splitlines() if "error:" in line), str(error))
            continue
        return next(place.glob("*.so"))
    raise ValueError(f"native: the compiler fails: {complaint.strip()}; mend it, or use backend=\"blocked\"")


def _search_path() -> str:
    """PATH, and the folder of this Python, where pip puts ninja; an environment need not be activated."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])


@contextmanager
def _searched() -> Iterator[None]:
    """Let torch's extension tools look for programs along `_search_path`."""
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
    """Quote the folder of torch's libraries, which torch hands to ninja's shell as it is: it may hold a space."""
    before = cpp_extension.TORCH_LIB_PATH
    cpp_extension.TORCH_LIB_PATH = shlex.quote(before).replace("$", "$$")
    try:
        yield
    finally:
        cpp_extension.TORCH_LIB_PATH = before


def _flags() -> list[str]:
    """The processor's instructions, as torch names them, and threads."""
    capability = torch.backends.cpu.get_cpu_capability()
    vectors = [f"-DCPU_CAPABILITY={capability}", f"-DCPU_CAPABILITY_{capability}"]
    return [*(vectors if capability in ("AVX2", "AVX512") else []), "-march=native", "-fopenmp"]


@cache
def _digest(sources: Path) -> str:
    """Sixteen hexadecimal digits that change with the sources, options, torch, system and processor."""
    parts = [torch.__version__, *_flags(), platform.system(), *platform.libc_ver(), platform.machine(), _processor()]
    parts += [path.name + path.read_text(encoding="utf-8") for path in sorted(sources.iterdir())]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    """What tells processors apart that share a home folder: their instructions where Linux lists them."""
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
        return next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    return platform.processor()


def _root() -> Path:
    """The folder of torch's extensions: TORCH_EXTENSIONS_DIR, or the user's cache."""
    if folder := os.environ.get("TORCH_EXTENSIONS_DIR"):
        return Path(folder)
    cache_folder = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache_folder) if cache_folder else Path.home() / ".cache") / "torch_extensions"


def _remove_stale(root: Path) -> None:
    """Remove what killed builds left."""
    for folder in root.glob("building-*"):
        if time.time() - folder.stat().st_mtime > _STALE_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)
