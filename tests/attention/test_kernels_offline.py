"""The kernels compile for every target within their budgets, and the committed report says what
they take."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version

import pytest

from cca_lab.attention.fused import installed
from cca_lab.files import repository, results_folder

pytestmark = pytest.mark.skipif(not installed(), reason="triton exists for Linux only")
COMMITTED = results_folder() / "kernels.json"
TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")
FORWARD = ("interval_forward", "pooling_forward", "decode_split", "decode_merge",
           "vertical_slash_forward")
MATRIX_PRODUCTS = ("interval_forward", "interval_backward_rows", "interval_backward_columns",
                   "decode_split", "vertical_slash_forward")


@pytest.mark.parametrize("target", TARGETS)
def test_the_committed_report_is_current(target, tmp_path):
    """In a process of its own: a stand-in for the driver serves the whole process."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "cca_lab", "study", "kernels", "--target", target,
               "--out", str(tmp_path / "kernels.json")]
    run = subprocess.run(command, cwd=repository(),
                         env=environment | {"TRITON_CACHE_DIR": str(tmp_path / "cache")},
                         capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    committed = json.loads(COMMITTED.read_text())
    # another compiler allots other registers, within the budgets
    if version("triton") == committed["triton"]:
        wanted = [row for row in committed["kernels"] if row["target"] == target]
        assert json.loads((tmp_path / "kernels.json").read_text())["kernels"] == wanted


def test_an_unknown_target_is_named():
    from cca_lab.studies.kernels import Kernels

    with pytest.raises(ValueError, match="target: got 'sm_30', wanted one of sm_80"):
        Kernels(target=("sm_30",)).run()


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
