"""The small core works without the extras, and what needs one says so in one line."""

import os
import re
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cca_lab import extras, files

ROOT = files.repository()
CORE = ("attention", "cli", "files", "mechanisms", "settings", "tasks", "theory")
CACHE = re.compile(r"^cca_lab\.mechanisms\..*(cach|ragged)")  # what decodes needs transformers
# As if they were not installed; SciPy takes any entry for Sphinx to mean that it is running.
HIDDEN = [name for name in extras.EXTRA_OF if name != "sphinx"]
WITHOUT = f"import sys\nsys.modules |= dict.fromkeys({HIDDEN})\n"


def without_extras(program: str, *arguments: str) -> subprocess.CompletedProcess:
    """Run a program in a Python that finds no package of an extra."""
    return subprocess.run([sys.executable, "-c", WITHOUT + program, *arguments], cwd=ROOT,
                          capture_output=True, text=True, check=False,
                          env=os.environ | {"PYTHONPATH": str(ROOT)})


def test_extras_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = project["optional-dependencies"]
    assert set(named) == {*extras.EXTRAS, "dev"}
    for extra, packages in extras.EXTRAS.items():
        ours = {canonicalize_name(extras.DISTRIBUTIONS.get(name, name)) for name in packages}
        theirs = {canonicalize_name(Requirement(text).name) for text in named[extra]}
        assert ours == theirs - {"cca-lab"}


def test_the_core_needs_no_extra():
    files = sorted((ROOT / "cca_lab").rglob("*.py"))
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files]
    core = [name for name in modules if name.split(".")[1] in CORE and not CACHE.search(name)]
    assert 80 < len(core) < len(modules)
    done = without_extras(
        "import importlib\nfor name in sys.argv[1:]:\n    importlib.import_module(name)", *core)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("statement, extra", [
    ("from cca_lab.models import swap_attention", "models"),
    ("import cca_lab.mechanisms.caches", "models"),
    ("import cca_lab.views.figures.costs", "notebooks")])
def test_a_package_that_needs_an_extra_names_it(statement, extra):
    done = without_extras(statement)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: ") and last.endswith(
        f'run `pip install "cca-lab[{extra}]"`'), last


@pytest.mark.parametrize("arguments, code, words", [
    (["verify", "T1"], 0, ""),
    (["doctor"], 0, ""),
    (["evaluate", "--model", "data/models/gpt2-mini"], 2, 'run `pip install "cca-lab[models]"`'),
    (["walkthrough"], 2, 'run `pip install "cca-lab[notebooks]"`'),
], ids=lambda value: value[0] if isinstance(value, list) else "")
def test_commands_without_the_extras(arguments, code, words):
    done = without_extras("from cca_lab.cli import app\napp()", *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if code:
        assert done.stderr.startswith("error: ") and words in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_module_that_no_extra_brings_is_no_business_of_ours():
    assert extras.advice("nbformat.v4") == 'run `pip install "cca-lab[notebooks]"`'
    assert extras.advice("cca_lab.gone") is None and extras.advice(None) is None
