"""The wheel works far from any clone: in an environment of its own, in an empty folder."""

import os
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

from cca_lab import files

LARGEST = 30 * 2**20  # bytes
SWAP = """
import torch, cca_lab
from cca_lab.models import load_pretrained, swap_attention
from cca_lab.models.mini import new_model
print(cca_lab.__file__)
for model in (new_model("gpt2", vocabulary=64, context=64, width=16, layers=1, heads=2),
              load_pretrained("data/models/gpt2-mini")[0]):
    swap_attention(model, "cca", group=4, window=8)
    assert model(torch.arange(32)[None]).logits.isfinite().all()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(folder, sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check",
        "--no-deps", "--no-index", "--no-build-isolation", "-w", ".", str(files.repository()))
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def programs(wheel) -> Path:
    """The programs of a new environment with the wheel, over the packages of this one."""
    home = wheel.parent / "environment"
    venv.create(home, symlinks=os.name != "nt")
    programs = home / ("Scripts" if os.name == "nt" else "bin")
    run(wheel.parent, sys.executable, "-m", "pip", "--python", str(programs / "python"), "install",
        "-q", "--disable-pip-version-check", "--no-deps", "--no-index", str(wheel))
    (installed,) = home.rglob("cca_lab/__init__.py")
    here = [path for path in sys.path if Path(path).name == "site-packages"]
    (installed.parents[1] / "packages_of_the_tests.pth").write_text("\n".join(here))
    return programs


def run(folder: Path, *command: str | Path, code: int = 0) -> str:
    """Run a command in a folder, without this process's import path, and return what it printed."""
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("PYTHONPATH", "CCA_LAB_DATA")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True,
                          check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_wheel_is_small_and_holds_what_is_no_code(wheel):
    assert wheel.stat().st_size < LARGEST
    names = set(ZipFile(wheel).namelist())
    for name in ("py.typed", "attention/cpp/interval_attention.cpp",
                 "_data/models/gpt2-mini/model.safetensors", "_data/CHECKSUMS.sha256"):
        assert f"cca_lab/{name}" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0] for name in names} == {"cca_lab", "cca_lab-0.1.0.dist-info"}


def test_wheel_works_in_an_empty_folder(programs, tmp_path):
    place = Path(run(tmp_path, programs / "python", "-c", SWAP).splitlines()[0])
    assert place.is_relative_to(programs.parent), "the clone's package was imported"
    assert "1 claims: 1 " in run(tmp_path, programs / "cca-lab", "verify", "T1")
    assert "as shipped" in run(tmp_path, programs / "cca-lab", "doctor")
    refused = run(tmp_path, programs / "cca-lab", "walkthrough", code=2)
    assert refused.startswith("error: repository: ") and "work in a clone" in refused
    assert not any(tmp_path.iterdir()), "a command left something behind"
