"""What a kernel must satisfy: close to the float64 reference, and no step outside its buffers.

A kernel rounds its operands' products and its softmax weights to the inputs' dtype and adds them up
in float32; both errors stay below a few units of the last place of the largest value:

    |got - wanted| <= FACTOR * eps(dtype) * max(1, largest wanted)

The interpreter multiplies bfloat16 by its bit patterns, so kernels interpreted with it multiply in
float32: only compilation and a GPU show that they multiply bfloat16 rightly.
"""

from contextlib import contextmanager
from itertools import accumulate

import pytest
import torch
from torch import Tensor

from cca_lab.attention import interval_attention
from cca_lab.attention.kernels import interval, launch
from cca_lab.attention.kernels.configs import Blocks
from cca_lab.attention.sources import Source, halves, tensors_of

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# the smallest tiles, so that short texts have edges, cores and corners
SMALL = Blocks(16, 16, 4, 1)
FACTOR = {torch.float32: 32, torch.float16: 4, torch.bfloat16: 4}
GUARD = 64  # elements of sentinel before and after each buffer
SENTINEL = -7.0


def assert_close(got: Tensor, wanted: Tensor, what: str, dtype: torch.dtype) -> None:
    """Compare with the float64 reference at the tolerance of the dtype."""
    wanted = wanted.detach().to(got.device)
    assert got.isfinite().all(), f"{what}: {int((~got.isfinite()).sum())} values are not finite"
    error = (got.double() - wanted).abs().max().item()
    ratio = ((got.double() - wanted).norm() / wanted.norm().clamp_min(1e-300)).item()
    bound = FACTOR[dtype] * torch.finfo(dtype).eps * max(1.0, wanted.abs().max().item())
    assert error <= bound, f"{what}: max error {error:.1e} > {bound:.1e}, ratio {ratio:.1e}"


def guarded(x: Tensor) -> Tensor:
    """A copy of an input between NaNs, with the same strides: a read outside poisons the result."""
    size = 1 + sum((n - 1) * stride for n, stride in zip(x.shape, x.stride(), strict=True))
    room = torch.full((size + 2 * GUARD,), float("nan"), dtype=x.dtype, device=DEVICE)
    copy = room.as_strided(x.shape, x.stride(), GUARD)
    copy.copy_(x.to(DEVICE)) if 0 not in x.stride() else copy.copy_(
        x[:1, :1, :1].expand(x.shape).to(DEVICE))
    return copy


@contextmanager
def guarded_outputs():
    """Let the kernels write into poisoned buffers between sentinels, and check those afterwards."""
    rooms = []

    def new_output(shape, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        shape, dtype = torch.Size(shape), dtype or like.dtype
        room = torch.full((shape.numel() + 2 * GUARD,), SENTINEL, dtype=dtype, device=like.device)
        poison = float("nan") if dtype.is_floating_point else torch.iinfo(dtype).min
        room[GUARD : GUARD + shape.numel()] = poison
        rooms.append(room)
        return room[GUARD : GUARD + shape.numel()].view(shape)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "new_output", new_output)
        yield rooms
    for room in rooms:
        edges = torch.cat([room[:GUARD], room[-GUARD:]])
        stored = int((edges != SENTINEL).sum())
        assert stored == 0, f"{stored} values stored outside a buffer"


def check_interval_attention(q: Tensor, k: Source, v: Source, intervals: Source, scale: float,
                             blocks: Blocks = SMALL) -> None:
    """Output, log-sum-exp and all gradients against the dense rung in float64.

    It reads the columns of two sources as those of one tensor, in which they follow each other.
    """
    dtype, keys, tables = q.dtype, tensors_of(k), tensors_of(intervals)
    tensors = (q, *keys, *tensors_of(v))
    inputs = [guarded(x).requires_grad_() for x in tensors]
    generator = torch.Generator().manual_seed(0)
    with guarded_outputs():
        out, lse = interval.triton_attention(inputs[0], *halves(inputs[1:]), tables, scale,
                                             blocks=[blocks] * 3)
        weights = [torch.randn(x.shape, generator=generator,
                               dtype=torch.float32).to(x) for x in (out, lse)]
        loss = (out.float() * weights[0].float()).sum() + (lse * weights[1]).sum()
        gradients = torch.autograd.grad(loss, inputs)
    exact = [x.detach().cpu().double().requires_grad_() for x in tensors]
    whole = torch.cat([(table + before).expand(*q.shape[:2], -1, -1, -1) for table, before in zip(
        tables, accumulate((x.shape[2] for x in keys), initial=0), strict=False)], dim=3)
    wanted, wanted_lse = interval_attention(
        exact[0], *(torch.cat(x, dim=2) for x in halves(exact[1:])), whole, scale=scale,
        backend="dense", return_lse=True)
    loss = (wanted * weights[0].cpu().double()).sum() + (wanted_lse
                                                         * weights[1].cpu().double()).sum()
    assert_close(out, wanted, "out", dtype)
    assert_close(lse, wanted_lse, "lse", dtype)
    for index, (got, want) in enumerate(zip(gradients, torch.autograd.grad(loss, exact),
                                            strict=True)):
        if want.numel():  # a short text has no cores
            assert_close(got, want, f"gradient {index} of q, keys, values", dtype)
