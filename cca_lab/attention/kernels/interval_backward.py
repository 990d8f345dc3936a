"""Backward kernels of interval attention: one for dQ over rows, one for dK and dV over columns.

With s_ij = scale q_i . k_j, p_ij = exp(s_ij - lse_i) and delta_i = do_i . out_i - dlse_i:

    dV_j = sum_i p_ij do_i      dS_ij = p_ij (do_i . v_j - delta_i)
    dQ_i = scale sum_j dS_ij k_j      dK_j = scale sum_i dS_ij q_i

Starts and ends never move back, so the rows that see a block of columns form an interval too: the
column kernel goes through it in the same three phases as the forward kernel through columns. It
sums over the query heads of its KV head: no atomic additions, results reproducible bit for bit.
"""


from cca_lab.attention.kernels.interval_forward import matmul, span_of_rows, split_phases
from cca_lab.attention.kernels.language import tl, triton


@triton.jit
def gradient_of_rows(grad_q, q, do, lse_log2, delta, K, V, stride_kn, stride_kd, stride_vn,
                     stride_vd, starts, ends, begin, end, scale_log2, D: tl.constexpr,
                     BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr, MASKED: tl.constexpr,
                     UPCAST: tl.constexpr):
    """Add the terms of columns [begin, end) to dQ / scale, (M, D)."""
    offset_n = tl.arange(0, BLOCK_N)
    offset_d = tl.arange(0, BLOCK_D)
    inside = offset_d < D
    for column in tl.range(begin, end, BLOCK_N):
        columns = column + offset_n
        # (N, D)
        k_pointer = K + columns[:, None].to(tl.int64) * stride_kn + offset_d[None, :] * stride_kd
        # (D, N)
        v_pointer = V + columns[None, :].to(tl.int64) * stride_vn + offset_d[:, None] * stride_vd
        if MASKED:
            present = columns < end
            k = tl.load(k_pointer, mask=inside[None, :] & present[:, None], other=0.0)
            v = tl.load(v_pointer, mask=inside[:, None] & present[None, :], other=0.0)
        else:
            k = tl.load(k_pointer, mask=inside[None, :], other=0.0)
            v = tl.load(v_pointer, mask=inside[:, None], other=0.0)
        weights = tl.exp2(matmul(q, tl.trans(k), UPCAST) * scale_log2 - lse_log2[:, None])  # (M, N)
        if MASKED:
            seen = (columns[None, :] >= starts[:, None]) & (columns[None, :]
                                                            < ends[:, None]) & present[None, :]
            weights = tl.where(seen, weights, 0.0)
        grad_scores = weights * (matmul(do, v, UPCAST) - delta[:, None])
        grad_q += matmul(grad_scores.to(k.dtype), k, UPCAST)
    return grad_q


@triton.jit
def interval_backward_rows(
    Q, K, V, BOUNDS, stride_kb, stride_kh, stride_kn, stride_kd, stride_vb, stride_vh, stride_vn,
    stride_vd, stride_bb, stride_bh, K2, V2, BOUNDS2, stride_k2b, stride_k2h, stride_k2n,
    stride_k2d, stride_v2b, stride_v2h, stride_v2n, stride_v2d, stride_b2b, stride_b2h, OUT, LSE,
    DO, DLSE, DELTA, DQ,  # OUT, DO, DQ (B, H, L, D) and LSE, DLSE, DELTA (B, H, L), contiguous
    stride_qb, stride_qh, stride_qm, stride_qd, H, QUERIES_PER_KEY, L, scale, scale_log2,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    FIRST: tl.constexpr, INTERVALS: tl.constexpr, UPCAST: tl.constexpr,
):
    """dQ and delta of a block of rows of one query head, from both sources as in the forward."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    batch = (tl.program_id(1) // H).to(tl.int64)
    head = (tl.program_id(1) % H).to(tl.int64)
    row_of_head = tl.program_id(1).to(tl.int64) * L
    Q += batch * stride_qb + head * stride_qh
    K += batch * stride_kb + head // QUERIES_PER_KEY * stride_kh
    V += batch * stride_vb + head // QUERIES_PER_KEY * stride_vh
    BOUNDS += batch * stride_bb + head * stride_bh
    row_first = block * BLOCK_M
    row_last = tl.minimum(row_first + BLOCK_M, L) - 1
    rows = row_first + tl.arange(0, BLOCK_M)
    row_read = tl.minimum(rows, L - 1)
    offset_d = tl.arange(0, BLOCK_D)
    inside = (offset_d < D)[None, :]
    q = tl.load(Q + row_read[:, None].to(tl.int64) * stride_qm + offset_d[None, :] * stride_qd,
                mask=inside, other=0.0)
    stored_at = (row_of_head + row_read)[:, None] * D + offset_d[None, :]
    do = tl.load(DO + stored_at, mask=inside, other=0.0)
    lse_log2 = tl.load(LSE + row_of_head + row_read) * 1.4426950408889634  # 1 / ln 2
    out = tl.load(OUT + stored_at, mask=inside, other=0.0)
    delta = tl.sum(do.to(tl.float32) * out.to(tl.float32), 1) - tl.load(DLSE + row_of_head
                                                                        + row_read)
    tl.store(DELTA + row_of_head + rows, delta, mask=rows < L)  # the column kernel reads it
    grad_q = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
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
        grad_q = gradient_of_rows(grad_q, q, do, lse_log2, delta, K, V, stride_kn, stride_kd,
                                  stride_vn, stride_vd, starts, ends, low, left_end, scale_log2, D,
                                  BLOCK_D, BLOCK_N, True, UPCAST)
        grad_q = gradient_of_rows(grad_q, q, do, lse_log2, delta, K, V, stride_kn, stride_kd,
                                  stride_vn, stride_vd, starts, ends, left_end, inner_end,
                                  scale_log2, D, BLOCK_D, BLOCK_N, False, UPCAST)
        grad_q = gradient_of_rows(grad_q, q, do, lse_log2, delta, K, V, stride_kn, stride_kd,
                                  stride_vn, stride_vd, starts, ends, inner_end, high, scale_log2,
                                  D, BLOCK_D, BLOCK_N, True, UPCAST)
    tl.store(DQ + stored_at, (grad_q * scale).to(DQ.dtype.element_ty),
             mask=(rows < L)[:, None] & inside)


@triton.jit
def gradient_of_columns(grad_k, grad_v, k, v, columns, Q, DO, LSE, DELTA, BOUNDS, stride_qm,
                        stride_qd, L, begin, end, scale_log2, D: tl.constexpr,
                        BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, MASKED: tl.constexpr,
                        UPCAST: tl.constexpr):
    """Add the terms of rows [begin, end) of one query head to dK / scale and dV, (N, D) each."""
    offset_m = tl.arange(0, BLOCK_M)
    offset_d = tl.arange(0, BLOCK_D)
    inside = (offset_d < D)[None, :]
    for row in tl.range(begin, end, BLOCK_M):
        rows = row + offset_m
        present = rows < end
        read = tl.minimum(rows, L - 1)
        q = tl.load(Q + read[:, None].to(tl.int64) * stride_qm + offset_d[None, :] * stride_qd,
                    mask=inside, other=0.0)
        do = tl.load(DO + read[:, None].to(tl.int64) * D + offset_d[None, :], mask=inside,
                     other=0.0)
        lse_log2 = tl.load(LSE + read) * 1.4426950408889634  # 1 / ln 2
        delta = tl.load(DELTA + read)
        weights = tl.exp2(matmul(k, tl.trans(q), UPCAST) * scale_log2 - lse_log2[None, :])  # (N, M)
        if MASKED:
            starts = tl.load(BOUNDS + read)
            ends = tl.load(BOUNDS + L + read)
            seen = (columns[:, None] >= starts[None, :]) & (columns[:, None]
                                                            < ends[None, :]) & present[None, :]
            weights = tl.where(seen, weights, 0.0)
        grad_v += matmul(weights.to(do.dtype), do, UPCAST)
        grad_weights = matmul(v, tl.trans(do), UPCAST)  # (N, M)
        grad_scores = weights * (grad_weights - delta[None, :])
        grad_k += matmul(grad_scores.to(q.dtype), q, UPCAST)
    return grad_k, grad_v


@triton.jit
def gradient_of_block(
    K, V, BOUNDS, stride_kb, stride_kh, stride_kn, stride_kd, stride_vb, stride_vh, stride_vn,
    stride_vd, stride_bb, stride_bh, ROWS, stride_rb, stride_rh, N, DK, DV, block, Q, DO, LSE,
    DELTA, stride_qb, stride_qh, stride_qm, stride_qd, HK, QUERIES_PER_KEY, L, scale, scale_log2,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    INTERVALS: tl.constexpr, UPCAST: tl.constexpr,
):
    """Store dK and dV of a block of columns of one source, for one KV head."""
    blocks = tl.cdiv(N, BLOCK_N)
    batch = (tl.program_id(1) // HK).to(tl.int64)
    key_head = (tl.program_id(1) % HK).to(tl.int64)
    columns = block * BLOCK_N + tl.arange(0, BLOCK_N)
    offset_d = tl.arange(0, BLOCK_D)
    stored = (columns < N)[:, None] & (offset_d < D)[None, :]
    k = tl.load(K + batch * stride_kb + key_head * stride_kh + columns[:, None].to(tl.int64)
                * stride_kn + offset_d[None, :] * stride_kd, mask=stored, other=0.0)
    v = tl.load(V + batch * stride_vb + key_head * stride_vh + columns[:, None].to(tl.int64)
                * stride_vn + offset_d[None, :] * stride_vd, mask=stored, other=0.0)
    grad_k = tl.zeros([BLOCK_N, BLOCK_D], dtype=tl.float32)
    grad_v = tl.zeros([BLOCK_N, BLOCK_D], dtype=tl.float32)
    for query in range(QUERIES_PER_KEY):
        head = key_head * QUERIES_PER_KEY + query
        row_of_head = (batch * HK * QUERIES_PER_KEY + head) * L
        queries = Q + batch * stride_qb + head * stride_qh
        for interval in tl.static_range(INTERVALS):
            bounds = BOUNDS + batch * stride_bb + head * stride_bh + interval * 2 * L
            span = ROWS + batch * stride_rb + head * stride_rh + interval * 4 * blocks + block
            low = tl.load(span)
            high = tl.load(span + 3 * blocks)
            left_end, inner_end = split_phases(low, tl.load(span + blocks),
                                               tl.load(span + 2 * blocks), high, BLOCK_M)
            grad_k, grad_v = gradient_of_columns(
                grad_k, grad_v, k, v, columns, queries, DO + row_of_head * D, LSE + row_of_head,
                DELTA + row_of_head, bounds, stride_qm, stride_qd, L, low, left_end, scale_log2,
                D, BLOCK_D, BLOCK_M, True, UPCAST)
            grad_k, grad_v = gradient_of_columns(
                grad_k, grad_v, k, v, columns, queries, DO + row_of_head * D, LSE + row_of_head,
                DELTA + row_of_head, bounds, stride_qm, stride_qd, L, left_end, inner_end,
                scale_log2, D, BLOCK_D, BLOCK_M, False, UPCAST)
            grad_k, grad_v = gradient_of_columns(
                grad_k, grad_v, k, v, columns, queries, DO + row_of_head * D, LSE + row_of_head,
                DELTA + row_of_head, bounds, stride_qm, stride_qd, L, inner_end, high, scale_log2,
                D, BLOCK_D, BLOCK_M, True, UPCAST)
    stored_at = ((batch * HK + key_head) * N + columns)[:, None] * D + offset_d[None, :]
    tl.store(DK + stored_at, (grad_k * scale).to(DK.dtype.element_ty), mask=stored)
    tl.store(DV + stored_at, grad_v.to(DV.dtype.element_ty), mask=stored)


@triton.jit
def interval_backward_columns(
    Q, K, V, BOUNDS, stride_kb, stride_kh, stride_kn, stride_kd, stride_vb, stride_vh, stride_vn,
    stride_vd, stride_bb, stride_bh, ROWS, stride_rb, stride_rh, N, DK, DV, K2, V2, BOUNDS2,
    stride_k2b, stride_k2h, stride_k2n, stride_k2d, stride_v2b, stride_v2h, stride_v2n, stride_v2d,
    stride_b2b, stride_b2h, ROWS2, stride_r2b, stride_r2h, N2, DK2, DV2, DO, LSE,
    DELTA,  # ROWS (b, h, n, 4, blocks); DK, DV (B, Hk, N, D) contiguous
    stride_qb, stride_qh, stride_qm, stride_qd, HK, QUERIES_PER_KEY, L, scale, scale_log2,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    FIRST: tl.constexpr, INTERVALS: tl.constexpr, UPCAST: tl.constexpr,
):
    """dK and dV of both sources, in one launch: few cores, which many rows read, take long."""
    block = tl.program_id(0)
    blocks = tl.cdiv(N, BLOCK_N)
    rest = (Q, DO, LSE, DELTA, stride_qb, stride_qh, stride_qm, stride_qd, HK, QUERIES_PER_KEY, L,
            scale, scale_log2)
    if block < blocks:
        gradient_of_block(K, V, BOUNDS, stride_kb, stride_kh, stride_kn, stride_kd, stride_vb,
                          stride_vh, stride_vn, stride_vd, stride_bb, stride_bh, ROWS, stride_rb,
                          stride_rh, N, DK, DV, block, *rest, D, BLOCK_D, BLOCK_M, BLOCK_N, FIRST,
                          UPCAST)
    elif FIRST < INTERVALS:
        gradient_of_block(K2, V2, BOUNDS2, stride_k2b, stride_k2h, stride_k2n, stride_k2d,
                          stride_v2b, stride_v2h, stride_v2n, stride_v2d, stride_b2b, stride_b2h,
                          ROWS2, stride_r2b, stride_r2h, N2, DK2, DV2, block - blocks, *rest, D,
                          BLOCK_D, BLOCK_M, BLOCK_N, INTERVALS - FIRST, UPCAST)
