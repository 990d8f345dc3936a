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


@pytest.mark.parametrize("mutant", mutants.KERNELS, ids=lambda mutant: mutant.__name__)
def test_wrong_outputs_and_gradients_are_noticed(judged, mutant):
    error, most = judged(mutant)
    assert error > most
