"""One new query row against a cache: a kernel that splits the keys over programs, and the merge of its parts.

A single row leaves a GPU idle if one program reads all keys. Each of S programs reads its share of them for
all query heads of one KV head (so keys are read once for the whole group), and the partial outputs o_s with
normalisers l_s merge exactly: out = sum_s softmax(l)_s o_s.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from cca_lab.attention.kernels.configs import padded
from cca_lab.attention.kernels.interval import INTERPRETED, LOG2_E, check_device, new_output
from cca_lab.attention.kernels.interval_forward import matmul

BLOCK_N, WARPS, STAGES = 64, 4, 3
LEAST_KEYS = 256  # of a split: fewer would not pay for the merge


@triton.jit
def decode_split(
    Q, K, V, OUT, LSE,  # (B, H, D), (B, Hk, N, D) x 2, (B, Hk, S, R, D), (B, Hk, S, R); R = H / Hk
    stride_qb, stride_qh, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, HK, N, keys_per_split, scale_log2,
    SHARE: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_N: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """Softmax attention of the R query heads of one KV head over one share of the keys."""
    split = tl.program_id(0)
    batch = (tl.program_id(1) // HK).to(tl.int64)
    key_head = (tl.program_id(1) % HK).to(tl.int64)
    K += batch * stride_kb + key_head * stride_kh
    V += batch * stride_vb + key_head * stride_vh
    begin = split * keys_per_split
    end = tl.minimum(begin + keys_per_split, N)
    head = tl.arange(0, BLOCK_R)
    offset_n = tl.arange(0, BLOCK_N)
    offset_d = tl.arange(0, BLOCK_D)
    inside = offset_d < D
    shown = (head < SHARE)[:, None] & inside[None, :]
    q = tl.load(Q + batch * stride_qb + (key_head * SHARE + head[:, None]) * stride_qh + offset_d[None, :] * stride_qd,
                mask=shown, other=0.0)
    accumulator = tl.zeros([BLOCK_R, BLOCK_D], dtype=tl.float32)
    row_sum = tl.zeros([BLOCK_R], dtype=tl.float32)
    row_max = tl.full([BLOCK_R], float("-inf"), dtype=tl.float32)
    for column in tl.range(begin, end, BLOCK_N):
        columns = column + offset_n
        present = columns < end
        k = tl.load(K + columns[None, :].to(tl.int64) * stride_kn + offset_d[:, None] * stride_kd,
                    mask=inside[:, None] & present[None, :], other=0.0)  # (D, N)
        v = tl.load(V + columns[:, None].to(tl.int64) * stride_vn + offset_d[None, :] * stride_vd,
                    mask=inside[None, :] & present[:, None], other=0.0)  # (N, D)
        scores = tl.where(present[None, :], matmul(q, k, UPCAST) * scale_log2, float("-inf"))  # (R, N)
        new_max = tl.maximum(row_max, tl.max(scores, 1))  # finite: a split has a key in each of its blocks
        weights = tl.exp2(scores - new_max[:, None])
        correction = tl.exp2(row_max - new_max)
        row_sum = row_sum * correction + tl.sum(weights, 1)
        accumulator = accumulator * correction[:, None] + matmul(weights.to(v.dtype), v, UPCAST)
        row_max = new_max
    part = (tl.program_id(1).to(tl.int64) * tl.num_programs(0) + split) * SHARE + head
    tl.store(OUT + part[:, None] * D + offset_d[None, :], accumulator / row_sum[:, None], mask=shown)
    lse = (row_max + tl.log2(row_sum)) * 0.6931471805599453  # ln 2
    tl.store(LSE + part, lse, mask=head < SHARE)


def triton_decode(q: Tensor, k: Tensor, v: Tensor, scale: float, *, splits: int | None = None) -> tuple[Tensor, Tensor]:
    """Attend with one query row to all keys of a cache; for inference, without gradient.

    Args:
        q: (B, H, 1, D), any strides.
        k, v: (B, Hk, N, D), any strides.
        scale: factor on the dot products.
        splits: shares of the keys; None gives every processor of the GPU about two programs.

    Returns:
        out (B, H, 1, D) in q's dtype, and lse (B, H, 1), natural log, float32.
    """
    check_device(q)
    batch, heads, _, head_dim = q.shape
    key_heads, keys = k.shape[1:3]
    share = heads // key_heads
    splits = splits or _splits(q.device, batch * key_heads, keys)
    per_split = triton.cdiv(triton.cdiv(keys, splits), BLOCK_N) * BLOCK_N
    splits = triton.cdiv(keys, per_split)
    shape = torch.Size((batch, key_heads, splits, share, head_dim))
    out, lse = new_output(shape, q, torch.float32), new_output(shape[:-1], q, torch.float32)
    decode_split[(splits, batch * key_heads)](
        q, k, v, out, lse, q.stride(0), q.stride(1), q.stride(3), *k.stride(), *v.stride(), key_heads, keys,
        per_split, scale * LOG2_E, SHARE=share, D=head_dim, BLOCK_D=padded(head_dim),
        BLOCK_R=max(16, triton.next_power_of_2(share)), BLOCK_N=BLOCK_N,
        UPCAST=INTERPRETED and q.dtype == torch.bfloat16, num_warps=WARPS, num_stages=STAGES)
    merged = lse.logsumexp(dim=2)  # (B, Hk, R)
    weight = (lse - merged.unsqueeze(2)).exp().unsqueeze(-1)  # (B, Hk, S, R, 1)
    out = (out * weight).sum(dim=2).view(batch, heads, 1, head_dim)
    return out.to(q.dtype), merged.view(batch, heads, 1)


def _splits(device: torch.device, pairs: int, keys: int) -> int:
    """Shares of the keys for `pairs` (batch, KV head) pairs."""
    processors = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2
    return max(1, min(2 * processors // pairs, keys // LEAST_KEYS))
