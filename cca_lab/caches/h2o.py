"""The decode-time cache of H2O: the last tokens, the heavy hitters, and the attention each received so far.

A chunk attends first, to what is kept and to its own past, and evicts then, once, down to the budget:

    min(t, heavy + recent) entries for each KV head after t tokens, and a score for each entry

Prefill and decode: a prompt of P tokens read at once and then single tokens give exactly what the
mechanism gives over the whole text with `prompt=P`; token by token from the first one on, with `prompt=1`.
Other chunks read more than single tokens would, because nothing is evicted inside a chunk.
"""

import torch
from torch import Tensor

from cca_lab.attention.dense import accumulation_dtype, masked_matrix, weigh
from cca_lab.caches.base import MechanismCache, Rotation, append, with_rows
from cca_lab.caches.sizes import cache_sizes
from cca_lab.mechanisms.h2o import budget

ROWS_AT_ONCE = 512  # of the explicit weights that scores need, so that a long prompt needs no L x L matrix


class H2OState:
    """What one layer keeps. Entries are in time order, so the recent ones are the last.

    Attributes:
        seen: tokens read so far.
        heavy, recent: the budget in tokens; fixed by the first chunk if the options are shares of a prompt.
        key, value: (B, Hk, n, D), n = min(seen, heavy + recent) once the prompt is read.
        score: (B, Hk, n), attention received while kept, in at least float32.
    """

    def __init__(self, *, heavy: int | float, recent: int | float, prompt: int = 1,
                 backend: str = "auto") -> None:
        self.shares = heavy, recent
        self.heavy = self.recent = 0
        self.prompt = prompt
        self.seen = 0
        self.key = self.value = self.score = None

    def step(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float,
             rotation: Rotation | None) -> Tensor:
        """Read T new tokens: query (B, H, T, D), key and value (B, Hk, T, D) -> output (B, H, T, D)."""
        if self.seen == 0:
            self.heavy, self.recent = budget(*self.shares, max(self.prompt, key.shape[2]))
        score = torch.zeros(key.shape[:3], dtype=accumulation_dtype(key.dtype), device=key.device)
        self.key, self.value = append(self.key, key), append(self.value, value)
        self.score = score if self.score is None else torch.cat([self.score, score], dim=2)
        self.seen += key.shape[2]
        output = self._attend(query, scale)
        if self.seen >= self.prompt:
            self._evict()
        return output

    def _attend(self, query: Tensor, scale: float) -> Tensor:
        """Attend to the kept tokens and the chunk's own past, and add up what each token receives."""
        entries, kv_heads = self.key.shape[2], self.key.shape[1]
        past, done = entries - query.shape[2], []
        for rows in torch.arange(query.shape[2], device=query.device).split(ROWS_AT_ONCE):
            stop = past + int(rows[-1]) + 1
            visible = torch.arange(stop, device=query.device) <= past + rows[:, None]  # (R, stop)
            weights, _ = masked_matrix(query[:, :, rows], self.key[:, :, :stop], visible[None, None], scale)
            received = weights.detach().unflatten(1, (kv_heads, -1)).mean(2).sum(-2)   # (B, Hk, stop)
            self.score[:, :, :stop] += received
            done.append(weigh(weights, self.value[:, :, :stop]).to(query.dtype))
        return torch.cat(done, dim=2)

    def _evict(self) -> None:
        """Keep the recent entries and the heaviest of the others; of equal scores the older one goes first."""
        extra = self.key.shape[2] - self.heavy - self.recent
        if extra <= 0:
            return
        older = self.score[..., : self.score.shape[2] - self.recent]
        order = older.argsort(dim=-1, stable=True)[..., extra:].sort(dim=-1).values    # (B, Hk, heavy)
        recent = torch.arange(older.shape[2], self.score.shape[2], device=order.device)
        kept = torch.cat([order, recent.expand(*order.shape[:2], -1)], dim=-1)         # (B, Hk, n)
        self.score = self.score.gather(2, kept)
        entries = kept[..., None].expand(-1, -1, -1, self.key.shape[3])
        self.key, self.value = self.key.gather(2, entries), self.value.gather(2, entries)

    def tensors(self) -> list[Tensor]:
        """Return every tensor that is stored."""
        return [tensor for tensor in (self.key, self.value, self.score) if tensor is not None]

    def select(self, rows: Tensor) -> "H2OState":
        """Return a new state made of the given batch rows, int64, repetition allowed."""
        return with_rows(self, rows, "key", "value", "score")


class H2OCache(MechanismCache):
    """The cache for generating with H2O: `model.generate(ids, past_key_values=H2OCache(model))`.

    Holds at most heavy + recent entries a KV head and a score for each, however long the text. The prompt is
    read densely, so the first chunk needs the memory of all its tokens until it is read. Scores need explicit
    attention weights: there is no fused form. Beam search works; rows of different length must be padded on
    the left, and each row then has its own prompt.
    """

    mechanism = "h2o"
    state = H2OState

    def expected_bytes(self, length: int, *, batch: int = 1, itemsize: int = 4, first: int = 1) -> int:
        """Return `nbytes()` after `length` tokens, from the closed form of `h2o_cache_bytes`.

        Args:
            length: tokens read.
            batch: rows.
            itemsize: bytes of an element of keys and values.
            first: tokens of the first chunk.
        """
        prompt = max(first, self.choice.get("prompt", 1))
        heavy, recent = budget(self.choice["heavy"], self.choice["recent"], prompt)
        return h2o_cache_bytes(
            length, heavy=heavy, recent=recent, prompt=prompt, batch=batch, itemsize=itemsize,
            **cache_sizes(self.config))


def h2o_cache_bytes(length: int, *, heavy: int, recent: int, layers: int, kv_heads: int, head_dim: int,
                    prompt: int = 1, batch: int = 1, itemsize: int = 4) -> int:
    """Return the bytes of an H2O cache after `length` tokens.

        B Hk n (2 D itemsize + score)   a layer,   n = min(t, heavy + recent), or t inside the prompt

    with a score of 4 bytes, or 8 in float64. The paper counts keys and values only.

    Args:
        length: tokens read, t.
        heavy, recent: the budget in tokens.
        prompt: tokens before the first eviction.
        itemsize: bytes of an element of keys and values.
    """
    entries = length if length < prompt else min(length, heavy + recent)
    return layers * batch * kv_heads * entries * (2 * head_dim * itemsize + max(4, itemsize))
