"""`cca-lab doctor`: check that all that the lab needs is installed, and say what to do if not."""

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
    public = Version(installed).public
    if not requirement.specifier.contains(public, prereleases=True):
        return Check(requirement.name, worst, f"{installed}, wanted {requirement.specifier}",
                     install)
    if pin is not None and public != pin.public:
        return Check(requirement.name, WARN, f"{installed}, tested with {pin}",
                     f"if something fails, {install}")
    return Check(requirement.name, OK, installed)


def check_packages() -> Iterator[Check]:
    """Check each package that the project requires; those for developers only in a clone."""
    pins, groups = {}, ("", *extras.EXTRAS)
    if files.in_clone():
        constraints = files.repository() / "constraints.txt"
        pins, groups = read_pins(constraints.read_text(encoding="utf-8")), (*groups, "dev")
    found: dict[str, Check] = {}  # several extras want the same package
    for requirement in map(Requirement, requires("cca-lab") or []):
        requiring = [extra for extra in groups
                     if requirement.marker is None or requirement.marker.evaluate({"extra": extra})]
        name = canonicalize_name(requirement.name)
        if requiring and not requirement.extras and name not in found:  # dev lists other extras
            found[name] = check_package(requirement, pins.get(name), requiring[0])
    yield from found.values()


def check_gpu() -> Check:
    """Report the GPU, if there is one, and how Triton kernels can run on this machine."""
    import torch

    if torch.cuda.is_available():
        card = torch.cuda.get_device_properties(0)
        where = f"{card.name}, {card.total_memory / 2**30:.0f} GiB"
    else:
        where = f"none; everything runs on the CPU ({torch.get_num_threads()} threads)"
    try:
        import triton  # noqa: F401  (only to see whether it is present)
    except ImportError:
        return Check("GPU", OK, f"{where}; no Triton, so the lab's own interpreter runs kernels")
    return Check("GPU", OK, f"{where}; Triton can compile kernels, and interpret them on the CPU")


def check_native() -> Check:
    """Report which backend "auto" uses for attention on the CPU, and how to change it."""
    from cca_lab.attention import native_build as native
    from cca_lab.attention.native import built

    name, switch = "CPU attention", f"{native.SWITCH}=0"
    if native.switched_off():
        return Check(name, OK, f"blocked, in plain PyTorch, because {switch}")
    if not native.library().is_file():
        if needed := native.missing():
            return Check(name, OK, f"blocked, in plain PyTorch; the faster C++ op needs {needed}")
        return Check(name, OK, "native, in C++, once it is compiled: at its first use, or now by "
                               f"`cca-lab native`; {switch} prevents it")
    if not built():
        return Check(name, WARN, f"blocked, in plain PyTorch: {native.library()} cannot be loaded",
                     "delete it and run `cca-lab native`")
    return Check(name, OK, f"native, in C++; {switch} switches back to plain PyTorch")


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
    restore = "restore it with `git checkout -- data`" if files.in_clone() else \
        "install cca-lab again"
    try:
        data = files.data_folder()
        problems = files.checksum_problems(data)
    except ValueError as error:
        message, _, advice = str(error).partition("; ")
        yield Check("shipped data", FAIL, message, advice)
        return
    for problem in problems:
        new = problem.startswith("not listed")
        yield Check("shipped data", WARN if new else FAIL, problem,
                    "maintainers: `cca-lab checksums --write`" if new else restore)
    if not problems:
        yield Check("shipped data", OK, f"{len(files.covered_files(data))} files, as shipped")


def examine() -> Iterator[Check]:
    """Run every check; a check that raises an exception is itself a finding."""
    probes: list[Callable[[], Check | Iterable[Check]]] = [
        check_packages, check_gpu, check_native, check_kernel, check_data]
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
