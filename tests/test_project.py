"""The project around the code: pins, environments, make targets, and the manners of the package."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from cca_lab import extras, files
from tests.conftest import SLOW

ROOT = files.repository()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODULES = sorted((ROOT / "cca_lab").rglob("*.py"))
MOST_MODULE_LINES = 700
MOST_FUNCTION_LINES = 60  # without the docstring
MACHINE_PATH = re.compile(r"/(?:home|root|tmp|work|Users)/[A-Za-z.]|\b[A-Z]:\\\\?[A-Z]")
# What torch pins itself in its CUDA build, and what only the installer uses.
NOT_OURS_TO_PIN = re.compile(r"^(nvidia|cuda)-|^(pip|wheel)$")


def requirements(*groups: str) -> list[Requirement]:
    """Return the project's requirements, with those of the named extras and of what these name."""
    texts = [*PROJECT["dependencies"], *(text for group in groups
                                         for text in PROJECT["optional-dependencies"][group])]
    every = [Requirement(text) for text in texts]
    named = {extra for each in every if each.name == PROJECT["name"] for extra in each.extras}
    return requirements(*groups, *named) if named - set(groups) else \
        [requirement for requirement in every if requirement.name != PROJECT["name"]]


def pins() -> dict[str, Requirement]:
    """Return the lines of constraints.txt by canonical name."""
    lines = (line.partition("#")[0].strip()
             for line in (ROOT / "constraints.txt").read_text().splitlines())
    listed = [Requirement(line) for line in lines if line]
    by_name = {canonicalize_name(pin.name): pin for pin in listed}
    assert len(by_name) == len(listed), "a package is pinned twice"
    return by_name


def exact(pin: Requirement) -> str:
    """Return the version of a pin, or fail if it is not one exact public version."""
    (specifier,) = pin.specifier
    public = re.fullmatch(r"[0-9a-z.]+", specifier.version)
    assert specifier.operator == "==" and public, f"not exact: {pin}"
    return specifier.version


def needed_here() -> set[str]:
    """Return the name of every installed package that the project leads to."""
    seen: set[tuple[str, frozenset[str]]] = set()
    todo = requirements("dev")
    while todo:
        requirement = todo.pop()
        name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if (name, extras) in seen or (requirement.marker and not requirement.marker.evaluate()):
            continue
        seen.add((name, extras))
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            pytest.fail(f"{requirement} is not installed; run `make venv`")
        for child in map(Requirement, installed.requires or []):
            marker, child.marker = child.marker, None
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in {"", *extras}):
                todo.append(child)
    return {name for name, _ in seen}


def test_each_direct_dependency_is_pinned_within_its_range():
    for requirement in requirements("dev"):
        pin = pins().get(canonicalize_name(requirement.name))
        assert pin is not None, f"{requirement} has no pin in constraints.txt"
        assert requirement.specifier.contains(exact(pin)), f"{pin} is outside of {requirement}"


def test_everything_installed_for_the_project_is_pinned_exactly():
    pinned = pins()
    unpinned = {name for name in needed_here() - set(pinned) if not NOT_OURS_TO_PIN.match(name)}
    assert not unpinned, f"add to constraints.txt: {sorted(unpinned)}"
    assert all(map(exact, pinned.values()))


def test_conda_environment_installs_the_same():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    conda = [entry for entry in environment["dependencies"] if isinstance(entry, str)]
    (pip,) = (entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    names = {re.split("[=<>]", entry)[0] for entry in conda}
    assert names == {"python", "pip"}, "packages come from pip, with the pins"
    (python,) = (entry.partition("=")[2] for entry in conda if entry.startswith("python"))
    assert SpecifierSet(PROJECT["requires-python"]).contains(f"{python}.0")
    options = {line.split()[0]: line.split()[1] for line in pip}
    assert options == {"-c": "constraints.txt", "-e": ".[dev]"}, "the same line as in the Makefile"
    assert '-c constraints.txt -e ".[dev]"' in (ROOT / "Makefile").read_text()
    assert environment["name"] == PROJECT["name"]


def test_imports_are_declared():
    extra = requirements("models", "notebooks", "course", "proofs", "docs")
    declared = {canonicalize_name(requirement.name) for requirement in extra}
    declared.add("cca-lab")
    for module in MODULES:
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else \
                [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            for top in {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names):
                if module.name == "child.py" and module.with_name(f"{top}.py").is_file():
                    continue  # a script, which runs where the package is not there
                name = canonicalize_name(extras.DISTRIBUTIONS.get(top, top))
                assert name in declared, f"{module.name} imports {top}; name it in pyproject.toml"


def make(*arguments: str) -> str:
    """Return what `make` prints; its environment counts as installed."""
    if not shutil.which("make"):
        pytest.skip("make is not installed; README gives the same commands without it")
    return subprocess.run(["make", "--no-print-directory", "-o", ".venv/.installed", *arguments],
                          cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_make_alone_explains_every_target():
    shown = make()
    (targets,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in set(targets.split()) - {"help"}:
        assert re.search(rf"^make {target}\b", shown, re.MULTILINE), f"`make` omits {target}"
        make("-n", target)


def test_quick_tests_and_nightly_tests_leave_out_what_they_say():
    markers = {target: re.findall(r'-m "([^"]+)"', make("-n", target))
               for target in ("quick", "test", "test-all")}
    assert markers == {"quick": ["not slow and not nightly"], "test": ["not nightly"],
                       "test-all": []}
    assert [name for name in SLOW if not (ROOT / "tests" / name).exists()] == []


def test_continuous_integration_runs_make_test():
    script = ROOT / ".ci" / "run"
    assert "\nmake test\n" in script.read_text()
    assert sys.platform == "win32" or script.stat().st_mode & 0o111, ".ci/run is not executable"


def test_help_is_quick_because_nothing_heavy_is_imported():
    heavy = "{'torch', 'transformers', 'matplotlib', 'nbclient', 'numpy'}"
    program = ("import sys\nfrom cca_lab.cli import app\n"
               "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
               f"sys.exit(', '.join({heavy} & set(sys.modules)))")
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                         check=False)
    assert run.stderr.strip() == "", f"`cca-lab --help` imports {run.stderr}"
    for command in ("doctor", "walkthrough", "study"):
        assert command in run.stdout


def test_ruff_has_nothing_to_say():
    run = subprocess.run([sys.executable, "-m", "ruff", "check", "--no-cache", "."], cwd=ROOT,
                         capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


def mypy(*arguments: str) -> str:
    """Return what mypy says; what it knows of torch stays in build/mypy for the next run."""
    return subprocess.run([sys.executable, "-m", "mypy", "--no-error-summary", *arguments],
                          cwd=ROOT, capture_output=True, text=True, check=False).stdout


def test_mypy_has_nothing_to_say():
    assert mypy() == ""


def test_no_file_names_a_path_of_one_machine():
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("not a git clone: the committed files cannot be listed")
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for path in (ROOT / name for name in listed if (ROOT / name).is_file()):
        content = path.read_bytes()
        text = "" if b"\0" in content else content.decode("utf-8", errors="replace")
        named = MACHINE_PATH.search(text)
        assert not named, f"{path}: {text[max(named.start() - 40, 0):named.end() + 40]!r}"


def test_modules_and_functions_are_short():
    long = []
    for module in MODULES:
        source = module.read_text(encoding="utf-8")
        if len(source.splitlines()) > MOST_MODULE_LINES:
            long.append(module.name)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                documented = ast.get_docstring(node) and len(node.body) > 1
                if node.end_lineno - node.body[bool(documented)].lineno >= MOST_FUNCTION_LINES:
                    long.append(f"{module.name}: {node.name}")
    assert not long
