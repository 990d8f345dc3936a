"""`cca-lab doctor`: check that all that the lab needs is installed, and say what to do if not."""

import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from cca_lab import extras, files

OK, WARN, FAIL = "ok", "warn", "fail"
INSTALL = 'run `make venv`, or `pip install -c constraints.txt -e ".[dev]"` in the clone'
OLDEST_PYTHON = (3, 11)


@dataclass(frozen=True)
class Check:
    """One finding."""

    name: str  # what was checked
    status: str  # "ok", "warn" (the lab works, not exactly as tested) or "fail"
    message: str
    advice: str = ""  # what to do about it; empty if there is nothing to do

    def __str__(self) -> str:
        line = f"{f'[{self.status}]':<6} {self.name}: {self.message}"
        return f"{line}\n       -> {self.advice}" if self.advice else line


def check_python(running: tuple[int, ...] = sys.version_info[:3]) -> Check:
    """Check the Python version."""
    name = ".".join(map(str, running))
    if running[:2] < OLDEST_PYTHON:
        return Check("Python", FAIL, f"{name} is too old",
                     "install Python 3.11 or newer and make a new environment")
    isolated = sys.prefix != sys.base_prefix or "CONDA_PREFIX" in os.environ
    return Check("Python", OK,
                 f"{name}, {'in its own environment' if isolated else 'not in an environment'}")


def read_pins(text: str) -> dict[str, Version]:
    """Return the pins of a constraints file that apply to this platform, by canonical name."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    pins = [Requirement(line) for line in lines if line]
    return {canonicalize_name(pin.name): Version(next(iter(pin.specifier)).version)
            for pin in pins if pin.marker is None or pin.marker.evaluate()}


def check_package(requirement: Requirement, pin: Version | None, extra: str = "") -> Check:
    """Compare an installed package with its range and its pin; `extra` is what requires it."""
    worst = WARN if extra else FAIL
    install = INSTALL if files.in_clone() or not extra else extras.install(extra)
    try:
        installed = version(requirement.name)
    except PackageNotFoundError:
        if extra and not files.in_clone():
            return Check(requirement.name, OK, f"not installed; only the extra {extra} needs it")
        return Check(requirement.name, worst, f"not installed, wanted {requirement.specifier}",
                     install)
    public, told = Version(installed).public, f"{installed}, wanted {requirement.specifier}"
    if not requirement.specifier.contains(public, prereleases=True):
        return Check(requirement.name, worst, told, install)
    if pin is not None and public != pin.public:
        return Check(requirement.name, WARN, f"{installed}, tested with {pin}",
                     f"if something fails, {install}")
    return Check(requirement.name, OK, installed)


def check_packages() -> Iterator[Check]:
    """Check each package that the project requires, once; those for developers only in a clone."""
    pins, groups = {}, ("", *extras.EXTRAS)
    if files.in_clone():
        constraints = files.repository() / "constraints.txt"
        pins, groups = read_pins(constraints.read_text(encoding="utf-8")), (*groups, "dev")
    try:
        requirements = [Requirement(text) for text in requires("cca-lab") or []]
    except PackageNotFoundError:
        yield Check("cca-lab", FAIL, "is not installed here, only imported", INSTALL)
        return
    seen = set()  # several extras want the same package
    for requirement in requirements:
        requiring = [extra for extra in groups
                     if requirement.marker is None or requirement.marker.evaluate({"extra": extra})]
        wanted = canonicalize_name(requirement.name), str(requirement.specifier)
        # dev lists the other extras as requirements
        if requiring and not requirement.extras and wanted not in seen:
            seen.add(wanted)
            yield check_package(requirement, pins.get(canonicalize_name(requirement.name)),
                                requiring[0])


def check_device() -> Check:
    """Report the GPU, if there is one."""
    import torch

    if not torch.cuda.is_available():
        return Check("GPU", OK,
                     f"none; everything runs on the CPU ({torch.get_num_threads()} threads)")
    device = torch.cuda.get_device_properties(0)
    return Check("GPU", OK, f"{device.name}, compute capability {device.major}.{device.minor}, "
                            f"{device.total_memory / 2**30:.0f} GiB")


def check_triton() -> Check:
    """Report how Triton kernels can run on this machine."""
    import torch

    try:
        import triton  # noqa: F401  (only to see whether it is present)
    except ImportError:
        instead = "the lab's own interpreter runs kernels (TRITON_INTERPRET=1)"
        if sys.platform == "linux":
            return Check("Triton", WARN, f"not importable; {instead}", INSTALL)
        return Check("Triton", OK, f"not made for {platform.system()}; {instead}")
    if os.environ.get("TRITON_INTERPRET") == "1":
        return Check("Triton", OK, "interprets kernels (TRITON_INTERPRET=1): correct, but slow")
    if torch.cuda.is_available():
        return Check("Triton", OK, "compiles kernels for the GPU")
    return Check("Triton", OK, "importable, no driver: kernels can be interpreted "
                               "(TRITON_INTERPRET=1) or compiled offline")


def check_native() -> Check:
    """Report which backend "auto" uses for attention on the CPU, and how to change it."""
    from cca_lab.attention import native_build as native
    from cca_lab.attention.native import bfloat16_units, built

    name = "CPU attention"
    if native.library().is_file():
        if native.switched_off():
            return Check(name, OK, "blocked, in plain PyTorch; the native op is built, but "
                                   f"{native.SWITCH}=0")
        if not built():
            return Check(name, WARN, f"blocked, in plain PyTorch: {native.library()} cannot be "
                                     "loaded; delete it and run `cca-lab native`")
        bfloat16 = ("and bfloat16" if bfloat16_units() else
                    "bfloat16 stays with PyTorch: no AVX512-BF16 here")
        return Check(name, OK, f"native, in C++: float32, float64, {bfloat16}; {native.SWITCH}=0 "
                               "switches back to plain PyTorch")
    if needed := native.missing():
        return Check(name, OK, f"blocked, in plain PyTorch; the faster native op needs {needed}")
    return Check(name, OK, "native, in C++, once it is compiled: at its first use, or now by "
                           f"`cca-lab native`; {native.SWITCH}=0 prevents it")


def check_kernel() -> Check:
    """Check that JupyterLab's `python3` is this interpreter; the walkthrough does without it."""
    from jupyter_client.kernelspec import KernelSpecManager

    command = KernelSpecManager().get_kernel_spec("python3").argv[0]
    here = {sys.executable, "python", "python3", Path(sys.executable).name}
    if command in here or Path(command).absolute() == Path(sys.executable).absolute():
        return Check("Jupyter kernel", OK, "python3 is this interpreter")
    return Check("Jupyter kernel", WARN, "python3 in JupyterLab is another interpreter",
                 "run `python -m ipykernel install --sys-prefix` in this environment")


def check_data() -> Iterator[Check]:
    """Compare the shipped models and results with their checksums."""
    restore = "install cca-lab again"
    if files.in_clone():
        restore = "restore it with `git checkout -- data`"
    try:
        data = files.data_folder()
        problems = files.checksum_problems(data)
    except ValueError as error:
        message, _, advice = str(error).partition("; ")
        yield Check("shipped data", FAIL, message, advice)
        return
    for problem in problems:
        status = WARN if problem.startswith("not listed") else FAIL
        advice = restore if status == FAIL else "maintainers: `cca-lab checksums --write`"
        yield Check("shipped data", status, problem, advice)
    if not problems:
        names = files.covered_files(data)
        size = sum((data / name).stat().st_size for name in names) / 2**20
        yield Check("shipped data", OK, f"{len(names)} files, {size:.1f} MiB, as shipped")


def examine() -> Iterator[Check]:
    """Run every check; a check that raises an exception is itself a finding."""
    probes: list[Callable[[], Check | Iterable[Check]]] = [
        check_python, check_packages, check_device, check_triton, check_native, check_kernel,
        check_data]
    for probe in probes:
        try:
            findings = probe()
            yield from [findings] if isinstance(findings, Check) else findings
        except ModuleNotFoundError as error:
            advice = extras.advice(error.name)
            yield Check(probe.__name__.removeprefix("check_"), WARN if advice else FAIL,
                        f"{error.name} is not installed", advice or INSTALL)
        # a broken package may raise any exception; the other checks still run
        except Exception as error:
            yield Check(probe.__name__.removeprefix("check_"), FAIL,
                        f"{type(error).__name__}: {error}", INSTALL)


def run() -> int:
    """Print every finding and return the exit status: 1 if something fails, else 0."""
    counts = {OK: 0, WARN: 0, FAIL: 0}
    for finding in examine():
        counts[finding.status] += 1
        print(finding, flush=True)
    print(f"\n{counts[OK]} ok, {counts[WARN]} to look at, {counts[FAIL]} failed")
    return 1 if counts[FAIL] else 0
