"""Where the kernels serve, what "auto" takes, and what a machine without triton is told."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from cca_lab.attention import fused, interval_attention, pool_groups
from cca_lab.attention.fused import needs_gradient, refuse_second_derivative
from cca_lab.attention.interval_attention import BACKENDS, FEW_ROWS, _backend
from cca_lab.attention.pooling import pooling_backend
from cca_lab.files import repository

needs_triton = pytest.mark.skipif(not fused.installed(), reason="triton exists for Linux only")


def on_a_gpu(rows=64, head_dim=64, dtype=torch.bfloat16):
    """What the choice of a backend reads of a tensor on a GPU, without one."""
    return SimpleNamespace(device=torch.device("cuda"), is_cpu=False, dtype=dtype,
                           shape=(1, 1, rows, head_dim))


@needs_triton
@pytest.mark.parametrize(("x", "serves"), [
    (on_a_gpu(), True), (on_a_gpu(rows=1), True), (on_a_gpu(head_dim=128), True),
    (on_a_gpu(head_dim=129), False),
    (on_a_gpu(dtype=torch.float64), False), (torch.zeros(1, 1, 64, 64), False),
])
def test_where_the_kernels_serve(x, serves):
    assert fused.fused(x) == serves
    assert (_backend("auto", x) is BACKENDS["triton"]) == serves


@pytest.mark.parametrize("place", [lambda rows: torch.zeros(1, 1, rows, 4),
                                   lambda rows: on_a_gpu(rows, head_dim=256)],
                         ids=["CPU", "GPU, head dim 256"])
def test_few_rows_are_dense_where_no_kernel_serves(place):
    assert _backend("auto", place(1)) is _backend("auto", place(FEW_ROWS)) is BACKENDS["dense"]
    assert _backend("auto", place(FEW_ROWS + 1)) is not BACKENDS["dense"]


def test_one_word_governs_attention_and_pooling():
    assert pooling_backend("auto") == "auto" and pooling_backend("triton") == "triton"
    assert {pooling_backend(name) for name in BACKENDS if name != "triton"} == {"torch"}
    for unserved in ({"weights": "mean"}, {"per_query_head": True}, {"count": 0},
                     {"return_phi": True}):
        assert pooling_backend("triton", **unserved) == "torch"


@needs_triton
def test_large_head_dims_are_named_before_the_device():
    x, table = torch.zeros(1, 1, 4, 136), torch.tensor([[0, 4]]).expand(1, 1, 4, 1, 2)
    with pytest.raises(ValueError, match="q: got head_dim 136, wanted at most 128.*blocked"):
        interval_attention(x, x, x, table, backend="triton")
    with pytest.raises(ValueError, match="k: got head_dim 136, wanted at most 128"):
        pool_groups(x, x, x, 4, backend="triton")


WITHOUT_TRITON = """
import sys
sys.modules["triton"] = None  # as if it were not installed: find_spec finds nothing, import fails
import torch
from cca_lab.attention import interval_attention, pool_groups
from cca_lab.mechanisms import VerticalSlash
x, table = torch.zeros(1, 1, 4, 16), torch.tensor([[0, 4]]).expand(1, 1, 4, 1, 2)
for door in (lambda: interval_attention(x, x, x, table, backend="triton"),
             lambda: pool_groups(x, x, x, 4, backend="triton"),
             lambda: VerticalSlash(backend="triton").attention(x, x, x)):
    try:
        door()
    except ValueError as error:
        print(error)
interval_attention(x, x, x, table)
"""


def test_without_triton_every_door_says_so():
    run = subprocess.run([sys.executable, "-c", WITHOUT_TRITON], cwd=repository(),
                         capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.count(
        "triton is not installed, which the kernels are written in") == 3, run.stdout


def test_a_recorded_backward_is_refused():
    with torch.no_grad():  # as in every backward, unless create_graph asks for another
        refuse_second_derivative("x")
    leaf = torch.zeros(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="x has no second derivative"), torch.enable_grad():
        refuse_second_derivative("x")
    assert needs_gradient(torch.zeros(1), leaf) and not needs_gradient(leaf.detach())
    with torch.no_grad():
        assert not needs_gradient(leaf)
