"""The decode-time cache of DGA: focal tokens and pooled groups, and the raw tokens not divided yet.

All later rows see all divided tokens, so a chunk attends to all of them and, causally, to the raw
tokens. With choose="blocks" tokens are divided after every B tokens, by the block's own queries and
keys; with choose="prompt" once after the prompt, and then after every m' generated tokens.
"""

from dataclasses import replace

import torch
from torch import Tensor

from cca_lab.attention.rotary import Rotation
from cca_lab.mechanisms.caching.base import CacheSizes, MechanismCache
from cca_lab.mechanisms.caching.segmented import Segmented
from cca_lab.mechanisms.caching.state import NO_TOKENS, Draw, Row, none_of
from cca_lab.mechanisms.dga import DGA, cache_tokens, highest, importance, kept_columns
from cca_lab.mechanisms.indices import decode_focal, decode_span
from cca_lab.settings import check_integers


class DGAState(Segmented):
    """Divided and raw tokens of one layer, for rows of equal length.

    Attributes:
        seen: tokens read so far.
        kept_key, kept_value: (B, Hk, focal tokens and groups, D).
        raw_key, raw_value: (B, Hk, R, D), the R tokens that are not divided yet.
        raw_query: (B, H, R, D) with choose="blocks", for the scores; else (B, H, 0, D).
        rotation: cos and sin of the raw tokens, (1, R, D) each, or None.
    """

    kept_key = kept_value = raw_key = raw_value = raw_query = NO_TOKENS
    stored = ("kept_key", "kept_value", "raw_key", "raw_value", "raw_query")
    columns = ("kept_key", "raw_key"), ("kept_value", "raw_value")
    remembers = True

    def __init__(self, mechanism: DGA) -> None:
        super().__init__(mechanism)
        self.size = mechanism.block if mechanism.choose == "blocks" else decode_span(
            mechanism.group)

    def _forget_raw(self) -> None:
        self.raw_key, self.raw_value, self.raw_query = map(
            none_of, (self.raw_key, self.raw_value, self.raw_query))
        self.chunk_tables = ()
        self.buffers.forget("raw_key", "raw_value", "raw_query")

    def step(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float,
             rotation: Rotation | None) -> Tensor:
        """Process T new tokens, see `State.step`."""
        if self.seen == 0:
            self.raw_query = none_of(query)
            if self.mechanism.choose == "prompt":
                return self._read_prompt(query, key, value, scale, rotation)
        return super().step(query, key, value, scale=scale, rotation=rotation)

    def _read_prompt(self, query: Tensor, key: Tensor, value: Tensor, scale: float,
                     rotation: Rotation | None) -> Tensor:
        """Attend as the mechanism does to a whole text, and store its focal tokens and groups."""
        self.begin(key, value)
        focal = self.mechanism.select(query, key, scale=scale)
        self.seen = key.shape[2]
        self._keep(query, key, value, focal, self.mechanism, scale, rotation)
        return self.mechanism.attention(query, key, value, scale=scale, rotation=rotation,
                                        selection=focal)

    def store(self, query: Tensor, key: Tensor, value: Tensor, scale: float,
              rotation: Rotation | None) -> None:
        """Store raw tokens."""
        super().store(query, key, value, scale, rotation)
        if self.mechanism.choose == "blocks":
            self.raw_query = self.buffers.append("raw_query", self.raw_query, query)
        if rotation is not None:
            self.remember(rotation)

    def row(self, rotation: Rotation | None) -> Row | None:
        """Return what a token reads whose query need not be stored."""
        return None if self.mechanism.choose == "blocks" else super().row(rotation)

    def _grow(self, key: Tensor, value: Tensor, query: Tensor, scale: float,
              rotation: Rotation | None) -> None:
        """Take the raw tokens with a new one."""
        if rotation is not None:
            self.remember(rotation)
        super()._grow(key, value, query, scale, rotation)

    def close(self, last_query: Tensor, scale: float) -> None:
        """Divide the raw tokens into focal tokens and groups."""
        super().close(last_query, scale)
        if self.mechanism.choose == "blocks":
            queries, one_block = self.raw_query, replace(self.mechanism, choose="prompt")
            focal = one_block.select(queries, self.raw_key, scale=scale)
        else:  # the last query scores all tokens and pools the group
            queries, one_block = last_query.expand(-1, -1, self.raw_key.shape[2],
                                                   -1), self.mechanism
            last_row = torch.tensor([queries.shape[2] - 1], device="cpu")
            scores = importance(queries, self.raw_key, rows=last_row, scale=scale).unflatten(
                1, (self.raw_key.shape[1], -1)).mean(2)
            focal = highest(scores, decode_focal(self.mechanism.group))
        self._keep(queries, self.raw_key, self.raw_value, focal, one_block, scale, self.rotation)
        self._forget_raw()

    def _keep(self, query: Tensor, key: Tensor, value: Tensor, focal: Tensor, rule: DGA,
              scale: float, rotation: Rotation | None) -> None:
        """Append the focal tokens and the groups of a segment of text to the stored ones."""
        keys, values = kept_columns(query, key, value, focal, rule, scale, rotation,
                                    backend=rule.backend)
        self.kept_key = self.buffers.append("kept_key", self.kept_key, keys)
        self.kept_value = self.buffers.append("kept_value", self.kept_value, values)

    def fill(self, length: int, heads: int, draw: Draw) -> None:
        """Fill the state as after a prompt of `length` tokens."""
        kept, raw = cache_tokens(length, self.mechanism)
        self.seen, self.open = length, raw
        self.kept_key, self.kept_value = (draw(kept) for _ in range(2))
        self.raw_key, self.raw_value = (draw(raw) for _ in range(2))
        self.raw_query = draw.of(heads)(raw)


class DGACache(MechanismCache[DGA]):
    """The cache for generating with DGA: `model.generate(ids, past_key_values=DGACache(model))`.

    What equals a forward over the whole text depends on `choose`:

    * "blocks": decoding, in chunks of any size, gives what one forward over the whole text gives.
    * "prompt": the first chunk is the prompt and gives what a forward over the prompt gives. Each
      later token reads the prompt's focal tokens and groups, and the raw tokens after them. After
      every m' = ceil(1.1 m) of those, the query of the last one scores them: the m' - m tokens with
      the highest scores become focal, and that query pools the others to one group, whatever the
      chunks. One forward over the whole text differs from the first generated token on, because it
      chooses again: so do the logits of `generate` with and without this cache.

    Choices that the paper leaves open ("we can use the attention of the last query to re-calculate
    the weight P and update the group keys", Section 5.1): m' is rounded up; the scores are the last
    query's attention among the m' tokens, which stay raw until its row has attended; a pooled key
    is placed at its middle member. Rows of different length must be padded on the left.
    """

    mechanism = DGA
    state = DGAState

    def expected_bytes(self, length: int, *, batch: int = 1, itemsize: int = 4,
                       prompt: int | None = None) -> int:
        """Return `nbytes()` after `length` tokens, `prompt` of them the prompt (or all)."""
        check_integers(0, length=length)
        return self.bytes_of(self.attention, length,
                             CacheSizes.of(self.config, batch=batch, itemsize=itemsize),
                             prompt=prompt)

    @classmethod
    def bytes_of(cls, mechanism: DGA, length: int, sizes: CacheSizes, *,
                 prompt: int | None = None) -> int:
        """Return the bytes of a cache after `length` tokens, `prompt` of them the prompt (or all).

            2 B D Hk (kept + raw) + B D H raw [blocks] + 2 D raw [rotary]

        numbers per layer, where `cache_tokens` returns kept and raw. Differs from the paper, which
        counts r + (L - r)/m + m (Appendix E): the queries of the open block and the rotary tables
        of the raw tokens are counted too.
        """
        entries = sum(cache_tokens(length, mechanism, prompt=prompt))
        return sizes.layers * (sizes.entries(entries) + cls.extra_bytes(mechanism, length, sizes,
                                                                        prompt=prompt))

    @staticmethod
    def extra_bytes(mechanism: DGA, length: int, sizes: CacheSizes, *,
                    prompt: int | None = None) -> int:
        """Return a layer's bytes for the open block's queries and the raw tokens' tables."""
        _, raw = cache_tokens(length, mechanism, prompt=prompt)
        queries = sizes.batch * sizes.heads * sizes.head_dim * raw * (mechanism.choose == "blocks")
        return queries * sizes.itemsize + sizes.tables(raw)
