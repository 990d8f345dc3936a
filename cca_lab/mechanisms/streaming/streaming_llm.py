"""StreamingLLM: the first tokens of the text, the attention sinks, and the most recent ones.

Xiao et al., "Efficient Streaming Language Models with Attention Sinks", ICLR 2024 (Section 3.2).
Rows and tokens count from 0. The cache holds the first `sinks` and the last `recent` tokens. A new
token is appended and attends; then the oldest recent token is dropped. So row i sees token t if

    t <= i   and   (t < sinks   or   i - t <= recent)

which is at most sinks + recent + 1 tokens: the row's own token is not one of the `recent` previous
ones. LM-Infinite and A-shape include the row's own token: their window of n tokens is
recent = n - 1.

Positions: "cache", as in the paper, is a token's place in the cache, so that no distance exceeds
sinks + recent. "original" is its place in the text. With RoPE the distances among recent tokens are
the same in both; a sink t is at the distance min(i, sinks + recent) - t instead of i - t. To
re-rotate the query is enough for that: keys need not be stored without their rotation. Models that
add positions to the embeddings (GPT-2, OPT) have them in q and k for good: without `rotation` both
settings give the same result, and only "original" describes it.

Differs from the paper:
  * The public code reads a prompt with full attention and drops tokens afterwards. Here every row
    attends as if the text had been read one token at a time, which is how the authors measure
    perplexity. So a prompt read at once and one read token by token agree. The cache offers both.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from cca_lab.attention.dense import expand_heads
from cca_lab.attention.intervals import table_of
from cca_lab.attention.rotary import Rotation, at, rotate, turn, unrotate
from cca_lab.mechanisms.base import Call, Mechanism
from cca_lab.mechanisms.columns import Columns
from cca_lab.mechanisms.indices import sink_columns
from cca_lab.settings import check_integers

POSITIONS = ("original", "cache")


@dataclass(frozen=True, kw_only=True)
class StreamingLLM(Mechanism):
    """StreamingLLM: each row reads the first tokens of the text and the most recent ones.

    Attributes:
        sinks: tokens at the start of the text that are never dropped, 0 or more.
        recent: previous tokens that a row sees besides its own, 0 or more.
        positions: where keys stand: "original", or "cache" for their place in the cache. The two
            differ only with rotary positions.
        backend: how attention is computed, as in `interval_attention`; the result is the same.
    """

    sinks: int = 4
    recent: int = 92
    positions: str = "original"

    name: ClassVar[str] = "streaming_llm"
    title: ClassVar[str] = "StreamingLLM"
    paper: ClassVar[str] = ("Xiao et al., Efficient Streaming Language Models with Attention "
                            "Sinks, ICLR 2024, Section 3.2")
    sizes: ClassVar[tuple[str, ...]] = ("sinks", "recent")
    paper_presets: ClassVar[dict[str, dict[str, Any]]] = {
        "public code, chat demo": {"sinks": 4, "recent": 2000, "positions": "cache"},
        "public code, perplexity": {"sinks": 1, "recent": 255, "positions": "cache"},
        "public code, cache class": {"sinks": 4, "recent": 512, "positions": "cache"},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(0, sinks=self.sinks, recent=self.recent)
        if self.positions not in POSITIONS:
            raise ValueError(f"positions: got {self.positions!r}, wanted 'original' or 'cache'; "
                             "the paper's is 'cache', which needs rotary positions")

    def row_by_row(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        """Compute StreamingLLM token by token with an explicit cache: the specification."""
        scale, rotation = call.scale, call.rotation
        batch, heads, length, head_dim = q.shape
        k, v = expand_heads(k, heads), expand_heads(v, heads)
        out = q.new_zeros(q.shape)
        for b in range(batch):
            for h in range(heads):
                cache: list[int] = []  # the tokens kept, oldest first
                for i in range(length):
                    cache.append(i)
                    query, keys = q[b, h, i], k[b, h, cache]  # (D,) and (tokens kept, D)
                    if self.positions == "cache" and rotation is not None:
                        cos, sin = (table.expand(batch, length, head_dim)[b] for table in rotation)
                        last = len(cache) - 1                               # the place of token i
                        query = rotate(unrotate(query, cos[i], sin[i]), cos[last], sin[last])
                        keys = rotate(unrotate(keys, cos[cache], sin[cache]), cos[:last + 1],
                                      sin[:last + 1])
                    weights = torch.softmax(scale * (keys @ query), dim=0)
                    out[b, h, i] = weights @ v[b, h, cache]
                    if len(cache) > self.sinks + self.recent:  # after row i has attended
                        cache.pop(self.sinks)
        return out

    def columns(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> list[Columns]:
        """Return one part of two intervals per row, or two with cache positions."""
        visible = intervals(torch.arange(q.shape[2], device=q.device), self.sinks, self.recent + 1)
        if self.positions == "original" or call.rotation is None:
            return [Columns(q, k, v, visible)]
        return far_and_near(q, k, v, visible,
                            query_for_sinks(q, call.rotation, self.sinks + self.recent), k)

    def exact_when(self, length: int) -> bool:
        """Return True if no token has been dropped when the last row attends."""
        return length <= self.sinks + self.recent + 1

    def cache_entries(self, length: int) -> int:
        """Return the number of sinks and recent tokens."""
        return min(length, self.sinks + self.recent)

    @classmethod
    def sized(cls, entries: int, length: int) -> Self:
        """Return StreamingLLM with `entries` recent tokens."""
        return cls(recent=entries)


def query_for_sinks(q: Tensor, rotation: Rotation, full: int) -> Tensor:
    """Re-rotate each query, (B, H, L, D), to its place in the cache, min(i, sinks + recent)."""
    place = torch.arange(q.shape[2], device=rotation[0].device).clamp_max(full)
    return turn(q, rotation, at(rotation, place))


def intervals(rows: Tensor, sinks: int, near: int, dropped: int = 0) -> Tensor:
    """Return the columns that each of consecutive rows sees, int64 (1, 1, T, 2, 2), far ones first.

    See `indices.sink_columns`.
    """
    return table_of(rows, *sink_columns(rows, sinks, near, dropped))[None, None]


def far_and_near(q: Tensor, k: Tensor, v: Tensor, visible: Tensor, far_q: Tensor,
                 far_k: Tensor) -> list[Columns]:
    """Return the near part, with `q` and `k`, and the far part, with `far_q` and `far_k`.

    Args:
        q, far_q: (B, H, T, D).
        k, v: (B, Hk, N, D).
        visible: int64 (1, 1, T, 2, 2), from `intervals`.
        far_k: (B, Hk, F, D), the keys of the first F columns for the far part, if some row has one.
    """
    far, near = visible[..., :1, :], visible[..., 1:, :]
    parts = [Columns(q, k, v, near)]
    near_only = int((far[0, 0, :, 0, 1] == 0).sum())  # the rows without a far part come first
    if near_only < q.shape[2]:
        count = int(far.max())
        parts.append(Columns(far_q[:, :, near_only:], far_k[:, :, :count], v[:, :, :count],
                             far[:, :, near_only:], first_row=near_only))
    return parts
