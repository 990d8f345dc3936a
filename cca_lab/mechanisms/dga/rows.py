"""The columns that each row of DGA sees, and the number of entries that a decoder keeps.

The columns are [focal tokens ; pooled groups ; raw tokens]. Rows, tokens and groups count from 0. There are F
focal tokens and K groups of m others; G_z is the z-th group. Every row sees one interval of each of the three.
"""

import torch
from torch import Tensor

from cca_lab.mechanisms.dga.selection import FocalRule


def row_reads(i: int, focal: list[int], groups: list[list[int]],
              rule: FocalRule) -> tuple[list[int], list[int], list[int]]:
    """Return what row i reads (Algorithm 2, causal): focal tokens, numbers of groups, and raw tokens."""
    if rule.choose == "prompt":
        closed = [z for z, members in enumerate(groups) if members[-1] < i]
        raw = [t for members in groups if members[0] <= i <= members[-1] for t in members if t <= i]
        return [t for t in focal if t <= i], closed, raw
    first = i // rule.block * rule.block                                 # first token of its block
    closed = [z for z, members in enumerate(groups) if members[-1] < first]
    return [t for t in focal if t < first], closed, list(range(first, i + 1))


def intervals(focal: Tensor, rule: FocalRule) -> Tensor:
    """Return the columns of [focal ; pooled ; raw] that each row sees.

    choose="prompt" (raw: the non-focal tokens, in order): row i sees the focal tokens up to i, the groups
    with max G_z < i, and the members up to i of the group with min G_z <= i <= max G_z (Eq. 15).
    choose="blocks" (raw: all tokens): row i sees the focal tokens and groups of the blocks before its own, and
    its own block up to i.

    Args:
        focal: bool (B, Hk, L), as `select` returns it.
        rule: the options.

    Returns:
        int64 (B, Hk, L, 3, 2); (1, 1, L, 3, 2) for "blocks", where they are the same for all heads.
    """
    length = focal.shape[-1]
    row = torch.arange(length, device=focal.device)
    count, span = rule.spans(length)
    total = int(focal[0, 0].sum())                                     # F
    raw = total + (count * span - total) // rule.group                 # F + K, the column of the first raw token
    if rule.choose == "prompt":
        kept = focal.cumsum(-1)                                        # focal tokens up to row i, (B, Hk, L)
        others = row + 1 - kept
        closed = (others - (~focal).long()).div(rule.group, rounding_mode="floor")  # others before row i, over m
        ends = [kept, total + closed, raw + others]
        starts = [torch.zeros_like(kept), torch.full_like(kept, total), raw + rule.group * closed]
    else:
        before = (row // span)[None, None]                             # blocks before the row's own, (1, 1, L)
        per_block = total // max(count, 1)                             # focal tokens of a block
        groups = (span - per_block) // rule.group
        ends = [per_block * before, total + groups * before, raw + row[None, None] + 1]
        starts = [torch.zeros_like(before), torch.full_like(before, total), raw + span * before]
    return torch.stack([torch.stack(starts, -1), torch.stack(ends, -1)], dim=-1)


def decode_span(group: int) -> int:
    """Return m' = 1.1 m (Section 5.1), rounded up: generated tokens that become one group and m' - m focal tokens."""
    return -(-11 * group // 10)


def cache_tokens(length: int, rule: FocalRule, *, prompt: int | None = None) -> tuple[int, int]:
    """Return how many entries (a key and a value each) a decoder keeps for one KV head after L tokens.

    Args:
        length: tokens read, L.
        rule: the options.
        prompt: how many of them were the prompt; all by default. No effect for choose="blocks".

    Returns:
        The number of focal tokens and groups, and the number of raw tokens that are not divided yet. With r
        focal tokens the first is r + (P - r)/m for a prompt of P tokens (Appendix E) plus m' - m + 1 for each
        m' generated tokens; or r_b + (B - r_b)/m for each complete block with r_b focal tokens.
    """
    def divided(span: int) -> int:
        focal = rule.focal_count(span)
        return focal + (span - focal) // rule.group

    if rule.choose == "blocks":
        blocks, raw = divmod(length, rule.block)
        return blocks * divided(rule.block), raw
    prompt = length if prompt is None else prompt
    times, raw = divmod(length - prompt, decode_span(rule.group))
    return divided(prompt) + times * (decode_span(rule.group) - rule.group + 1), raw
