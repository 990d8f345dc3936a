"""Kernels that pool each group of g tokens into one key and one value, and their gradients.

    phi = softmax_t(scale * qbar . k_t)     qbar: the group's last query, mean over the query heads
    core_k = sum_t phi_t R_t k_t            R_t re-rotates a key from its own to the middle position
    core_v = sum_t phi_t v_t

One program computes one group of one KV head; its g tokens are the rows of one tile, padded to a
power of two. R_t combines the two halves of a key: (R k)[d] = cos[d] k[d] + sign[d] sin[d] k[other
half], so the program loads the keys a second time with their halves exchanged.
"""

from cca_lab.attention.kernels.language import tl, triton


@triton.jit
def load_group(X, first, token, inside, offset_d, stride_n, stride_d):
    """Tokens `first + token` of one head as float32, (T, D)."""
    pointer = X + (first + token[:, None]).to(tl.int64) * stride_n + offset_d[None, :] * stride_d
    return tl.load(pointer, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def mean_query(Q, row, offset_d, stride_qh, stride_qn, stride_qd, QUERIES_PER_KEY,
               D: tl.constexpr, BLOCK_D: tl.constexpr):
    """The query at `row`, averaged over the query heads of a KV head, (D,)."""
    total = tl.zeros([BLOCK_D], dtype=tl.float32)
    for head in range(QUERIES_PER_KEY):
        total += tl.load(Q + head * stride_qh + row.to(tl.int64) * stride_qn + offset_d * stride_qd,
                         mask=offset_d < D, other=0.0).to(tl.float32)
    return total / QUERIES_PER_KEY


@triton.jit
def group_weights(k, query, token, scale, GROUP: tl.constexpr):
    """phi (T,): softmax over the group's tokens, 0 on the padding of the tile."""
    logits = tl.sum(k * query[None, :], 1) * scale
    logits = tl.where(token < GROUP, logits, float("-inf"))
    weights = tl.exp(logits - tl.max(logits, 0))
    return weights / tl.sum(weights, 0)


@triton.jit
def turned(k, K, COS, SIN, first, token, inside, offset_d, stride_n, stride_d, D: tl.constexpr):
    """R_t k_t of each token, (T, D), by the angle to its group's middle, COS and SIN."""
    half = D // 2
    other = tl.where(offset_d < half, offset_d + half, offset_d - half)
    sign = tl.where(offset_d < half, -1.0, 1.0)[None, :]
    table = (first + token[:, None]).to(tl.int64) * D + offset_d[None, :]
    cos = tl.load(COS + table, mask=inside, other=0.0)
    sin = tl.load(SIN + table, mask=inside, other=0.0)
    swapped = load_group(K, first, token, inside, other, stride_n, stride_d)
    return k * cos + sign * swapped * sin


@triton.jit
def pooling_forward(
    Q, K, V, COS, SIN, CORE_K,
    CORE_V,  # (B, H, L, D), (B, Hk, L, D) x 2, (b, tokens, D) x 2, (B, Hk, M, D) x 2
    stride_qb, stride_qh, stride_qn, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_rb, HK, QUERIES_PER_KEY, M, scale,
    D: tl.constexpr, BLOCK_D: tl.constexpr, GROUP: tl.constexpr, BLOCK_T: tl.constexpr,
    ROTATED: tl.constexpr,
):
    """Core key and core value of one group."""
    group = tl.program_id(0)
    batch = (tl.program_id(1) // HK).to(tl.int64)
    key_head = (tl.program_id(1) % HK).to(tl.int64)
    Q += batch * stride_qb + key_head * QUERIES_PER_KEY * stride_qh
    K += batch * stride_kb + key_head * stride_kh
    V += batch * stride_vb + key_head * stride_vh
    first = group * GROUP
    token = tl.arange(0, BLOCK_T)
    offset_d = tl.arange(0, BLOCK_D)
    inside = (token < GROUP)[:, None] & (offset_d < D)[None, :]
    k = load_group(K, first, token, inside, offset_d, stride_kn, stride_kd)
    v = load_group(V, first, token, inside, offset_d, stride_vn, stride_vd)
    query = mean_query(Q, first + GROUP - 1, offset_d, stride_qh, stride_qn, stride_qd,
                       QUERIES_PER_KEY, D, BLOCK_D)
    phi = group_weights(k, query, token, scale, GROUP)
    if ROTATED:
        k = turned(k, K, COS + batch * stride_rb, SIN + batch * stride_rb, first, token, inside,
                   offset_d, stride_kn, stride_kd, D)
    stored_at = (tl.program_id(1).to(tl.int64) * M + group) * D + offset_d
    tl.store(CORE_K + stored_at,
             tl.sum(phi[:, None] * k, 0).to(CORE_K.dtype.element_ty), mask=offset_d < D)
    tl.store(CORE_V + stored_at,
             tl.sum(phi[:, None] * v, 0).to(CORE_V.dtype.element_ty), mask=offset_d < D)


@triton.jit
def pooling_backward(
    Q, K, V, COS, SIN, D_CORE_K, D_CORE_V, DQ, DK,
    DV,  # DQ (B, H, L, D), DK, DV (B, Hk, L, D), zeros, contiguous
    stride_qb, stride_qh, stride_qn, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_rb, HK, QUERIES_PER_KEY, M, L, scale,
    D: tl.constexpr, BLOCK_D: tl.constexpr, GROUP: tl.constexpr, BLOCK_T: tl.constexpr,
    ROTATED: tl.constexpr,
):
    """Gradients of one group: dphi_t = dcore_k . R_t k_t + dcore_v . v_t, then the softmax."""
    group = tl.program_id(0)
    batch = (tl.program_id(1) // HK).to(tl.int64)
    key_head = (tl.program_id(1) % HK).to(tl.int64)
    Q += batch * stride_qb + key_head * QUERIES_PER_KEY * stride_qh
    K += batch * stride_kb + key_head * stride_kh
    V += batch * stride_vb + key_head * stride_vh
    COS += batch * stride_rb
    SIN += batch * stride_rb
    first = group * GROUP
    token = tl.arange(0, BLOCK_T)
    offset_d = tl.arange(0, BLOCK_D)
    present = offset_d < D
    inside = (token < GROUP)[:, None] & present[None, :]
    k = load_group(K, first, token, inside, offset_d, stride_kn, stride_kd)
    v = load_group(V, first, token, inside, offset_d, stride_vn, stride_vd)
    query = mean_query(Q, first + GROUP - 1, offset_d, stride_qh, stride_qn, stride_qd,
                       QUERIES_PER_KEY, D, BLOCK_D)
    phi = group_weights(k, query, token, scale, GROUP)
    stored_at = (tl.program_id(1).to(tl.int64) * M + group) * D
    grad_core_k = tl.load(D_CORE_K + stored_at + offset_d, mask=present, other=0.0).to(tl.float32)
    grad_core_v = tl.load(D_CORE_V + stored_at + offset_d, mask=present, other=0.0).to(tl.float32)
    # R_t^T dcore_k
    back_turned = tl.zeros([BLOCK_T, BLOCK_D], dtype=tl.float32) + grad_core_k[None, :]
    pooled = k
    if ROTATED:
        pooled = turned(k, K, COS, SIN, first, token, inside, offset_d, stride_kn, stride_kd, D)
        back_turned = turned_back(grad_core_k, D_CORE_K + stored_at, COS, SIN, first, token, inside,
                                  offset_d, D)
    grad_phi = tl.sum(pooled * grad_core_k[None, :] + v * grad_core_v[None, :], 1)
    grad_logits = phi * (grad_phi - tl.sum(phi * grad_phi, 0)) * scale
    grad_k = phi[:, None] * back_turned + grad_logits[:, None] * query[None, :]
    row = (tl.program_id(1).to(tl.int64) * L + first + token)[:, None] * D + offset_d[None, :]
    tl.store(DK + row, grad_k.to(DK.dtype.element_ty), mask=inside)
    tl.store(DV + row, (phi[:, None] * grad_core_v[None, :]).to(DV.dtype.element_ty), mask=inside)
    grad_query = tl.sum(grad_logits[:, None] * k, 0) / QUERIES_PER_KEY
    for head in range(QUERIES_PER_KEY):
        query_row = ((tl.program_id(1).to(tl.int64) * QUERIES_PER_KEY + head) * L + first + GROUP
                     - 1) * D + offset_d
        tl.store(DQ + query_row, grad_query.to(DQ.dtype.element_ty), mask=present)


@triton.jit
def turned_back(grad, GRAD, COS, SIN, first, token, inside, offset_d, D: tl.constexpr):
    """R_t^T grad of each token, (T, D): the exchanged half has the other half's sine and sign."""
    half = D // 2
    other = tl.where(offset_d < half, offset_d + half, offset_d - half)
    sign = tl.where(offset_d < half, 1.0, -1.0)[None, :]
    table = (first + token[:, None]).to(tl.int64) * D
    cos = tl.load(COS + table + offset_d[None, :], mask=inside, other=0.0)
    sin = tl.load(SIN + table + other[None, :], mask=inside, other=0.0)
    swapped = tl.load(GRAD + other, mask=offset_d < D, other=0.0).to(tl.float32)
    return grad[None, :] * cos + sign * swapped[None, :] * sin
