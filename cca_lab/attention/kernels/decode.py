"""One query row against a cache: a kernel that splits the keys, and one that merges.

A single row leaves most of a GPU idle if one program reads all keys. Here each of S programs reads
one split of the keys for all query heads of one KV head (so these heads read each key once). Keys
may lie in several pieces, two of which a launch reads. The partial outputs o_s with log-normalisers
l_s merge exactly:

    lse = log sum_s exp(l_s),   out = sum_s exp(l_s - lse) o_s
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

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


@triton.jit
def read_split(
    Q, OUT, LSE, K, V, BIAS, stride_kb, stride_kh, stride_kn, stride_kd, stride_vb, stride_vh,
    stride_vn, stride_vd, stride_bb, stride_bn, N, keys_per_split, split, part, stride_qb,
    stride_qh, stride_qd, HK, scale_log2, QUERIES_PER_KEY: tl.constexpr, D: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_N: tl.constexpr, BIASED: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """Softmax attention of the R query heads of one KV head over split `split` of a piece's keys.

    Output and log-normaliser are those of part `part`; BIAS (1 or B, N) is added to the logits.
    """
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
        scores = matmul(q, k, UPCAST) * scale_log2  # (R, N)
        if BIASED:
            bias = tl.load(BIAS + batch * stride_bb + columns.to(tl.int64) * stride_bn,
                           mask=present, other=0.0)
            scores += bias[None, :] * 1.4426950408889634  # log2(e)
        scores = tl.where(present[None, :], scores, float("-inf"))
        # without a bias each block of a split has a key that is seen
        accumulator, row_sum, row_max = fold(accumulator, row_sum, row_max, scores, v, BIASED,
                                             UPCAST)
    row = (part.to(tl.int64) * tl.num_programs(1) + tl.program_id(1)) * QUERIES_PER_KEY + head
    divisor = tl.where(row_sum > 0.0, row_sum, 1.0)
    tl.store(OUT + row[:, None] * D + offset_d[None, :], accumulator / divisor[:, None],
             mask=shown)
    lse = (row_max + tl.log2(divisor)) * 0.6931471805599453  # ln 2
    tl.store(LSE + row, lse, mask=head < QUERIES_PER_KEY)


# N grows with every token: no separate kernel for 1 or multiples of 16
@triton.jit(do_not_specialize=["N", "N2", "SPLITS", "PARTS"])
def decode_split(
    Q, OUT, LSE,  # (B, H, D), (S, B H, D), (S, B H)
    K, V, BIAS,  # (B, Hk, N, D) x 2, (1 or B, N)
    stride_kb, stride_kh, stride_kn, stride_kd, stride_vb, stride_vh, stride_vn, stride_vd,
    stride_bb, stride_bn, N, keys_per_split, K2, V2, BIAS2, stride_k2b, stride_k2h, stride_k2n,
    stride_k2d, stride_v2b, stride_v2h, stride_v2n, stride_v2d, stride_b2b, stride_b2n, N2,
    keys_per_split2, SPLITS, PARTS, stride_qb, stride_qh, stride_qd, HK, scale_log2,
    QUERIES_PER_KEY: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr, BIASED: tl.constexpr, UPCAST: tl.constexpr,
):
    """Read the first piece's SPLITS splits, then the second piece's; PARTS were read before."""
    split = tl.program_id(0)
    if split < SPLITS:
        read_split(Q, OUT, LSE, K, V, BIAS, stride_kb, stride_kh, stride_kn, stride_kd, stride_vb,
                   stride_vh, stride_vn, stride_vd, stride_bb, stride_bn, N, keys_per_split, split,
                   PARTS + split, stride_qb, stride_qh, stride_qd, HK, scale_log2, QUERIES_PER_KEY,
                   D, BLOCK_D, BLOCK_R, BLOCK_N, BIASED, UPCAST)
    else:
        read_split(Q, OUT, LSE, K2, V2, BIAS2, stride_k2b, stride_k2h, stride_k2n, stride_k2d,
                   stride_v2b, stride_v2h, stride_v2n, stride_v2d, stride_b2b, stride_b2n, N2,
                   keys_per_split2, split - SPLITS, PARTS + split, stride_qb, stride_qh, stride_qd,
                   HK, scale_log2, QUERIES_PER_KEY, D, BLOCK_D, BLOCK_R, BLOCK_N, BIASED, UPCAST)


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
        # a part whose keys are all hidden by a bias has no weight
        reference = tl.where(new_largest == float("-inf"), 0.0, new_largest)
        weights = tl.exp(lse - reference)
        correction = tl.exp(largest - reference)
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
                  spans: list[list[Span]] | None = None, bias: Sequence[Tensor] = (),
                  splits: int | None = None) -> tuple[Tensor, Tensor]:
    """Attend with one query row to columns of a cache; for inference, without gradient.

    Args:
        q: (B, H, 1, D), fp16, bf16 or fp32, any strides.
        keys, values: (B, Hk, N, D), any strides; or pieces of columns, read where they lie, whose
            numbers of KV heads may differ.
        scale: factor on the dot products.
        spans: of each piece, half-open ranges of its columns that the row sees, disjoint and not
            empty; None for all.
        bias: of each piece what is added to its logits, (1 or B, N); none of them without bias.
        splits: of a span's keys; None gives each multiprocessor of the GPU about two programs.

    Returns:
        out (B, H, 1, D) in q's dtype, and lse (B, H, 1), natural log, float32.
    """
    launch.check_tensor("q", q)
    batch, heads, _, head_dim = q.shape
    keys, values = tensors_of(keys), tensors_of(values)
    whole: list[list[Span]] = [[(0, k.shape[2])] if k.shape[2] else [] for k in keys]
    read: list[_Piece] = []
    for index, seen in enumerate(spans or whole):
        for start, end in seen:
            k, v = (x[index][:, :, start:end] for x in (keys, values))
            added = bias[index][:, start:end].expand(batch, -1) if bias else None
            read.append(_piece(q, k, v, added, splits))
    parts = sum(piece.splits for piece in read), batch * heads, head_dim
    part, part_lse = (launch.new_output(torch.Size(shape), q, torch.float32)
                      for shape in (parts, parts[:-1]))
    first = 0
    while read:
        one = read.pop(0)
        two = read.pop(0) if read and read[0].k.shape[1] == one.k.shape[1] else one._replace(
            splits=0)
        key_heads = one.k.shape[1]
        blocks = decode_blocks(heads // key_heads, q.element_size())
        decode_split[(one.splits + two.splits, batch * key_heads)](
            q, part, part_lse, *one.arguments(q), *two.arguments(q), one.splits, first,
            q.stride(0), q.stride(1), q.stride(3), key_heads, scale * launch.LOG2_E,
            QUERIES_PER_KEY=heads // key_heads, D=head_dim, BLOCK_D=padded(head_dim),
            BLOCK_R=blocks.rows, BLOCK_N=blocks.columns, BIASED=bool(bias),
            UPCAST=launch.upcast(q.dtype), num_warps=blocks.warps, num_stages=blocks.stages)
        first += one.splits + two.splits
    return merge(part, part_lse, q)


class _Piece(NamedTuple):
    """Keys and values that are read one after the other, and how they are split."""

    k: Tensor
    v: Tensor
    bias: Tensor | None
    keys_per_split: int
    splits: int

    def arguments(self, q: Tensor) -> tuple[Any, ...]:
        """Return the kernel's arguments for this piece; q stands in for a bias that is not read."""
        bias, strides = (q, (0, 0)) if self.bias is None else (self.bias, self.bias.stride())
        return (self.k, self.v, bias, *self.k.stride(), *self.v.stride(), *strides,
                self.k.shape[2], self.keys_per_split)


def _piece(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, splits: int | None) -> _Piece:
    """Return a piece with its keys divided into splits of whole blocks."""
    count, block = k.shape[2], decode_blocks(q.shape[1] // k.shape[1], q.element_size()).columns
    wanted = splits or _splits(q.device, len(k) * k.shape[1], count)
    per_split = triton.cdiv(triton.cdiv(count, wanted), block) * block
    return _Piece(k, v, bias, per_split, triton.cdiv(count, per_split))


def merge(part: Tensor, part_lse: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """Merge outputs (S, B H, D) by their lses (S, B H) into out and lse of q."""
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
