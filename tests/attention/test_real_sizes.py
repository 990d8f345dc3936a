"""The kernels at real sizes: on a GPU, `python -m pytest -s` of this file; here, its judge."""

import pytest
import torch

from cca_lab.attention import interval_attention
from tests.attention import real_sizes
from tests.mutants import bench as mutants


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize(("name", "check"), [*real_sizes.checks()],
                         ids=lambda value: str(value)[:40])
def test_a_kernel_is_right_at_real_sizes(name, check):
    found = check()
    print(name, {tensor: round(error, 2) for tensor, error in found.items()})
    dtype = next(dtype for dtype in real_sizes.FACTOR if str(dtype) in name)
    assert max(found.values()) <= real_sizes.FACTOR[dtype]


@pytest.fixture
def judged(monkeypatch):
    """Judge an attention that stands for the kernel: the reference in the kernel's dtype."""
    def judge(bend=lambda out: out, dtype=torch.float32):
        def attend(q, k, v, table, *, backend, return_lse):
            out, lse = interval_attention(q, k, v, table, backend="dense", return_lse=True)
            return (bend(out) if backend == "triton" else out), lse

        monkeypatch.setattr(real_sizes, "interval_attention", attend)
        found = real_sizes.check_attention("cca", dtype, 16, length=37, sizes=(8, 8))
        return max(found.values()), real_sizes.FACTOR[dtype]

    return judge


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_rounding_is_no_mistake(judged, dtype):
    error, most = judged(dtype=dtype)
    assert 0 < error < most


@pytest.mark.parametrize("mutant", mutants.KERNELS, ids=lambda mutant: mutant.__name__)
def test_wrong_outputs_and_gradients_are_noticed(judged, mutant):
    error, most = judged(mutant)
    assert error > most


def test_memory_is_poisoned_and_no_longer_afterwards():
    with real_sizes.poisoned():
        assert torch.empty(1000).isnan().all()
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_reference_in_chunks_is_that_of_the_whole(monkeypatch):
    monkeypatch.setattr(real_sizes, "ROWS", 10)
    table, columns = real_sizes.table_of("cca", 37, 8, 8)
    q, grad = torch.randn(2, 1, 4, 37, 8)
    k, v = torch.randn(2, 1, 2, columns, 8)
    grad_lse = torch.randn(1, 4, 37)
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    out, lse = interval_attention(*leaves, table, backend="dense", return_lse=True)
    wanted = out, lse, *torch.autograd.grad((out, lse), leaves, (grad.double(), grad_lse.double()))
    found = real_sizes.reference(q, k, v, table, grad, grad_lse)
    assert all(torch.allclose(a, b, rtol=0, atol=1e-12) for a, b in zip(found, wanted, strict=True))
