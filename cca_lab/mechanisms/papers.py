"""The algorithms of the three papers for one head, in their simplest form: read this module first.

Grouped queries, rotary positions, ablations and the options of public code are in `row_by_row` of each mechanism,
which the tests compare with these functions. Rows, tokens and groups count from 0.
"""

import torch
from torch import Tensor


def cca(queries: Tensor, keys: Tensor, values: Tensor, *, group: int, window: int) -> Tensor:
    """Compute CCA-Attention (Algorithm 1): a row attends to the cores of older groups, then to raw tokens.

    Args:
        queries, keys, values: (L, D).
        group: g, tokens in a group.
        window: s, the local window: at least the s nearest tokens of a row stay raw.

    Returns:
        (L, D).
    """
    length, scale = len(keys), keys.shape[1] ** -0.5
    core_keys, core_values, out = [], [], []
    for p in range(length // group):                                                     # lines 1-7
        members, last = slice(p * group, p * group + group), p * group + group - 1
        phi = torch.softmax(scale * (keys[members] @ queries[last]), dim=0)              # Eq. 2, last query
        core_keys.append(phi @ keys[members])
        core_values.append(phi @ values[members])
    for i in range(length):                                                              # line 9
        n = max(0, (i + 1 - window) // group)                                            # line 10: cores row i sees
        raw = slice(group * n, i + 1)                                                    # line 11: raw tokens
        row_keys = torch.stack([*core_keys[:n], *keys[raw]])
        row_values = torch.stack([*core_values[:n], *values[raw]])
        out.append(torch.softmax(scale * (row_keys @ queries[i]), dim=0) @ row_values)   # line 12
    return torch.stack(out)


def dga(queries: Tensor, keys: Tensor, values: Tensor, *, group: int, gamma: float) -> Tensor:
    """Compute causal Dynamic Group Attention (Algorithms 1 and 2) over focal tokens, closed groups and raw tokens.

    Args:
        queries, keys, values: (L, D).
        group: m, tokens in a group.
        gamma: the share of tokens that are focal, rounded down.

    Returns:
        (L, D).
    """
    length, scale = len(keys), keys.shape[1] ** -0.5
    past = torch.ones(length, length, dtype=torch.bool).tril()
    attention = torch.softmax((scale * queries @ keys.T).masked_fill(~past, float("-inf")), dim=1)
    score = attention.sum(0) / past.sum(0)                                               # Eq. 16
    count = int(gamma * length)
    count += (length - count) % group                                                    # no group is incomplete
    focal = sorted(sorted(range(length), key=lambda t: -score[t].item())[:count])        # lines 1 and 2
    others = [t for t in range(length) if t not in focal]
    groups = [others[first : first + group] for first in range(0, len(others), group)]   # line 3
    pooled_keys, pooled_values, out = [], [], []
    for members in groups:                                                               # line 4
        weights = torch.softmax(scale * (keys[members] @ queries[members[-1]]), dim=0)   # Eq. 14
        pooled_keys.append(weights @ keys[members])
        pooled_values.append(weights @ values[members])
    for i in range(length):                                                              # line 6
        closed = [z for z, members in enumerate(groups) if members[-1] < i]
        raw = [t for t in focal if t <= i]
        raw += [t for members in groups if members[0] <= i <= members[-1] for t in members if t <= i]     # Eq. 15
        row_keys = torch.stack([*(pooled_keys[z] for z in closed), *keys[raw]])          # line 5, Eq. 12
        row_values = torch.stack([*(pooled_values[z] for z in closed), *values[raw]])
        out.append(torch.softmax(scale * (row_keys @ queries[i]), dim=0) @ row_values)   # line 8
    return torch.stack(out)


def lococo(queries: Tensor, keys: Tensor, values: Tensor, kernel: Tensor, *, segment: int) -> Tensor:
    """Compute LoCoCo (Algorithm 2): a row attends to slots, filled by a convolution, and to newer raw tokens.

    Args:
        queries, keys, values: (L, D).
        kernel: g of Eq. 6, (M, 2D, K), K odd: one channel for each of the M slots.
        segment: B, tokens of a segment.

    Returns:
        (L, D).
    """
    length, scale, slots = len(keys), keys.shape[1] ** -0.5, len(kernel)
    row_keys, row_values, out = keys[:0], values[:0], []                                 # slots, then raw tokens
    for start in range(0, length, segment):                                              # Step 1
        if len(row_keys) > slots:                                                        # Steps 4 and 5
            channels = torch.cat([row_keys, row_values], dim=1).T                        # (2D, N)
            weights = torch.conv1d(channels[None], kernel, padding="same")[0].relu()     # Eq. 6, (M, N)
            weights = weights / weights.sum(dim=1, keepdim=True)                         # Eq. 7
            row_keys, row_values = weights @ row_keys, weights @ row_values              # Eq. 4 and 5
        for i in range(start, min(start + segment, length)):                             # Step 3
            row_keys, row_values = torch.cat([row_keys, keys[[i]]]), torch.cat([row_values, values[[i]]])
            out.append(torch.softmax(scale * (row_keys @ queries[i]), dim=0) @ row_values)
    return torch.stack(out)
