"""Pooled entries of DeepSeek-V4: each feature of a group has its own softmax over the group's tokens.

With values c_t and gates z_t of each token (learnt projections), a position bias b and groups of m tokens, entry p is

    e_p = sum_t softmax_t(z_t + b_(t mod m)) * c_t          over the m tokens of group p, feature by feature

"Heavily compressed" layers pool like this. "Compressed sparse" layers overlap: each token has two series of values and
gates, a and b, and entry p is one softmax over series a of group p - 1 and series b of group p, 2m tokens; the first
entry has its own group only. CCA's core (Eq. 2) has one weight for all features, from the query of the last token.

Read from transformers 5.23, `DeepseekV4HCACompressor` and `DeepseekV4CSACompressor`.
"""

import torch
from torch import Tensor

from cca_lab.attention.dense import accumulation_dtype
from cca_lab.settings import check_integers


def pool_by_loops(values: Tensor, gates: Tensor, bias: Tensor, group: int, *, overlap: bool = False) -> Tensor:
    """Pool group by group, token by token: the specification of `pool`, with its arguments."""
    batch, length, width = values.shape
    dim = width // 2 if overlap else width
    entries = []
    for p in range(length // group):
        members = [(t, slice(width - dim, width)) for t in range(p * group, p * group + group)]  # series b, or the one
        if overlap and p > 0:
            members = [(t, slice(0, dim)) for t in range((p - 1) * group, p * group)] + members  # series a
        logits = torch.stack([gates[:, t, series] + bias[t % group, series] for t, series in members])  # (tokens, B, D)
        weights = logits.to(accumulation_dtype(gates.dtype)).softmax(dim=0).to(values.dtype)
        entries.append(sum(weight * values[:, t, series] for weight, (t, series) in zip(weights, members, strict=True)))
    return torch.stack(entries, dim=1) if entries else values.new_zeros(batch, 0, dim)


def pool(values: Tensor, gates: Tensor, bias: Tensor, group: int, *, overlap: bool = False) -> Tensor:
    """Pool all complete groups at once.

    Args:
        values, gates: (B, L, D), or (B, L, 2D) with `overlap`: series a, then series b.
        bias: (m, D) or (m, 2D), added to the gates by place in the group.
        group: m, tokens of a group; tokens after the last complete one are not pooled.
        overlap: pool each group with the one before it.

    Returns:
        (B, floor(L / m), D), in the dtype of the values; the softmax is taken in at least float32.

    Raises:
        ValueError: if shapes do not fit.
    """
    check_integers(1, group=group)
    batch, length, width = values.shape
    if gates.shape != values.shape or tuple(bias.shape) != (group, width) or (overlap and width % 2):
        raise ValueError(f"gates, bias: got shapes {tuple(gates.shape)} and {tuple(bias.shape)}, wanted "
                         f"{tuple(values.shape)} as the values, and ({group}, {width})")
    count = length // group
    values, gates = (x[:, : count * group].unflatten(1, (count, group)) for x in (values, gates))  # (B, n, m, width)
    gates = gates + bias
    if overlap:
        dim = width // 2
        values, gates = (torch.cat([_before(x[..., :dim], nothing), x[..., dim:]], dim=2)  # (B, n, 2m, D)
                         for x, nothing in ((values, 0.0), (gates, float("-inf"))))
    weights = gates.to(accumulation_dtype(gates.dtype)).softmax(dim=2).to(values.dtype)
    return (weights * values).sum(dim=2)


def _before(x: Tensor, nothing: float) -> Tensor:
    """Each group's predecessor, (B, n, m, D); `nothing` before the first."""
    return torch.cat([torch.full_like(x[:, :1], nothing), x[:, :-1]], dim=1)
