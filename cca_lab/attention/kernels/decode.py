"""One query row against a cache: a kernel that splits the keys, and one that merges.

A single row leaves most of a GPU idle if one program reads all keys. Here each of S programs reads
one split of the keys for all query heads of one KV head (so these heads read each key once). The
partial outputs o_s with log-normalisers l_s merge exactly:

    lse = log sum_s exp(l_s),   out = sum_s exp(l_s - lse) o_s
"""

import torch
from torch import Tensor

from cca_lab.attention.fused import needs_gradient
from cca_lab.attention.kernels import launch
from cca_lab.attention.kernels.configs import decode_blocks, padded
from cca_lab.attention.kernels.interval_forward import fold, matmul
from cca_lab.attention.kernels.language import tl, triton
from cca_lab.attention.sources import Source, tensors_of

LEAST_KEYS = 256  # keys of a split: with fewer, the merge would cost more than is gained
MERGED_AT_ONCE = 16  # partial outputs in one tile of the merge

Span = tuple[int, int]


# N grows with every token: no separate kernel for 1 or multiples of 16
@triton.jit(do_not_specialize=["N"])
def decode_split(
    Q, K, V, OUT,
    LSE,  # (B, H, D), (B, Hk, N, D) x 2, (S, B Hk, R, D), (S, B Hk, R); R = H / Hk
    stride_qb, stride_qh, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd, stride_vb,
    stride_vh, stride_vn, stride_vd, HK, N, keys_per_split, scale_log2,
    QUERIES_PER_KEY: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr, UPCAST: tl.constexpr,
):
    """Softmax attention of the R query heads of one KV head over one split of the keys."""
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
    shown = (head < QUERIES_PER_KEY)[:, None] & inside[None, :]
    q = tl.load(Q + batch * stride_qb + (key_head * QUERIES_PER_KEY + head[:, None]) * stride_qh
                + offset_d[None, :] * stride_qd, mask=shown, other=0.0)
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
        # (R, N)
        scores = tl.where(present[None, :], matmul(q, k, UPCAST) * scale_log2, float("-inf"))
        # No test for fully masked rows: each block of a split has a key.
        accumulator, row_sum, row_max = fold(accumulator, row_sum, row_max, scores, v, False,
                                             UPCAST)
    part = (split.to(tl.int64) * tl.num_programs(1) + tl.program_id(1)) * QUERIES_PER_KEY + head
    tl.store(OUT + part[:, None] * D + offset_d[None, :], accumulator / row_sum[:, None],
             mask=shown)
    lse = (row_max + tl.log2(row_sum)) * 0.6931471805599453  # ln 2
    tl.store(LSE + part, lse, mask=head < QUERIES_PER_KEY)


@triton.jit(do_not_specialize=["S"])
def decode_merge(
    PART, PART_LSE, OUT, LSE, S,  # (S, B H, D), (S, B H), (B H, D), (B H,)
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr,
):
    """Merge the S partial outputs of one row by the online softmax over their log-sum-exps."""
    row = tl.program_id(0).to(tl.int64)
    rows = tl.num_programs(0)
    offset_d = tl.arange(0, BLOCK_D)
    total = tl.zeros([BLOCK_D], dtype=tl.float32)
    weight_sum = 0.0
    largest = float("-inf")
    for first in tl.range(0, S, BLOCK_S):
        part = first + tl.arange(0, BLOCK_S)
        present = part < S
        source = part.to(tl.int64) * rows + row
        lse = tl.load(PART_LSE + source, mask=present, other=float("-inf"))
        out = tl.load(PART + source[:, None] * D + offset_d[None, :],
                      mask=present[:, None] & (offset_d < D)[None, :], other=0.0)  # (S, D)
        new_largest = tl.maximum(largest, tl.max(lse, 0))
        weights = tl.exp(lse - new_largest)
        correction = tl.exp(largest - new_largest)
        weight_sum = weight_sum * correction + tl.sum(weights, 0)
        total = total * correction + tl.sum(weights[:, None] * out, 0)
        largest = new_largest
    tl.store(OUT + row * D + offset_d, (total / weight_sum).to(OUT.dtype.element_ty),
             mask=offset_d < D)
    tl.store(LSE + row, largest + tl.log(weight_sum))


def decodes(q: Tensor, keys: Source, values: Source, intervals: Source) -> bool:
    """Return whether `triton_decode` can: one row, no gradient, the same intervals everywhere."""
    return (q.shape[2] == 1 and all(x.shape[:2] == (1, 1) for x in tensors_of(intervals))
            and not needs_gradient(q, *tensors_of(keys), *tensors_of(values)))


def spans_of(intervals: Source) -> list[list[Span]]:
    """Return a single row's columns (1, 1, 1, n, 2) of each source, adjacent intervals joined."""
    return [_joined(x[0, 0, 0].tolist()) for x in tensors_of(intervals)]


def _joined(pairs: list[list[int]]) -> list[Span]:
    spans: list[Span] = []
    for start, end in sorted(pairs):
        if spans and start == spans[-1][1]:
            spans[-1] = spans[-1][0], end
        elif start < end:
            spans.append((start, end))
    return spans


def triton_decode(q: Tensor, keys: Source, values: Source, scale: float, *,
                  spans: list[list[Span]] | None = None,
                  splits: int | None = None) -> tuple[Tensor, Tensor]:
    """Attend with one query row to columns of a cache; for inference, without gradient.

    Args:
        q: (B, H, 1, D), fp16, bf16 or fp32, any strides.
        keys, values: (B, Hk, N, D), any strides; or sources of columns, read where they lie.
        scale: factor on the dot products.
        spans: of each source, half-open ranges of its columns that the row sees, disjoint and not
            empty; None for all.
        splits: of a span's keys; None gives each multiprocessor of the GPU about two programs.

    Returns:
        out (B, H, 1, D) in q's dtype, and lse (B, H, 1), natural log, float32.
    """
    launch.check_tensor("q", q)
    batch, heads, _, head_dim = q.shape
    pairs = list(zip(tensors_of(keys), tensors_of(values), strict=True))
    key_heads = pairs[0][0].shape[1]
    queries_per_key, block_d = heads // key_heads, padded(head_dim)
    blocks = decode_blocks(queries_per_key, q.element_size())
    launches = []  # (keys, values, keys of a split, splits) of each span
    for (k, v), seen in zip(pairs, spans or [[(0, k.shape[2])] for k, _ in pairs], strict=True):
        for start, end in seen:
            wanted = splits or _splits(q.device, batch * key_heads, end - start)
            per_split = triton.cdiv(triton.cdiv(end - start, wanted),
                                    blocks.columns) * blocks.columns
            launches.append((k[:, :, start:end], v[:, :, start:end], per_split,
                             triton.cdiv(end - start, per_split)))
    parts = torch.Size(
        (sum(count for *_, count in launches), batch * key_heads, queries_per_key, head_dim))
    part, part_lse = (launch.new_output(shape, q, torch.float32) for shape in (parts, parts[:-1]))
    first = 0
    for k, v, per_split, count in launches:
        decode_split[(count, batch * key_heads)](
            q, k, v, part[first:], part_lse[first:], q.stride(0), q.stride(1), q.stride(3),
            *k.stride(), *v.stride(), key_heads, k.shape[2], per_split, scale * launch.LOG2_E,
            QUERIES_PER_KEY=queries_per_key, D=head_dim, BLOCK_D=block_d, BLOCK_R=blocks.rows,
            BLOCK_N=blocks.columns, UPCAST=launch.upcast(q.dtype), num_warps=blocks.warps,
            num_stages=blocks.stages)
        first += count
    return merge(part, part_lse, q)


def merge(part: Tensor, part_lse: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """Merge outputs (S, B Hk, R, D) by their lses (S, B Hk, R) into out and lse of q."""
    out, lse = launch.new_output(q.shape, q), launch.new_output(q.shape[:-1], q, torch.float32)
    head_dim = q.shape[-1]
    decode_merge[(q.shape[0] * q.shape[1], )](part, part_lse, out, lse, len(part), D=head_dim,
                                              BLOCK_D=padded(head_dim), BLOCK_S=MERGED_AT_ONCE,
                                              num_warps=1)
    return out, lse


def _splits(device: torch.device, pairs: int, keys: int) -> int:
    """Return the number of splits of the keys for `pairs` (batch, KV head) pairs."""
    processors = torch.cuda.get_device_properties(
        device).multi_processor_count if device.type == "cuda" else 2
    return max(1, min(2 * processors // pairs, keys // LEAST_KEYS))
