"""The columns that each row of DGA sees, and the number of entries that a decoder keeps.

The columns are [focal tokens ; pooled groups ; raw tokens]. Rows, tokens and groups count from 0. There are F
focal tokens and K groups of m others; G_z is the z-th group. Every row sees one interval of each of the three.
"""

import torch
from torch import Tensor

from cca_lab.attention.intervals import table_of
from cca_lab.mechanisms.dga.selection import FocalRule
from cca_lab.mechanisms.indices import (
    blocks_columns,
    decode_focal,
    decode_span,
    dga_entries,
    divided_tokens,
    prompt_columns,
)


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
    row = torch.arange(length, device=focal.device)[None, None]
    total = int(focal[0, 0].sum())                                     # F
    if rule.choose == "prompt":                                        # focal.cumsum: up to row i
        seen = prompt_columns(row, focal.cumsum(-1), focal.long(), length, total, rule.group)
    else:
        seen = blocks_columns(row, length, total, rule.group, rule.block)
    return table_of(row, *seen)


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
        return divided_tokens(span, rule.focal_count(span), rule.group)

    if rule.choose == "blocks":
        return dga_entries(length, rule.block, divided(rule.block))
    prompt = length if prompt is None else prompt
    span = decode_span(rule.group)
    later, raw = dga_entries(length - prompt, span,
                             divided_tokens(span, decode_focal(rule.group), rule.group))
    return divided(prompt) + later, raw
