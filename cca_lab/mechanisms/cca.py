"""Core Context Aware (CCA) attention: distant groups as one core token each, nearby tokens as they are.

Chen et al., "Core Context Aware Transformers for Long Context Language Modeling", ICML 2025
(Sections 3.2-3.4, Eq. 2-5, Algorithm 1). Rows, tokens and groups count from 0; g is the group
size, s the local window. Group p holds the tokens [pg, pg + g) and its last one judges it:

    core_p = sum_t phi_t x_t,   phi = softmax(scale * q_{pg+g-1} K_group^T)                     (Eq. 2)
    n(i)   = max(0, floor((i + 1 - s) / g))           groups older than the s nearest tokens     (Eq. 3)
    out_i  = softmax(scale * q_i [core keys [0, n(i)) ; raw keys [g n(i), i]]^T) [same of values] (Eq. 5)

so every past token is read exactly once: raw, or inside one core.

Differs from the paper:
  * The raw tokens start at g n(i). Eq. 4 and Algorithm 1 line 11 print k = i-s-((i-s) mod g), one
    token earlier, which would read that token twice; the text (Section 3.3, Appendix A) agrees with us.
  * 1/sqrt(D) stands inside the softmax, as in Eq. 5 (Algorithm 1 line 12 prints it outside).
  * phi pools keys and values instead of x: the same thing, because phi sums to 1 (biases included).
  * With RoPE the paper places a core key "at the middle position" of its group (Appendix B.2); for even
    g that is ambiguous and we take pg + g//2. phi is computed from q and k as they arrive (rotated, as
    in the public code, which however pools rotated keys and has no middle position).
  * The paper does not speak of grouped-query attention. Default: one core per KV head, phi from the mean
    of its query heads' logits. `per_query_head=True`: a core per query head, as in the public code.
"""

from typing import Any

import torch
from torch import Tensor

from cca_lab.attention import effective_attention, interval_attention, pool_groups, pooling_matrix
from cca_lab.attention.arguments import check_rotation
from cca_lab.attention.pooling import pooling_backend
from cca_lab.mechanisms.cca_rows import cache_tokens, core_count, intervals, pairs, visible_cores
from cca_lab.mechanisms.inputs import check_positive, check_qkv, expand_heads
from cca_lab.mechanisms.mechanism import Mechanism, every_row
from cca_lab.mechanisms.rotary import Rotation

__all__ = ["attention", "cache_tokens", "core_count", "cores", "effective", "intervals", "loops", "pairs",
           "visible_cores"]

POOLINGS = ("softmax", "mean", "max")


def loops(q: Tensor, k: Tensor, v: Tensor, *, group: int, window: int, scale: float | None = None,
          rotation: Rotation | None = None, per_query_head: bool = False, pooling: str = "softmax") -> Tensor:
    """CCA attention, Algorithm 1 line by line. The specification.

    Args:
        q: queries, (B, H, L, D).
        k, v: keys and values, (B, Hk, L, D); H is a multiple of Hk.
        group: g, tokens in a group.
        window: s, the fewest nearest tokens (the row's own included) that stay raw.
        scale: factor on the dot products; None means D**-0.5.
        rotation: the RoPE tables (cos, sin), (L, D) or (B, L, D), that q and k have already been
            rotated with (half-rotated layout); None if positions are not in q and k.
        per_query_head: make a core per query head instead of one per KV head.
        pooling: "softmax" (Eq. 2), or the ablations "mean" and "max" (elementwise).

    Returns:
        (B, H, L, D), in the dtype of q.

    Raises:
        ValueError: if an option or a shape does not fit.
    """
    check_inputs(q, k, v, group, window, rotation, pooling)
    batch, heads, length, head_dim = q.shape
    g, s = group, window
    queries_per_key = heads // k.shape[1]
    scale = head_dim**-0.5 if scale is None else scale
    out = q.new_zeros(q.shape)
    for b in range(batch):
        for h in range(heads):
            kv = h // queries_per_key                       # the KV head that query head h reads
            keys, values = k[b, kv], v[b, kv]               # (L, D)
            first = kv * queries_per_key
            judges = q[b, h : h + 1] if per_query_head else q[b, first : first + queries_per_key]
            tables = None if rotation is None else [t.expand(batch, length, head_dim)[b] for t in rotation]
            core_keys, core_values = cores(judges, keys, values, g, scale, tables, pooling)  # lines 1-7
            for i in range(length):                         # line 9
                j = max(0, (i + 1 - s) // g)                # line 10: how many cores row i sees
                raw = slice(g * j, i + 1)                   # line 11: what they do not cover, up to itself
                row_keys = torch.cat([core_keys[:j], keys[raw]])        # (j + raw tokens, D)
                row_values = torch.cat([core_values[:j], values[raw]])
                weights = torch.softmax(scale * (row_keys @ q[b, h, i]), dim=0)
                out[b, h, i] = weights @ row_values         # line 12
    return out


def cores(judges: Tensor, keys: Tensor, values: Tensor, g: int, scale: float,
          tables: list[Tensor] | None, pooling: str) -> tuple[Tensor, Tensor]:
    """Pool each complete group of one KV head into a core key and a core value (Alg. 1, lines 1-7).

    Args:
        judges: queries of the heads that judge the groups together, (heads, L, D).
        keys, values: (L, D).
        g: group size.
        scale: factor on the dot products.
        tables: RoPE's cos and sin of each position, (L, D) each, or None.
        pooling: "softmax", "mean" or "max".

    Returns:
        core keys and core values, (m, D) each, m = floor(L / g).
    """
    m = len(keys) // g                                      # line 1; the tail joins no group
    core_keys, core_values = keys.new_zeros(m, keys.shape[1]), values.new_zeros(m, values.shape[1])
    for p in range(m):                                      # line 2
        members = slice(p * g, p * g + g)                   # line 3
        last = p * g + g - 1
        group_keys = keys[members]                          # (g, D)
        logits = sum(scale * (group_keys @ judge[last]) for judge in judges) / len(judges)  # (g,)
        if tables is not None:
            group_keys = turn_to_middle(group_keys, *tables, p, g)
        if pooling == "max":
            core_keys[p], core_values[p] = group_keys.amax(0), values[members].amax(0)
        else:
            phi = torch.softmax(logits, dim=0) if pooling == "softmax" else torch.full_like(logits, 1 / g)
            core_keys[p] = phi @ group_keys                 # lines 4 and 7
            core_values[p] = phi @ values[members]
    return core_keys, core_values


def turn_to_middle(group_keys: Tensor, cos: Tensor, sin: Tensor, p: int, g: int) -> Tensor:
    """Move the rotated keys of group p, (g, D), from their own positions to the middle one, pg + g//2."""
    def rotate(x, cos, sin):
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-second, first], dim=-1) * sin

    own, middle = slice(p * g, p * g + g), p * g + g // 2
    unrotated = rotate(group_keys, cos[own], -sin[own]) / (cos[own] ** 2 + sin[own] ** 2)
    return rotate(unrotated, cos[middle], sin[middle])


def attention(q: Tensor, k: Tensor, v: Tensor, *, group: int, window: int, scale: float | None = None,
              rotation: Rotation | None = None, per_query_head: bool = False, pooling: str = "softmax",
              backend: str = "auto") -> Tensor:
    """CCA attention, vectorised: pool the groups that some row sees, then attend once over [cores ; raw].

    Args:
        q, k, v, group, window, scale, rotation, per_query_head, pooling: as in `loops`.
        backend: of `interval_attention`; the pooling follows it.

    Returns, Raises: those of `loops`.
    """
    check_inputs(q, k, v, group, window, rotation, pooling)
    keys, values, _ = columns(q, k, v, group, window, scale, rotation, per_query_head, pooling, backend=backend)
    visible = intervals(q.shape[2], group, window, q.device)
    return interval_attention(q, keys, values, visible, scale=scale, backend=backend)


def effective(q: Tensor, k: Tensor, *, group: int, window: int, scale: float | None = None,
              rotation: Rotation | None = None, per_query_head: bool = False,
              pooling: str = "softmax") -> Tensor:
    """Return the matrix E = A P with attention(q, k, v) = E v: how much each token weighs in a row (Eq. 8).

    Args:
        q, k, group, window, scale, rotation, per_query_head, pooling: as in `loops`.

    Returns:
        (B, H, L, L): rows sum to 1, positive on the past, exactly 0 on the future.

    Raises:
        ValueError: as `loops`; also for pooling="max", which is not linear in the values.
    """
    check_inputs(q, k, k, group, window, rotation, pooling)
    if pooling == "max":
        raise ValueError("pooling: got 'max', wanted 'softmax' or 'mean'; a maximum of values is no weighted "
                         "mean, so no effective matrix exists")
    keys, _, phi = columns(q, k, k, group, window, scale, rotation, per_query_head, pooling, return_phi=True)
    batch, length = q.shape[0], q.shape[2]
    raw = torch.eye(length, dtype=phi.dtype, device=phi.device).expand(batch, phi.shape[1], length, length)
    pools = torch.cat([pooling_matrix(phi, length), raw], dim=2)         # (B, Hk or H, cores + L, L)
    return effective_attention(q, keys, intervals(length, group, window, q.device), pools, scale=scale)


def columns(q: Tensor, k: Tensor, v: Tensor, group: int, window: int, scale: float | None,
            rotation: Rotation | None, per_query_head: bool, pooling: str, *, return_phi: bool = False,
            backend: str = "auto") -> tuple[Tensor, Tensor, Tensor | None]:
    """Put the cores that some row sees in front of the raw tokens.

    Args:
        return_phi: also return phi, which the fused pooling does not keep.
        The others are those of `attention`.

    Returns:
        [core ; raw] keys and values, (B, Hk or H, C + L, D), and phi, (B, Hk or H, C, g): None for "max", and
        without `return_phi`.
    """
    heads, count = q.shape[1], core_count(q.shape[2], group, window)
    asked = {"weights": pooling, "per_query_head": per_query_head, "count": count, "return_phi": return_phi}
    core_k, core_v, *phi = pool_groups(q, k, v, group, scale=scale, rotation=rotation,
                                       backend=pooling_backend(backend, **asked), **asked)
    if per_query_head:
        k, v = expand_heads(k, heads), expand_heads(v, heads)
    return torch.cat([core_k, k], dim=2), torch.cat([core_v, v], dim=2), phi[0] if phi else None


def check_inputs(q: Tensor, k: Tensor, v: Tensor, group: int, window: int, rotation: Rotation | None,
                 pooling: str) -> None:
    """Raise ValueError naming the first argument that CCA attention cannot take."""
    check_qkv(q, k, v)
    check_positive(group=group, window=window)
    if pooling not in POOLINGS:
        raise ValueError(f"pooling: got {pooling!r}, wanted one of {', '.join(POOLINGS)}; "
                         "the paper's is 'softmax'")
    check_rotation(rotation, q)


def exact_when(length: int, *, group: int, window: int, **_: Any) -> bool:
    """No row sees a core (Section 3.2: L < g + s), or every core is its one token."""
    return length < group + window or group == 1


MECHANISM = Mechanism(
    name="cca",
    title="CCA-Attention",
    paper="Chen et al., Core Context Aware Transformers for Long Context Language Modeling, ICML 2025, "
          "Sections 3.2-3.4, Algorithm 1",
    loops=loops,
    attention=attention,
    effective=effective,
    defaults={"group": 16, "window": 64},
    paper_presets={
        "default (Tables 8 and 9)": {"group": 16, "window": 1024},
        "fastest of Figure 3": {"group": 16, "window": 4096},
        "most accurate of Figure 3": {"group": 2, "window": 1024},
    },
    causal_scope=every_row,
    needs_training=True,
    exact_when=exact_when,
)
