"""The kernels compile for a GPU that this machine need not have."""

import json
import os
import subprocess
import sys

import pytest

from cca_lab.attention.fused import installed
from cca_lab.files import repository

pytestmark = pytest.mark.skipif(not installed(), reason="triton exists for Linux only")
FORWARD = ("interval_forward", "pooling_forward", "decode_split", "decode_merge",
           "vertical_slash_forward", "h2o_rows")
BACKWARD = ("interval_backward_rows", "interval_backward_columns", "pooling_backward")
MATRIX_PRODUCTS = ("interval_forward", "interval_backward_rows", "interval_backward_columns",
                   "decode_split", "vertical_slash_forward")
COMPILE = """
import json, torch
from cca_lab.attention import causal_intervals
from cca_lab.attention.kernels import decode, eviction, interval, pooling, vertical_slash
from tests.attention import offline

def one(dtype, head_dim):
    x = torch.zeros(1, 2, 64, head_dim, dtype=dtype)
    interval.triton_attention(x, x, x, causal_intervals(64), 0.125)

def all(dtype, head_dim):
    def tensor(heads, length):
        return torch.zeros(1, heads, length, head_dim, dtype=dtype, requires_grad=True)

    intervals = torch.zeros(1, 1, 1024, 1, 2, dtype=torch.int64)
    q, k, v, cores = tensor(8, 1024), tensor(2, 1024), tensor(2, 1024), tensor(2, 64)
    out, _ = interval.triton_attention(q, (cores, k), (cores, v), (intervals, intervals), 0.125)
    torch.autograd.grad(out.sum(), q)
    turn = (torch.zeros(1, 1024, head_dim), torch.zeros(1, 1024, head_dim))
    core, _ = pooling.triton_pool_groups(q, k, v, 16, 64, 0.125, turn)
    torch.autograd.grad(core.sum(), q)
    with torch.no_grad():
        decode.triton_decode(tensor(8, 1), tensor(2, 1088), tensor(2, 1088), 0.125)
        columns, offsets = (torch.arange(64).expand(1, 8, -1) for _ in range(2))
        vertical_slash.triton_vertical_slash(tensor(8, 1024), tensor(2, 1024), tensor(2, 1024),
                                             columns, offsets, 64, 0.125)
        eviction.triton_evicting_rows(torch.zeros(1, 2, 4, 64, 1024), torch.zeros(1, 2, 511),
                                      torch.zeros(1, 2, 511), 960, 255)

print(json.dumps(offline.resources(lambda: LAUNCH(torch.bfloat16, 64))))
"""


def compiled(launch, cache):
    """Return the resources of what is launched: a stand-in for the driver serves a process."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    run = subprocess.run([sys.executable, "-c", COMPILE.replace("LAUNCH", launch)],
                         cwd=repository(), env=environment | {"TRITON_CACHE_DIR": str(cache)},
                         capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    return json.loads(run.stdout)


def check(rows):
    for row in rows:
        if row["kernel"] in MATRIX_PRODUCTS:
            assert row["matrix_instructions"], row
        if row["kernel"] in FORWARD:
            assert row["spilled"] == 0, row


def test_a_kernel_compiles_for_a_gpu(tmp_path):
    """Dies: a kernel that the interpreters take and the compiler refuses."""
    rows = compiled("one", tmp_path)
    assert [row["kernel"] for row in rows] == ["interval_forward"]
    check(rows)


@pytest.mark.nightly
def test_every_kernel_compiles_for_an_h100(tmp_path):
    rows = compiled("all", tmp_path)
    assert {row["kernel"] for row in rows} == {*FORWARD, *BACKWARD}
    check(rows)
