"""Forward kernel of interval attention: the online softmax over a row block's columns.

A program computes BLOCK_M rows of one query head. It goes through each interval in blocks of
BLOCK_N columns. Since starts and ends never move back, there are three phases:

    left boundary    columns that only the first rows see      masked
    interior         whole blocks that every row sees          no mask
    right boundary   the remaining ones, to the last row's end masked

Columns outside are never read. A row that has seen no column yet keeps the maximum m = -inf; its
exponents are then computed relative to 0, so that -inf - (-inf) does not occur.
"""

from cca_lab.attention.kernels.language import tl, triton


@triton.jit
def span_of_rows(BOUNDS, row_first, row_last, L):
    """First and last start, first and last end of some rows: all see [inner_low, inner_high)."""
    low = tl.load(BOUNDS + row_first)
    inner_low = tl.load(BOUNDS + row_last)
    inner_high = tl.load(BOUNDS + L + row_first)
    high = tl.load(BOUNDS + L + row_last)
    return low, inner_low, inner_high, high


@triton.jit
def split_phases(low, inner_low, inner_high, high, BLOCK: tl.constexpr):
    """Ends of left boundary and interior; without a whole block, all is right boundary."""
    blocks = tl.maximum(inner_high - inner_low, 0) // BLOCK
    left_end = tl.where(blocks > 0, inner_low, low)
    inner_end = tl.where(blocks > 0, inner_low + blocks * BLOCK, low)
    return left_end, inner_end


@triton.jit
def matmul(a, b, UPCAST: tl.constexpr):
    """a @ b, accumulated in float32; float32 operands are not rounded to TF32."""
    if UPCAST:  # the interpreter would multiply the bit patterns of bfloat16
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, input_precision="ieee")


@triton.jit
def fold(accumulator, row_sum, row_max, scores, v, MASKED: tl.constexpr, UPCAST: tl.constexpr):
    """Update the online softmax with a block of base-2 scores (M, N) and their values (N, D)."""
    new_max = tl.maximum(row_max, tl.max(scores, 1))
    reference = tl.where(new_max == float("-inf"), 0.0, new_max) if MASKED else new_max
    weights = tl.exp2(scores - reference[:, None])
    correction = tl.exp2(row_max - reference)
    row_sum = row_sum * correction + tl.sum(weights, 1)
    accumulator = accumulator * correction[:, None] + matmul(weights.to(v.dtype), v, UPCAST)
    return accumulator, row_sum, new_max


@triton.jit
def attend_columns(
    accumulator, row_sum, row_max, q, K, V, stride_kn, stride_kd, stride_vn,
    stride_vd,  # (M, D), (M,), (M,), (M, D)
    starts, ends, begin, end, scale_log2, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_N: tl.constexpr, MASKED: tl.constexpr, UPCAST: tl.constexpr,
):
    """Update the online softmax with columns [begin, end); `MASKED` tests each row's interval."""
    offset_n = tl.arange(0, BLOCK_N)
    offset_d = tl.arange(0, BLOCK_D)
    inside = offset_d < D
    for column in tl.range(begin, end, BLOCK_N):
        columns = column + offset_n
        # (D, N)
        k_pointer = K + columns[None, :].to(tl.int64) * stride_kn + offset_d[:, None] * stride_kd
        # (N, D)
        v_pointer = V + columns[:, None].to(tl.int64) * stride_vn + offset_d[None, :] * stride_vd
        if MASKED:
            present = columns < end
            k = tl.load(k_pointer, mask=inside[:, None] & present[None, :], other=0.0)
            v = tl.load(v_pointer, mask=inside[None, :] & present[:, None], other=0.0)
        elif BLOCK_D != D:
            k = tl.load(k_pointer, mask=inside[:, None], other=0.0)
            v = tl.load(v_pointer, mask=inside[None, :], other=0.0)
        else:
            k = tl.load(k_pointer)
            v = tl.load(v_pointer)
        scores = matmul(q, k, UPCAST) * scale_log2  # (M, N), base-2 exponents
        if MASKED:
            seen = (columns[None, :] >= starts[:, None]) & (columns[None, :]
                                                            < ends[:, None]) & present[None, :]
            scores = tl.where(seen, scores, float("-inf"))
        accumulator, row_sum, row_max = fold(accumulator, row_sum, row_max, scores, v, MASKED,
                                             UPCAST)
    return accumulator, row_sum, row_max


@triton.jit
def interval_forward(
    Q, K, V, BOUNDS, stride_kb, stride_kh, stride_kn, stride_kd, stride_vb, stride_vh, stride_vn,
    stride_vd, stride_bb, stride_bh, K2, V2, BOUNDS2, stride_k2b, stride_k2h, stride_k2n,
    stride_k2d, stride_v2b, stride_v2h, stride_v2n, stride_v2d, stride_b2b, stride_b2h, OUT, LSE,
    # (B, H, L, D); twice (B, Hk, N, D) x 2, (b, h, n, 2, L); (B, H, L, D), (B, H, L)
    stride_qb, stride_qh, stride_qm, stride_qd, stride_ob, stride_oh, stride_om, stride_od, H,
    QUERIES_PER_KEY, L, scale_log2, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, FIRST: tl.constexpr, INTERVALS: tl.constexpr, UPCAST: tl.constexpr,
):
    """out = softmax(scale q K^T over the row's intervals) V, and the log of its normaliser.

    The first FIRST intervals are columns of K and V, the others of K2 and V2.
    """
    block = tl.num_programs(0) - 1 - tl.program_id(0)  # the last rows see most: they start first
    batch = (tl.program_id(1) // H).to(tl.int64)
    head = (tl.program_id(1) % H).to(tl.int64)
    Q += batch * stride_qb + head * stride_qh
    OUT += batch * stride_ob + head * stride_oh
    K += batch * stride_kb + head // QUERIES_PER_KEY * stride_kh
    V += batch * stride_vb + head // QUERIES_PER_KEY * stride_vh
    BOUNDS += batch * stride_bb + head * stride_bh
    row_first = block * BLOCK_M
    row_last = tl.minimum(row_first + BLOCK_M, L) - 1
    rows = row_first + tl.arange(0, BLOCK_M)
    row_read = tl.minimum(rows, L - 1)  # rows past the end repeat the last one and are not stored
    offset_d = tl.arange(0, BLOCK_D)
    inside = (offset_d < D)[None, :]
    q = tl.load(Q + row_read[:, None].to(tl.int64) * stride_qm + offset_d[None, :] * stride_qd,
                mask=inside, other=0.0)
    accumulator = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    row_sum = tl.zeros([BLOCK_M], dtype=tl.float32)
    row_max = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    for interval in tl.static_range(INTERVALS):
        if interval == FIRST:  # this one and those after it are columns of the second source
            K = K2 + batch * stride_k2b + head // QUERIES_PER_KEY * stride_k2h
            V = V2 + batch * stride_v2b + head // QUERIES_PER_KEY * stride_v2h
            BOUNDS = BOUNDS2 + batch * stride_b2b + head * stride_b2h - FIRST * 2 * L
            stride_kn, stride_kd = stride_k2n, stride_k2d
            stride_vn, stride_vd = stride_v2n, stride_v2d
        bounds = BOUNDS + interval * 2 * L
        low, inner_low, inner_high, high = span_of_rows(bounds, row_first, row_last, L)
        left_end, inner_end = split_phases(low, inner_low, inner_high, high, BLOCK_N)
        starts = tl.load(bounds + row_read)
        ends = tl.load(bounds + L + row_read)
        accumulator, row_sum, row_max = attend_columns(
            accumulator, row_sum, row_max, q, K, V, stride_kn, stride_kd, stride_vn, stride_vd,
            starts, ends, low, left_end, scale_log2, D, BLOCK_D, BLOCK_N, True, UPCAST)
        accumulator, row_sum, row_max = attend_columns(
            accumulator, row_sum, row_max, q, K, V, stride_kn, stride_kd, stride_vn, stride_vd,
            starts, ends, left_end, inner_end, scale_log2, D, BLOCK_D, BLOCK_N, False, UPCAST)
        accumulator, row_sum, row_max = attend_columns(
            accumulator, row_sum, row_max, q, K, V, stride_kn, stride_kd, stride_vn, stride_vd,
            starts, ends, inner_end, high, scale_log2, D, BLOCK_D, BLOCK_N, True, UPCAST)
    out = accumulator / row_sum[:, None]
    stored = (rows < L)[:, None] & inside
    tl.store(OUT + rows[:, None].to(tl.int64) * stride_om + offset_d[None, :] * stride_od,
             out.to(OUT.dtype.element_ty), mask=stored)
    lse = (row_max + tl.log2(row_sum)) * 0.6931471805599453  # ln 2
    tl.store(LSE + tl.program_id(1).to(tl.int64) * L + rows, lse, mask=rows < L)
