"""LoCoCo as in Algorithm 2, one head, segment, row and slot at a time: the specification."""

import math

import torch
from torch import Tensor, nn

from cca_lab.mechanisms.lococo.compressor import share_of
from cca_lab.mechanisms.lococo.segments import Settings, segments

Columns = tuple[Tensor, Tensor]  # keys and values, (N, D) each


def read(queries: Tensor, keys: Tensor, values: Tensor, settings: Settings, scale: float,
         compressor: nn.Module | None) -> Tensor:
    """Attend with the G query heads of one KV head: queries (G, L, D), keys and values (L, D) -> (G, L, D)."""
    out, first = torch.zeros_like(queries), 0
    slots: Columns = (keys[:0], values[:0])
    accumulated = keys.new_zeros(0)                         # accumulated attention of each column
    compressed: list[tuple[Columns, Tensor]] = []           # raw tokens and accumulated attention of each compression
    for start, stop in segments(len(keys), settings.segment):        # Step 1
        if len(accumulated) > settings.slots + settings.buffer:      # Steps 4 and 5 of the segment before
            compressed.append(((keys[first:start], values[first:start]), accumulated))
            depth = math.inf if settings.horizon is None else settings.horizon
            slots, weights = _slots_after(compressed, depth, (keys[:0], values[:0]), settings, compressor)
            accumulated, first = weights.detach() @ accumulated, start
        columns = [torch.cat([slot, x[first:stop]]) for slot, x in zip(slots, (keys, values), strict=True)]
        accumulated = torch.cat([accumulated, accumulated.new_zeros(stop - start)])
        if settings.scores == "last":
            accumulated = torch.zeros_like(accumulated)
        for i in range(start, stop):                                 # Step 3
            seen = len(columns[0]) - (stop - 1 - i)                  # all slots, and raw tokens up to i
            for head, query in enumerate(queries[:, i]):
                weights = torch.softmax(scale * (columns[0][:seen] @ query), dim=0)  # (seen,)
                out[head, i] = weights @ columns[1][:seen]
                accumulated[:seen] += weights.detach()
    return out


def _slots_after(compressed: list[tuple[Columns, Tensor]], depth: float, nothing: Columns, settings: Settings,
                 compressor: nn.Module | None) -> tuple[Columns, Tensor]:
    """Return slot keys and values after all compressions, with gradients through the last `depth`; and W."""
    *earlier, ((raw_keys, raw_values), accumulated) = compressed
    past = _slots_after(earlier, depth - 1, nothing, settings, compressor)[0] if earlier else nothing
    keys, values = torch.cat([past[0], raw_keys]), torch.cat([past[1], raw_values])  # (N, D) each
    weights = _mixing_weights(keys, values, accumulated, settings, compressor)
    slots = weights @ keys, weights @ values                         # Eq. 4, and Eq. 5 with v for q
    return slots if depth > 0 else (slots[0].detach(), slots[1].detach()), weights


def _mixing_weights(keys: Tensor, values: Tensor, accumulated: Tensor, settings: Settings,
                    compressor: nn.Module | None) -> Tensor:
    """Return W, (M, N), with which M slots mix N columns (Eq. 6 and 7)."""
    columns = range(len(keys))
    sinks = list(columns[: settings.sinks])
    heavy = _largest(accumulated, columns[settings.sinks :], settings.heavy)
    rest = [j for j in columns if j not in sinks + heavy]
    rows = [torch.eye(len(keys), dtype=keys.dtype)[j] for j in sinks + heavy]
    if settings.convolved == 0:
        return torch.stack(rows)
    output = keys.new_zeros(settings.convolved, len(rest))
    if compressor is not None:
        output = compressor(torch.cat([keys, values], dim=1)[None, None, rest])[0, 0]  # (M', R), Eq. 6
    top_residual = _largest(accumulated, rest, settings.convolved) if settings.residual else []
    for i in range(settings.convolved):
        positive = output[i].clamp(min=0)
        if settings.weights == "softmax":
            weights = positive.exp() / positive.exp().sum()
        elif positive.sum() > 0:
            weights = positive / positive.sum()                      # Eq. 7
        else:
            weights = torch.full_like(positive, 1 / len(rest))       # 0/0 in Eq. 7
        row = torch.zeros(len(keys), dtype=keys.dtype).index_add(0, torch.tensor(rest), weights)
        if settings.residual:
            alpha = share_of(compressor)
            row = alpha * row + (1 - alpha) * torch.eye(len(keys), dtype=keys.dtype)[top_residual[i]]
        rows.append(row)
    return torch.stack(rows)


def _largest(accumulated: Tensor, columns: list[int] | range, count: int) -> list[int]:
    """Return the `count` columns with the most attention, ascending; of equal columns the earlier wins."""
    return sorted(sorted(columns, key=lambda j: -accumulated[j].item())[:count])
