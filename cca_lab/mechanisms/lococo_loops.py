"""LoCoCo as Algorithm 2 has it, one head, segment, row and slot after the other. The specification."""

import math

import torch
from torch import Tensor, nn

from cca_lab.mechanisms.inputs import check_qkv
from cca_lab.mechanisms.lococo_compressor import share_of
from cca_lab.mechanisms.lococo_rows import Settings, segments
from cca_lab.mechanisms.rotary import Rotation

Columns = tuple[Tensor, Tensor]  # keys and values, (N, D) each


def loops(q: Tensor, k: Tensor, v: Tensor, *, slots: int, segment: int | list[int], weights: str = "softmax",
          residual: bool = False, sinks: int = 0, heavy: int = 0, scores: str = "last", buffer: int = 0,
          horizon: int | None = None, when: str = "eager", borders: str = "text", kernel: int = 21,
          scale: float | None = None, rotation: Rotation | None = None,
          compressor: nn.Module | None = None) -> Tensor:
    """LoCoCo attention, Algorithm 2 step by step.

    Args:
        q: queries, (B, H, L, D).
        k, v: keys and values, (B, Hk, L, D); H is a multiple of Hk.
        others: as in `cca_lab.mechanisms.lococo.attention`.

    Returns:
        (B, H, L, D), in the dtype of q.

    Raises:
        ValueError: if an option or a shape does not fit.
    """
    check_qkv(q, k, v)
    settings = Settings(slots=slots, segment=segment, weights=weights, residual=residual, sinks=sinks,
                        heavy=heavy, scores=scores, buffer=buffer, horizon=horizon, when=when,
                        borders=borders, kernel=kernel)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    group = q.shape[1] // k.shape[1]                        # query heads that share a KV head, and its slots
    out = q.new_zeros(q.shape)
    for b in range(len(q)):
        for kv in range(k.shape[1]):
            heads = slice(kv * group, kv * group + group)
            out[b, heads] = _read(q[b, heads], k[b, kv], v[b, kv], settings, scale, compressor)
    return out


def _read(queries: Tensor, keys: Tensor, values: Tensor, settings: Settings, scale: float,
          compressor: nn.Module | None) -> Tensor:
    """Read one KV head: queries (G, L, D), keys and values (L, D) -> (G, L, D)."""
    out, first = torch.zeros_like(queries), 0
    slots: Columns = (keys[:0], values[:0])
    received = keys.new_zeros(0)                            # attention received by each column
    compressed: list[tuple[Columns, Tensor]] = []           # what each compression found beside the slots
    for start, stop in segments(len(keys), settings.segment):        # Step 1
        if len(received) > settings.slots + settings.buffer:         # Steps 4 and 5 of the segment before
            compressed.append(((keys[first:start], values[first:start]), received))
            depth = math.inf if settings.horizon is None else settings.horizon
            *slots, weights = _remember(compressed, depth, (keys[:0], values[:0]), settings, compressor)
            received, first = weights.detach() @ received, start
        columns = [torch.cat([slot, x[first:stop]]) for slot, x in zip(slots, (keys, values), strict=True)]
        received = torch.cat([received, received.new_zeros(stop - start)])
        if settings.scores == "last":
            received = torch.zeros_like(received)
        for i in range(start, stop):                                 # Step 3
            seen = len(columns[0]) - (stop - 1 - i)                  # all slots, and raw tokens up to i
            for head, query in enumerate(queries[:, i]):
                weights = torch.softmax(scale * (columns[0][:seen] @ query), dim=0)  # (seen,)
                out[head, i] = weights @ columns[1][:seen]
                received[:seen] += weights.detach()
    return out


def _remember(compressed: list[tuple[Columns, Tensor]], depth: float, nothing: Columns, settings: Settings,
              compressor: nn.Module | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return slot keys and values after all compressions, with gradients through the last `depth`; and W."""
    *earlier, ((raw_keys, raw_values), received) = compressed
    past = _remember(earlier, depth - 1, nothing, settings, compressor)[:2] if earlier else nothing
    keys, values = torch.cat([past[0], raw_keys]), torch.cat([past[1], raw_values])  # (N, D) each
    weights = _mixing_weights(keys, values, received, settings, compressor)
    slots = weights @ keys, weights @ values, weights                # Eq. 4, and Eq. 5 with v for q
    return slots if depth > 0 else tuple(x.detach() for x in slots)


def _mixing_weights(keys: Tensor, values: Tensor, received: Tensor, settings: Settings,
                    compressor: nn.Module | None) -> Tensor:
    """Return the rows (M, N) by which the slots mix N columns (Eq. 6 and 7)."""
    columns = range(len(keys))
    sinks = list(columns[: settings.sinks])
    heavy = _largest(received, columns[settings.sinks :], settings.heavy)
    rest = [j for j in columns if j not in sinks + heavy]
    rows = [torch.eye(len(keys), dtype=keys.dtype)[j] for j in sinks + heavy]
    if settings.convolved == 0:
        return torch.stack(rows)
    output = keys.new_zeros(settings.convolved, len(rest))
    if compressor is not None:
        output = compressor(torch.cat([keys, values], dim=1)[None, None, rest])[0, 0]  # (M', R), Eq. 6
    favourites = _largest(received, rest, settings.convolved) if settings.residual else []
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
            row = alpha * row + (1 - alpha) * torch.eye(len(keys), dtype=keys.dtype)[favourites[i]]
        rows.append(row)
    return torch.stack(rows)


def _largest(received: Tensor, columns: list[int] | range, count: int) -> list[int]:
    """Return the `count` of the columns that received most, in order of place; of equals the earlier."""
    return sorted(sorted(columns, key=lambda j: -received[j].item())[:count])
