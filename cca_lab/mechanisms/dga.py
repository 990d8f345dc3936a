"""Dynamic Group Attention (DGA): important tokens as they are, all others in groups of one pooled token each.

Zhang et al., "Curse of High Dimensionality Issue in Transformer for Long-context Modeling", ICML 2025
(Sections 5.1-5.2, Eq. 12-17, Algorithms 1 and 2). Rows and tokens count from 0; m is the group size.
The tokens with the highest importance scores are *focal*; the others, in order, form groups G_z of m:

    P_z   = softmax(scale * q_{max G_z} K_{G_z}^T),  k_z = P_z K_{G_z},  v_z = P_z V_{G_z}          (Eq. 14)
    out_i = softmax(scale * q_i [focal keys up to i ; k_z, max G_z < i ; open group up to i])        (Eq. 12-15)
            [same of values],      the open group being the one with min G_z <= i <= max G_z

so every past token is read exactly once: raw, or inside one group.

Differs from the paper, or decides what it leaves open:
  * Algorithm 2 prints that a row sees a group as soon as it sees any member, which shows it the future. Here
    a group is seen once all of it is past, as in the text's example on Figure 1 (the row max G_z itself still
    reads the members, as Eq. 15 says; reading the pooled token there would be causal too).
  * Eq. 13 masks after the softmax, where hidden keys still count in the sum. Here the softmax runs over what
    a row sees.
  * Eq. 14 prints no 1/sqrt(D), and K from min G_z to max G_z, which has more than m rows where focal tokens
    lie between. Here `scale` applies, and P_z runs over the members of G_z.
  * The scores use all later rows, so that a token can change what earlier rows read: choose="prompt", the
    paper's, is causal only given the focal tokens. choose="blocks" is the lab's causal form: the text is cut
    into blocks of B tokens, each divided once by its own queries and keys; a row reads its own block raw and
    the blocks before it divided. What it computes token by token is what it computes at once.
  * RoPE is not mentioned. Scores and P use q and k as they arrive (rotated). A pooled key stands at the
    position of its group's middle member, the m//2-th, as the lab does for CCA-Attention (whose paper says
    so): members between focal tokens may lie far apart, and keys pooled at different angles cancel in part.
  * Heads are not mentioned: focal tokens and P are chosen for each KV head, from the mean over its query heads
    (of attention weights, and of logits).
  * Which focal tokens, rounding, leftovers, ties, sampled rows: see `FocalRule` and `select`.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from cca_lab.attention import effective_attention, interval_attention
from cca_lab.attention.arguments import check_tensors
from cca_lab.mechanisms import cca
from cca_lab.mechanisms.dga_columns import columns, divide
from cca_lab.mechanisms.dga_rows import intervals
from cca_lab.mechanisms.dga_selection import FocalRule, focal_loops, importance, select
from cca_lab.mechanisms.inputs import expand_heads
from cca_lab.mechanisms.mechanism import EVERY_ROW, WHOLE_PROMPT, Mechanism
from cca_lab.mechanisms.rotary import Rotation

__all__ = ["FocalRule", "attention", "columns", "effective", "importance", "intervals", "loops", "row_reads",
           "select"]


def loops(q: Tensor, k: Tensor, v: Tensor, *, group: int, gamma: float, floor: int = 0, choose: str = "prompt",
          block: int = 71, recent: int = 0, random: int = 0, seed: int = 0, shared: bool = False,
          scale: float | None = None, rotation: Rotation | None = None,
          selection: Tensor | None = None) -> Tensor:
    """DGA, Algorithm 1 line by line. The specification.

    Args:
        q: queries, (B, H, L, D).
        k, v: keys and values, (B, Hk, L, D); H is a multiple of Hk.
        group, gamma, floor, choose, block, recent, random, seed, shared: the options, explained in `FocalRule`.
        scale: factor on the dot products; None means D**-0.5.
        rotation: the RoPE tables (cos, sin), (L, D) or (B, L, D), that q and k have already been
            rotated with (half-rotated layout); None if positions are not in q and k.
        selection: bool (B, Hk, L), the focal tokens, as `select` returns them; None to choose them here.

    Returns:
        (B, H, L, D), in the dtype of q.

    Raises:
        ValueError: if an option or a shape does not fit.
    """
    rule = FocalRule(group=group, gamma=gamma, floor=floor, choose=choose, block=block, recent=recent,
                     random=random, seed=seed, shared=shared)
    check_inputs(q, k, v, rule, rotation, selection)
    batch, heads, length, head_dim = q.shape
    share, m = heads // k.shape[1], rule.group
    scale = head_dim**-0.5 if scale is None else scale
    count, span = rule.spans(length)
    out = q.new_zeros(q.shape)
    for b in range(batch):
        for kv in range(k.shape[1]):
            keys, values = k[b, kv], v[b, kv]                            # (L, D)
            own = slice(kv * share, kv * share + share)                  # the query heads that read this KV head
            if selection is None:                                        # lines 1 and 2
                judges = slice(None) if rule.shared else own
                focal = focal_loops(q[b, judges], expand_heads(k, heads)[b, judges], rule, scale)
            else:
                focal = selection[b, kv].nonzero().flatten().tolist()
            others = [t for t in range(count * span) if t not in focal]  # line 3, without moving anything
            groups = [others[first : first + m] for first in range(0, len(others), m)]
            tables = None if rotation is None else [t.expand(batch, length, head_dim)[b, others] for t in rotation]
            pooled_keys, pooled_values = cca.cores(q[b, own][:, others], keys[others], values[others], m, scale,
                                               tables, "softmax")        # line 4: Eq. 14, (K, D) each
            for h in range(own.start, own.stop):
                for i in range(length):                                  # line 6
                    seen, closed, raw = row_reads(i, focal, groups, rule)                      # line 5
                    row_keys = torch.cat([keys[seen], pooled_keys[closed], keys[raw]])         # Eq. 12
                    row_values = torch.cat([values[seen], pooled_values[closed], values[raw]])
                    weights = torch.softmax(scale * (row_keys @ q[b, h, i]), dim=0)
                    out[b, h, i] = weights @ row_values                  # line 8
    return out


def row_reads(i: int, focal: list[int], groups: list[list[int]],
              rule: FocalRule) -> tuple[list[int], list[int], list[int]]:
    """Say what row i reads (Algorithm 2, causal): focal tokens, groups by number, and raw tokens."""
    if rule.choose == "prompt":
        closed = [z for z, members in enumerate(groups) if members[-1] < i]
        raw = [t for members in groups if members[0] <= i <= members[-1] for t in members if t <= i]
        return [t for t in focal if t <= i], closed, raw
    first = i // rule.block * rule.block                                 # of the row's own block
    closed = [z for z, members in enumerate(groups) if members[-1] < first]
    return [t for t in focal if t < first], closed, list(range(first, i + 1))


def attention(q: Tensor, k: Tensor, v: Tensor, *, group: int, gamma: float, floor: int = 0,
              choose: str = "prompt", block: int = 71, recent: int = 0, random: int = 0, seed: int = 0,
              shared: bool = False, scale: float | None = None, rotation: Rotation | None = None,
              selection: Tensor | None = None, backend: str = "auto") -> Tensor:
    """DGA, vectorised: attend once over [focal ; pooled ; raw], each row to one interval of each.

    Args:
        q, k, v, group, gamma, floor, choose, block, recent, random, seed, shared, scale, rotation, selection:
            as in `loops`.
        backend: of `interval_attention`; the pooling follows it.

    Returns, Raises: those of `loops`. Choosing costs O(L^2) time with all rows, O(L) a sampled row; memory
    is linear in L.
    """
    rule = FocalRule(group=group, gamma=gamma, floor=floor, choose=choose, block=block, recent=recent,
                     random=random, seed=seed, shared=shared)
    check_inputs(q, k, v, rule, rotation, selection)
    focal = select(q, k, scale=scale, **vars(rule)) if selection is None else selection
    keys, values, _ = columns(q, k, v, focal, rule, scale, rotation, backend=backend)
    visible = expand_heads(intervals(focal, rule), 1 if choose == "blocks" or k.shape[1] == 1 else q.shape[1])
    return interval_attention(q, keys, values, visible, scale=scale, backend=backend)


def effective(q: Tensor, k: Tensor, *, scale: float | None = None, rotation: Rotation | None = None,
              selection: Tensor | None = None, **options: Any) -> Tensor:
    """Return the matrix E = A P with attention(q, k, v) = E v: how much each token weighs in a row.

    Args:
        q, k, scale, rotation, selection: as in `loops`.
        options: the other options of `loops`.

    Returns:
        (B, H, L, L): rows sum to 1, positive on the past, exactly 0 on the future.

    Raises:
        ValueError: as `loops`.
    """
    rule = FocalRule(**options)
    check_inputs(q, k, k, rule, rotation, selection)
    focal = select(q, k, scale=scale, **options) if selection is None else selection
    keys, _, phi = columns(q, k, k, focal, rule, scale, rotation, return_phi=True)
    kept, others = (one_hot(index, k.shape[2]).to(phi) for index in divide(focal, rule))  # (B, Hk, F or K m, L)
    pooled = (phi[..., None, :] @ others.unflatten(2, (-1, rule.group)))[..., 0, :] if len(phi[0, 0]) else others
    raw = others if rule.choose == "prompt" else torch.eye(k.shape[2]).to(phi).expand(*k.shape[:2], -1, -1)
    pools = torch.cat([kept, pooled, raw], dim=2)                                         # (B, Hk, columns, L)
    visible = intervals(focal, rule)
    return effective_attention(q, keys, expand_heads(visible, q.shape[1]), pools, scale=scale)


def check_inputs(q: Tensor, k: Tensor, v: Tensor, rule: FocalRule, rotation: Rotation | None,
                 selection: Tensor | None) -> None:
    """Raise ValueError naming the first argument that DGA cannot take."""
    cca.check_inputs(q, k, v, rule.group, 1, rotation, "softmax")
    if selection is None:
        return
    check_tensors(selection=selection)
    if selection.dtype != torch.bool or selection.shape != k.shape[:3]:
        raise ValueError(f"selection: got {selection.dtype} {tuple(selection.shape)}, wanted bool (B, Hk, L) = "
                         f"{tuple(k.shape[:3])}; pass what `select` returns")
    count, span = rule.spans(k.shape[2])
    kept = selection[..., : count * span].unflatten(2, (count, span)).sum(-1)  # (B, Hk, count)
    if count and ((kept != kept[0, 0, 0]).any() or int(span - kept[0, 0, 0]) % rule.group):
        raise ValueError(f"selection: marks {kept.unique().tolist()} of {span} tokens, wanted the same number for "
                         f"each row, head and block, and a multiple of group = {rule.group} left; see `select`")


def exact_when(length: int, **options: Any) -> bool:
    """All tokens that some row looks back on are focal, or each group is its one token."""
    rule = FocalRule(**options)
    count, span = rule.spans(length)
    return rule.group == 1 or count == 0 or rule.focal_count(span) == span


MECHANISM = Mechanism(
    name="dga",
    title="Dynamic Group Attention",
    paper="Zhang et al., Curse of High Dimensionality Issue in Transformer for Long-context Modeling, ICML 2025, "
          "Sections 5.1-5.2, Algorithms 1 and 2",
    loops=loops,
    attention=attention,
    effective=effective,
    defaults={"group": 16, "gamma": 0.1},
    paper_presets={"paper": {"group": 16, "gamma": 0.1, "floor": 1024}},  # Appendix C.2; 1K read as 1024
    causal_scope=lambda *, choose="prompt", **_: WHOLE_PROMPT if choose == "prompt" else EVERY_ROW,
    needs_training=True,
    exact_when=exact_when,
    select=select,
)
