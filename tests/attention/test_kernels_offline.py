"""The kernels compile for every target within their budgets, as the committed report says."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from cca_lab.attention.fused import installed
from cca_lab.files import repository, results_folder

pytestmark = pytest.mark.skipif(not installed(), reason="triton exists for Linux only")
COMMITTED = results_folder() / "kernels.json"
TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")
FORWARD = ("interval_forward", "pooling_forward", "decode_split", "decode_merge",
           "vertical_slash_forward", "h2o_rows")
MATRIX_PRODUCTS = ("interval_forward", "interval_backward_rows", "interval_backward_columns",
                   "decode_split", "vertical_slash_forward")


def committed_rows(target: str, head_dims: tuple[int, ...]) -> list[dict]:
    """Return the rows of the committed report that were compiled for a target."""
    return [row for row in json.loads(COMMITTED.read_text())["kernels"]
            if row["target"] == target and row["head_dim"] in head_dims]


def in_a_process(*command: str, cache: Path) -> str:
    """Return what Python prints: a stand-in for the driver serves a whole process."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    run = subprocess.run([sys.executable, *command], cwd=repository(),
                         env=environment | {"TRITON_CACHE_DIR": str(cache)},
                         capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    return run.stdout


def same_compiler() -> bool:
    """Whether the report is this compiler's: another allots other registers, within the budgets."""
    return version("triton") == json.loads(COMMITTED.read_text())["triton"]


def test_a_kernel_compiles_for_a_gpu(tmp_path):
    """Dies: a kernel that the interpreters take and the compiler refuses."""
    rows = json.loads(in_a_process(
        "-c", "import json, dataclasses, torch\n"
        "from cca_lab.attention import causal_intervals\n"
        "from cca_lab.attention.kernels import interval, offline\n"
        "def launch(dtype, head_dim):\n"
        "    x = torch.zeros(1, 2, 64, head_dim, dtype=dtype)\n"
        "    interval.triton_attention(x, x, x, causal_intervals(64), 0.125)\n"
        "rows = offline.resources('sm_90', torch.bfloat16, 64, launch)\n"
        "print(json.dumps([dataclasses.asdict(row) for row in rows]))", cache=tmp_path))
    assert [row["kernel"] for row in rows] == ["interval_forward"]
    assert rows[0]["spilled"] == 0 and rows[0]["matrix_instructions"]


@pytest.mark.nightly
@pytest.mark.parametrize("target, head_dim", [("sm_80", 64), ("sm_90", 128), ("sm_100", 64)])
def test_the_committed_report_is_current(target, head_dim, tmp_path):
    """Each target with one head dim: compiling the other as well would take a minute longer."""
    rows = json.loads(in_a_process(
        "-c", "import json, sys, dataclasses, torch\n"
        "from cca_lab.attention.kernels.offline import resources\n"
        "rows = resources(sys.argv[1], torch.bfloat16, int(sys.argv[2]))\n"
        "print(json.dumps([dataclasses.asdict(row) for row in rows]))",
        target, str(head_dim), cache=tmp_path))
    assert len(rows) > 7
    if same_compiler():
        assert rows == committed_rows(target, (head_dim,))


@pytest.mark.nightly
def test_the_command_writes_the_committed_rows(tmp_path):
    in_a_process("-m", "cca_lab", "study", "kernels", "--target", "gfx942",
                 "--out", str(tmp_path / "kernels.json"), cache=tmp_path / "cache")
    if same_compiler():
        assert (json.loads((tmp_path / "kernels.json").read_text())["kernels"]
                == committed_rows("gfx942", (64, 128)))


def test_matrix_products_run_on_matrix_units_and_the_forward_spills_nothing():
    for row in json.loads(COMMITTED.read_text())["kernels"]:
        if row["kernel"] in MATRIX_PRODUCTS:
            assert row["matrix_instructions"], row
        if row["kernel"] in FORWARD:
            assert row["spilled"] == 0, row


def test_the_report_has_every_kernel_everywhere():
    rows = json.loads(COMMITTED.read_text())["kernels"]
    names = {*FORWARD, "interval_backward_rows", "interval_backward_columns", "pooling_backward"}
    assert {row["kernel"] for row in rows} == names
    wanted = {(kernel, target,
               head_dim) for kernel in names for target in TARGETS for head_dim in (64, 128)}
    assert sorted((row["kernel"], row["target"], row["head_dim"]) for row in rows) == sorted(wanted)


def test_budgets_can_fail():
    from cca_lab.attention.kernels.offline import Resources, over_budget

    fits = Resources("interval_forward", "sm_90", "bfloat16", 64, 200, 0, 1000, {})
    assert not over_budget(fits)
    assert "spills 4 bytes, 0 are allowed" in over_budget(replace(fits, spilled=4))[0]
    assert "shared memory, the target has 232448" in over_budget(replace(fits, shared=300_000))[0]
