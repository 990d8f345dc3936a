"""Pooling kernels against PyTorch's pooling in float64, rotation and gradients included."""

import pytest
import torch

from cca_lab.attention import pool_groups
from cca_lab.attention.kernels import launch
from tests.attention.kernels import bench
from tests.mutants import kernels as mutants


def rotary(batch, length, head_dim, generator):
    angle = 3 * torch.rand(batch, length, head_dim // 2, generator=generator)
    return tuple(torch.cat([f(angle), f(angle)], dim=-1) for f in (torch.cos, torch.sin))


def check_pooling(length, group, *, batch=1, heads=2, key_heads=1, head_dim=16, rotated=False,
                  dtype=torch.float32, count=None):
    """Cores and all gradients."""
    generator = torch.Generator().manual_seed(length)
    q, k, v = (torch.randn(batch, n, length, head_dim, generator=generator).to(dtype)
               for n in (heads, key_heads, key_heads))
    tables = rotary(batch, length, head_dim, generator) if rotated else None
    inputs = [bench.guarded(x).requires_grad_() for x in (q, k, v)]
    with bench.guarded_outputs():
        cores = pool_groups(*inputs, group, rotation=tables, count=count, backend="triton")
        weights = [torch.randn(core.shape, generator=generator).to(core) for core in cores]
        loss = sum((core.float() * weight.float()).sum()
                   for core, weight in zip(cores, weights, strict=True))
        gradients = torch.autograd.grad(loss, inputs)
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    tables = tables and tuple(table.double() for table in tables)
    wanted = pool_groups(*exact, group, rotation=tables, count=count, backend="torch")
    loss = sum((core * weight.cpu().double()).sum()
               for core, weight in zip(wanted, weights, strict=True))
    pairs = zip((*cores, *gradients), (*wanted, *torch.autograd.grad(loss, exact)), strict=True)
    for name, (got, want) in zip(("core key", "core value", "dq", "dk", "dv"), pairs, strict=True):
        bench.assert_close(got, want, name, dtype)


@pytest.mark.parametrize(("length", "group", "rotated"), [
    (1, 1, True), (5, 5, False), (17, 4, False), (33, 7, True), (40, 16, True)])
def test_groups_of_any_size(length, group, rotated):
    check_pooling(length, group, rotated=rotated)


@pytest.mark.parametrize("head_dim", [20, 128])
def test_any_head_dim(head_dim):
    check_pooling(18, 4, head_dim=head_dim, rotated=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(dtype):
    check_pooling(18, 4, dtype=dtype, rotated=True)


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (6, 1)], ids=str)
def test_grouped_queries_and_batches(heads):
    check_pooling(14, 3, batch=2, heads=heads[0], key_heads=heads[1], rotated=True)


def test_only_the_groups_that_are_asked_for():
    check_pooling(20, 4, count=2)


@pytest.mark.parametrize("options", [{"weights": "mean"}, {"per_query_head": True},
                                     {"return_phi": True}, {"count": 0}])
def test_what_the_kernel_does_not_do_is_refused(options):
    x = torch.zeros(1, 1, 8, 16)
    with pytest.raises(ValueError, match="the kernel has softmax weights"):
        pool_groups(x, x, x, 4, backend="triton", **options)


@pytest.mark.parametrize("mutant", mutants.POOLING, ids=lambda mutant: mutant.__name__)
def test_mutants_are_caught(monkeypatch, mutant):
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        check_pooling(17, 4, rotated=True)


def test_a_store_outside_a_buffer_is_caught():
    """One element behind the end, as a kernel would write that forgets its mask."""
    with pytest.raises(AssertionError, match="stored outside"), bench.guarded_outputs():
        launch.new_output((2, 3), torch.zeros(1)).as_strided((1,), (1,), bench.GUARD + 6).fill_(1.0)


def test_rows_that_no_group_reads_have_zero_gradients():
    """The gradients' buffers are poisoned at first; some rows are never stored."""
    q, k, v = (torch.randn(1, 1, 11, 16, device=bench.DEVICE, requires_grad=True) for _ in range(3))
    with bench.guarded_outputs():
        cores = pool_groups(q, k, v, 4, backend="triton")
        grad_q, grad_k, grad_v = torch.autograd.grad(sum(core.sum() for core in cores), (q, k, v))
    assert (grad_k[:, :, 8:] == 0).all() and (grad_v[:, :, 8:] == 0).all()
    assert [bool(row.any()) for row in grad_q[0, 0]] == [t in (3, 7) for t in range(11)]
