"""The one matrix behind the checks of a1, and what usual mistakes give.

The variant: score(i, t) = scale * q_i . k_t - slope * (i - t) for t <= i, and the softmax of a row runs over these
scores and one more number, the head's sink logit. The sink's weight goes to no value.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import need_close, need_tensor
from cca_lab.course.tasks import Mistake

INF = float("inf")


def number(count: int, noun: str) -> str:
    """Return such as "1 row" or "2 rows"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def need_double(got: Any, wanted: Tensor, what: str, causes: Mapping[str, Any] | None = None) -> Tensor:
    """Return a result if it is right and float64, as every task of a1 asks for; `causes` as for `need_close`."""
    got = need_tensor(got, wanted.shape, what)
    if got.dtype != torch.float64:
        raise Mistake(f"{what} has dtype {got.dtype}, wanted torch.float64: torch.zeros, torch.full and torch.tensor "
                      "make float32 if they get no dtype")
    return need_close(got, wanted, what, causes=causes)


def with_sink(scores: Tensor, sink: Tensor) -> Tensor:
    """Return the weights (..., L, L) of a softmax over scores and one sink, without the sink's."""
    return torch.cat([scores, sink.expand(*scores.shape[:-1], 1)], dim=-1).softmax(-1)[..., :-1]


def dense(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, sinks: Tensor, scale: float, *,
          kv_of: Callable[[int], int] | None = None, past: int = 0, mask: float = -INF,
          weigh: Callable[[Tensor, Tensor], Tensor] = with_sink) -> Tensor:
    """Return the outputs (B, H, L, E) by one matrix for each head; the options are for wrong results.

    Args:
        q, k, v: (B, H, L, D), (B, Hk, L, D), (B, Hk, L, E).
        slopes, sinks: of the heads, (H,) each.
        scale: of the products.
        kv_of: which KV head a query head reads; by default the right one.
        past: how many tokens of the future a row sees.
        mask: score of a masked token.
        weigh: weights from masked scores and a sink.
    """
    share = q.shape[1] // k.shape[1]
    row, column = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    heads = []
    for head in range(q.shape[1]):
        source = kv_of(head) if kv_of else head // share
        scores = scale * q[:, head] @ k[:, source].mT - slopes[head] * (row - column)
        heads.append(weigh(scores.masked_fill(column > row + past, mask), sinks[head]) @ v[:, source])
    return torch.stack(heads, dim=1)


def usual_causes(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, sinks: Tensor, scale: float) -> dict[str, Tensor]:
    """Return what usual mistakes give, by what they are; nothing for length 1, where many of them are alike."""
    heads, kv, length = q.shape[1], k.shape[1], q.shape[2]
    if length == 1:
        return {}
    of_kv = torch.arange(heads) // (heads // kv)

    def wrong(a: Tensor = slopes, z: Tensor = sinks, s: float = scale, **other: Any) -> Tensor:
        return dense(q, k, v, a, z, s, **other)

    def plain(scores: Tensor, sink: Tensor) -> Tensor:
        return scores.exp() / (scores.exp().sum(-1, keepdim=True) + sink)

    causes = {"the scale is forgotten": wrong(s=1.0),
              "the sink is forgotten": wrong(z=torch.full_like(sinks, -INF)),
              "the sink z itself is added to the denominator, not e^z": wrong(weigh=plain),
              "the slope is forgotten": wrong(0 * slopes),
              "the slope is added instead of subtracted": wrong(-slopes),
              "the slope is multiplied by the scale too": wrong(scale * slopes),
              "the mask is applied after the softmax: masked tokens then still stand in the denominator":
              wrong(past=length, weigh=lambda scores, sink: with_sink(scores, sink).tril()),
              "the future is not masked": wrong(past=length),
              "a row sees one token of the future": wrong(past=1),
              "query head h reads KV head h % Hk": wrong(kv_of=lambda head: head % kv),
              "query head h takes the slope of its KV head's number": wrong(slopes[of_kv]),
              "query head h takes the sink of its KV head's number": wrong(z=sinks[of_kv]),
              "query head h takes slope and sink of its KV head's number": wrong(slopes[of_kv], sinks[of_kv])}
    if length == 2:  # where all of the future is one token
        causes["a row sees a later token"] = causes.pop("the future is not masked")
        del causes["a row sees one token of the future"]
    return causes


def uncorrected(scores: Tensor, values: Tensor, tile: int, sink: float = -INF) -> Tensor:
    """Return the outputs (R, E) of tiles of keys whose accumulator never shrinks when the maximum grows.

    Args:
        scores: masked, (R, N); the first key of each row is not masked.
        values: (N, E).
        tile: keys of a tile.
        sink: logit of a sink, if there is one.
    """
    ends = (torch.arange(len(values)) // tile * tile + tile - 1).clamp(max=len(values) - 1)
    running = scores.cummax(-1).values.clamp(min=sink)
    top = running[:, -1:]
    total = (scores - top).exp().sum(-1, keepdim=True) + (sink - top).exp()
    return (scores - running[:, ends]).exp() @ values / total
