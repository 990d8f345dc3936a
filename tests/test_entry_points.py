"""Binder and Colab: what each would install; the scripts' python only notes how it is called."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from cca_lab import files

ROOT = files.repository()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
# What Colab's own kernel is made of: a lab that changes it below a running session loses the
# session.
KERNEL = {"ipykernel", "ipython", "ipywidgets", "jupyter-client", "tornado", "traitlets", "pyzmq"}
NOTES = '#!/bin/sh\npwd > "$NOTES"\nfor word in "$@"; do echo "$word" >> "$NOTES"; done\n' \
        'while [ $# -gt 0 ]; do [ "$1" = -c ] && cp "$2" "$NOTES.pins"; shift; done\n'


def pins(text: str) -> dict[str, str]:
    """Return the pins of a constraints file, by canonical name."""
    lines = (line.partition("#")[0] for line in text.splitlines())
    listed = [Requirement(line) for line in lines if line.strip()]
    return {canonicalize_name(pin.name): str(pin.specifier) for pin in listed}


PINS = pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))


def called(script: str, tmp_path: Path, folder: Path = ROOT) -> list[str]:
    """Run a script, and return the words behind `pip install` of its last call, in the clone.

    The pins in the file behind -c are those of the lab, as far as there are any.
    """
    if not shutil.which("bash"):
        pytest.skip("bash is not installed: the script cannot run")
    for name in ("python", "python3"):
        (tmp_path / name).write_text(NOTES)
        (tmp_path / name).chmod(0o755)
    notes = tmp_path / "notes"
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
                                "NOTES": str(notes)}
    subprocess.run(["bash", str(ROOT / "binder" / script)], cwd=folder, env=environment,
                   capture_output=True, check=True)
    where, *words = notes.read_text().replace("\nuv\n", "\n").splitlines()
    assert words[:3] == ["-m", "pip", "install"] and Path(where).resolve() == ROOT.resolve()
    assert pins((tmp_path / "notes.pins").read_text()).items() <= PINS.items()
    (project,) = re.findall(r"^\.\[(.*)\]$", "\n".join(words), re.MULTILINE)
    assert set(project.split(",")) <= set(EXTRAS)
    return words[3:]


def test_binder_installs_the_pins_of_the_lab(tmp_path):
    words = called("postBuild", tmp_path)
    assert words[words.index("-c") + 1] == "constraints.txt"
    assert words[words.index("--torch-backend") + 1] == "cpu"


def test_binder_has_the_python_of_the_conda_environment():
    ours, binder = (yaml.safe_load((ROOT / path).read_text())
                    for path in ("environment.yml", "binder/environment.yml"))
    assert binder["dependencies"] == [entry
                                      for entry in ours["dependencies"] if isinstance(entry, str)]
    assert (binder["name"], binder["channels"]) == (ours["name"], ours["channels"])


def test_colab_gets_the_pins_but_keeps_its_kernel(tmp_path):
    elsewhere = tmp_path / "content"
    elsewhere.mkdir()
    words = called("colab.sh", tmp_path, elsewhere)
    pinned = set(pins((tmp_path / "notes.pins").read_text()))
    asked = {canonicalize_name(word) for word in words if re.fullmatch(r"[a-z0-9]+", word)}
    wanted = {canonicalize_name(Requirement(text).name) for text in EXTRAS["notebooks"]}
    assert asked == wanted - KERNEL - {"jupyterlab"}, "the notebooks' extra without the kernel"
    assert {*asked, "torch"} <= pinned and not KERNEL & pinned
    assert set(PINS) - pinned <= KERNEL | {"jupyter-core", "jupyterlab-widgets",
                                           "widgetsnbextension"}


def test_the_container_installs_with_make():
    path = ROOT / ".devcontainer" / "devcontainer.json"
    container = json.loads(path.read_text(encoding="utf-8"))
    python = container["image"].rpartition(":")[2]
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    assert f"python={python}" in conda
    assert SpecifierSet(PROJECT["requires-python"]).contains(f"{python}.0")
    command = container["onCreateCommand"]
    assert command == "make venv TORCH=cpu"
    interpreter = container["customizations"]["vscode"]["settings"]["python.defaultInterpreterPath"]
    assert interpreter == "${containerWorkspaceFolder}/.venv/bin/python"
    if shutil.which("make"):
        line = subprocess.run(["sh", "-c", f"{command} -n -B PYTHON=true"], cwd=ROOT,
                              capture_output=True, text=True, check=True).stdout
        assert '-c constraints.txt -e ".[dev]"' in line


def test_no_entry_point_has_a_version_of_its_own():
    """A pin stands in constraints.txt alone; these files name the Python version only."""
    for path in (*filter(Path.is_file, (ROOT / "binder").rglob("*")),
                 ROOT / ".devcontainer" / "devcontainer.json"):
        assert re.findall(r"[a-z]==\d\S*", path.read_text(encoding="utf-8")) == [], path.name
