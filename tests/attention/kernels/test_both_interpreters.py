"""Triton's interpreter and the lab's agree on the package's kernels, gradients included."""

import pytest
import torch

from cca_lab import CCA, DGA, Full, VerticalSlash
from cca_lab.attention.kernels.tile_interpreter import instead_of_triton

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled there")


def inputs(dtype, length=45, head_dim=20):
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(1, heads, length, head_dim, generator=generator).to(dtype)
            for heads in (4, 2, 2)]


def forward_and_gradients(mechanism, dtype):
    leaves = [x.requires_grad_() for x in inputs(dtype)]
    out = mechanism.attention(*leaves)
    out.square().sum().backward()
    return [out.detach(), *(x.grad for x in leaves)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mechanism", [Full(backend="triton"), DGA(group=4, backend="triton"),
                                       CCA(group=4, window=8, backend="triton")],
                         ids=lambda mechanism: mechanism.name)
def test_both_interpreters_agree(mechanism, dtype):
    with_triton = forward_and_gradients(mechanism, dtype)
    with instead_of_triton():
        here = forward_and_gradients(mechanism, dtype)
    for got, wanted in zip(here, with_triton, strict=True):
        # sums of up to 45 weights in another order, and one rounding to the dtype on each side
        bound = 45 * torch.finfo(torch.float32).eps + 2 * torch.finfo(dtype).eps
        assert (got - wanted).abs().max() <= bound * max(1, wanted.abs().max())


def test_both_interpreters_agree_on_columns_and_diagonals():
    pattern = VerticalSlash(vertical=5, slash=4, last=8, forced_vertical=1, forced_slash=2,
                            block=8, backend="triton")
    wanted = pattern.attention(*inputs(torch.float32))
    with instead_of_triton():
        got = pattern.attention(*inputs(torch.float32))
    assert (got - wanted).abs().max() < 61 * torch.finfo(torch.float32).eps
