"""LM-Infinite: a Lambda-shaped mask, in which the first tokens stand at one constant distance.

Han et al., "LM-Infinite: Zero-Shot Extreme Length Generalization for Large Language Models", NAACL
2024 (Section 4). Rows and tokens count from 0. Row i sees token t <= i

    as a local token    if i - t < local, at its true distance;
    as a global token   if t < global_tokens and i - t >= local, at the distance min(limit, i).

The local window includes the row's own token (StreamingLLM's does not: local = recent + 1). A
global token inside the window is seen once, as a local one. With RoPE, "at the distance d" means
that the query is rotated to position d and the keys of global tokens to position 0, so all global
tokens have the same distance. A limit for each key, min(limit, i - t), would be equivalent only if
limit <= local.

Models that add positions to the embeddings (GPT-2, OPT) keep them: without `rotation` no distance
can be limited, and only the mask has an effect.

Differs from the paper and the public code:
  * `limit` defaults to `local`, the value that the public code's converter sets.
  * The public code takes min(limit, tokens so far - 1), the same for all rows of a prompt;
    min(limit, i) is what it takes when it decodes row i. The two agree wherever limit <= local.
  * The public code can also let a row see the k best tokens between the two parts; that is left out
    here. It does not handle grouped queries; they work here.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from cca_lab.attention.dense import expand_heads
from cca_lab.attention.rotary import Rotation, at, rotate, turn, unrotate
from cca_lab.mechanisms.base import Call, Mechanism
from cca_lab.mechanisms.columns import Columns
from cca_lab.mechanisms.streaming.streaming_llm import far_and_near, intervals
from cca_lab.settings import check_integers


@dataclass(frozen=True, kw_only=True)
class LMInfinite(Mechanism):
    """LM-Infinite: each row reads a window, and the first tokens as if at one constant distance.

    Attributes:
        local: nearest tokens that a row sees, its own included, 1 or more.
        global_tokens: tokens at the start of the text that every row sees, 0 or more.
        limit: the distance of global tokens outside the window, 1 or more; None means `local`.
        backend: how attention is computed, as in `interval_attention`; the result is the same.
    """

    local: int = 93
    global_tokens: int = 4
    limit: int | None = None

    name: ClassVar[str] = "lm_infinite"
    title: ClassVar[str] = "LM-Infinite"
    paper: ClassVar[str] = ("Han et al., LM-Infinite: Zero-Shot Extreme Length Generalization for "
                            "Large Language Models, NAACL 2024, Section 4")
    sizes: ClassVar[tuple[str, ...]] = ("local", "global_tokens")
    paper_presets: ClassVar[dict[str, dict[str, Any]]] = {
        "public code": {"local": 2048, "global_tokens": 100},
        "public code, README": {"local": 4096, "global_tokens": 10},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(1, local=self.local, limit=self.distance)
        check_integers(0, global_tokens=self.global_tokens)

    @property
    def distance(self) -> int:
        """The largest distance of global tokens outside the window."""
        return self.local if self.limit is None else self.limit

    def row_by_row(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        """Compute LM-Infinite row by row: the specification."""
        scale, rotation = call.scale, call.rotation
        batch, heads, length, head_dim = q.shape
        k, v = expand_heads(k, heads), expand_heads(v, heads)
        out = q.new_zeros(q.shape)
        for b in range(batch):
            for h in range(heads):
                for i in range(length):
                    near = [t for t in range(i + 1) if i - t < self.local]
                    far = [t for t in range(i + 1)
                           if i - t >= self.local and t < self.global_tokens]
                    far_query, far_keys = q[b, h, i], k[b, h, far]  # (D,) and (global tokens, D)
                    if rotation is not None:
                        cos, sin = (table.expand(batch, length, head_dim)[b] for table in rotation)
                        d = min(self.distance, i)
                        far_query = rotate(unrotate(far_query, cos[i], sin[i]), cos[d], sin[d])
                        far_keys = rotate(unrotate(far_keys, cos[far], sin[far]), cos[0], sin[0])
                    logits = torch.cat([far_keys @ far_query, k[b, h, near] @ q[b, h, i]])
                    weights = torch.softmax(scale * logits, dim=0)
                    out[b, h, i] = weights @ v[b, h, far + near]
        return out

    def columns(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> list[Columns]:
        """Return global and local tokens: two intervals per row, or with RoPE two parts."""
        visible = intervals(torch.arange(q.shape[2], device=q.device), self.global_tokens,
                            self.local)
        if call.rotation is None:
            return [Columns(q, k, v, visible)]
        far_q, far_k = at_constant_distance(q, k, call.rotation, self.global_tokens, self.distance)
        return far_and_near(q, k, v, visible, far_q, far_k)

    def exact_when(self, length: int) -> bool:
        """Return True if every token is a local one, at its true distance, for all rows."""
        return length <= self.local

    def cache_entries(self, length: int) -> int:
        """Return the number of tokens that later rows still read."""
        return min(length, self.global_tokens + self.local - 1)

    @classmethod
    def sized(cls, entries: int, length: int) -> Self:
        """Return LM-Infinite with a local window of `entries` tokens."""
        return cls(local=entries)


def at_constant_distance(q: Tensor, k: Tensor, rotation: Rotation, global_tokens: int,
                         limit: int) -> tuple[Tensor, Tensor]:
    """Re-rotate queries to position min(limit, i) and global keys to position 0.

    Returns:
        Queries (B, H, L, D) and keys (B, Hk, min(global_tokens, L), D) for the far part.
    """
    position = torch.arange(q.shape[2], device=rotation[0].device).clamp_max(limit)
    first = slice(0, global_tokens)
    return (turn(q, rotation, at(rotation, position)),
            turn(k[:, :, first], at(rotation, first), at(rotation, slice(0, 1))))
