"""What each row of DGA sees, and how much a decoder keeps.

The columns are [focal tokens ; pooled groups ; raw tokens]. Rows, tokens and groups count from 0; F focal
tokens, K groups of m others, G_z the z-th group. Every row sees one interval of each of the three.
"""

import torch
from torch import Tensor

from cca_lab.mechanisms.dga_selection import FocalRule


def intervals(focal: Tensor, rule: FocalRule) -> Tensor:
    """The columns of [focal ; pooled ; raw] that each row sees.

    choose="prompt" (raw: the non-focal tokens, in order): row i sees the focal tokens up to i, the groups
    with max G_z < i, and of the group with min G_z <= i <= max G_z the members up to i (Eq. 15).
    choose="blocks" (raw: all tokens): row i sees focal tokens and groups of the blocks before its own, and
    its own block up to i.

    Args:
        focal: bool (B, Hk, L), as `select` returns it.
        rule: the options.

    Returns:
        int64 (B, Hk, L, 3, 2); (1, 1, L, 3, 2) for blocks, where all heads count alike.
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
    """m' = 1.1 m of Section 5.1, rounded up: the generated tokens that make one group and m' - m focal tokens."""
    return -(-11 * group // 10)


def cache_tokens(length: int, rule: FocalRule, *, prompt: int | None = None) -> tuple[int, int]:
    """Entries (a key and a value each) that a decoder keeps for one KV head after L tokens.

    Args:
        length: tokens read, L.
        rule: the options.
        prompt: how many of them were the prompt; all by default. Without effect for choose="blocks".

    Returns:
        Focal tokens and groups, and raw tokens of the stretch that is not divided yet. The first is
        r + (P - r)/m for a prompt of P tokens (Appendix E) and m' - m + 1 for each m' generated tokens; or
        r_b + (B - r_b)/m for each finished block.
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
