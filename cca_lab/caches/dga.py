"""The decode-time cache of DGA: focal tokens and pooled groups, and the raw tokens not divided yet.

Whatever was divided is seen by all later rows, so what is kept needs no order and no table: a chunk attends
to all of it and, causally, to the raw tokens. Only when to divide differs: with choose="blocks" after every
B tokens, by the block's own queries and keys, as `mechanisms.dga` does it at once; with choose="prompt" once
after the prompt, and then after every m' generated tokens (Section 5.1).
"""

import torch
from torch import Tensor

from cca_lab.attention import causal_intervals, interval_attention
from cca_lab.caches.base import MechanismCache, Rotation, append, with_rows
from cca_lab.caches.parts import attend_row
from cca_lab.caches.sizes import cache_sizes, has_rotary
from cca_lab.mechanisms import dga
from cca_lab.mechanisms.dga_columns import columns
from cca_lab.mechanisms.dga_rows import cache_tokens, decode_span
from cca_lab.mechanisms.dga_selection import FocalRule, highest, importance, select


class DGAState:
    """Divided and raw tokens of one layer, for rows whose text begins at the same column.

    Attributes:
        seen: tokens read so far.
        kept_key, kept_value: (B, Hk, focal tokens and groups, D).
        raw_key, raw_value: (B, Hk, R, D), the R tokens that are not divided yet.
        raw_query: (B, H, R, D) with choose="blocks", where a block is scored by its own queries; else None.
        rotation: cos and sin of the raw tokens, (1, R, D) each, or None.
    """

    def __init__(self, *, backend: str = "auto", **options) -> None:
        self.rule, self.backend = FocalRule(**options), backend
        self.seen = 0
        self.kept_key = self.kept_value = None
        self._forget_raw()

    def _forget_raw(self) -> None:
        self.raw_key = self.raw_value = self.raw_query = self.rotation = None

    def step(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float,
             rotation: Rotation | None) -> Tensor:
        """Read T new tokens: query (B, H, T, D), key and value (B, Hk, T, D) -> output (B, H, T, D)."""
        if self.rule.choose == "prompt" and self.seen == 0:
            return self._read_prompt(query, key, value, scale, rotation)
        stretch = self.rule.block if self.rule.choose == "blocks" else decode_span(self.rule.group)
        outputs, length = [], key.shape[2]
        start = 0
        while start < length:
            raw = 0 if self.raw_key is None else self.raw_key.shape[2]
            now = slice(start, min(length, start + stretch - raw))
            tables = rotation and tuple(table[:1, now] for table in rotation)  # every row turns alike
            outputs.append(self._read(query[:, :, now], key[:, :, now], value[:, :, now], scale, tables))
            if self.raw_key.shape[2] == stretch:
                self._divide(query[:, :, now.stop - 1 : now.stop], scale)
            start = now.stop
        self.seen += length
        return torch.cat(outputs, dim=2)

    def _read_prompt(self, query: Tensor, key: Tensor, value: Tensor, scale: float,
                     rotation: Rotation | None) -> Tensor:
        """Attend as the mechanism does to a whole text, and keep its focal tokens and groups."""
        focal = select(query, key, scale=scale, **vars(self.rule))
        self.seen = key.shape[2]
        self._keep(query, key, value, focal, self.rule, scale, rotation)
        return dga.attention(query, key, value, scale=scale, rotation=rotation, selection=focal,
                             backend=self.backend, **vars(self.rule))

    def _read(self, query: Tensor, key: Tensor, value: Tensor, scale: float, rotation: Rotation | None) -> Tensor:
        """Attend to what is kept and to the raw tokens, in one softmax."""
        self.raw_key, self.raw_value = append(self.raw_key, key), append(self.raw_value, value)
        if self.rule.choose == "blocks":
            self.raw_query = append(self.raw_query, query)
        if rotation is not None:
            self.rotation = tuple(append(past, new)
                                  for past, new in zip(self.rotation or (None, None), rotation, strict=True))
        keys, values = self.raw_key, self.raw_value
        if self.kept_key is not None and query.shape[2] == 1:
            return attend_row(query, [(self.kept_key, self.kept_value), (keys, values)], scale=scale,
                              backend=self.backend)
        if self.kept_key is not None:
            keys, values = append(self.kept_key, keys), append(self.kept_value, values)
        visible = causal_intervals(query.shape[2], keys.shape[2])
        return interval_attention(query, keys, values, visible, scale=scale, backend=self.backend)

    def _divide(self, last_query: Tensor, scale: float) -> None:
        """Turn the raw tokens into focal tokens and groups."""
        if self.rule.choose == "blocks":
            queries, one_block = self.raw_query, FocalRule(**{**vars(self.rule), "choose": "prompt"})
            focal = select(queries, self.raw_key, scale=scale, **vars(one_block))
        else:  # the last query scores all tokens and judges the group
            queries, one_block = last_query.expand(-1, -1, self.raw_key.shape[2], -1), self.rule
            last_row = torch.tensor([queries.shape[2] - 1])
            heads = 1 if self.rule.shared else self.raw_key.shape[1]
            scores = importance(queries, self.raw_key, rows=last_row, scale=scale).unflatten(1, (heads, -1)).mean(2)
            focal = highest(scores, queries.shape[2] - self.rule.group).expand(-1, self.raw_key.shape[1], -1)
        self._keep(queries, self.raw_key, self.raw_value, focal, one_block, scale, self.rotation)
        self._forget_raw()

    def _keep(self, query: Tensor, key: Tensor, value: Tensor, focal: Tensor, rule: FocalRule, scale: float,
              rotation: Rotation | None) -> None:
        """Append the focal tokens of a stretch, and its groups, to what is kept."""
        keys, values, _ = columns(query, key, value, focal, rule, scale, rotation, backend=self.backend)
        focal_tokens = int(focal[0, 0].sum())
        kept = focal_tokens + (focal.shape[2] - focal_tokens) // rule.group
        self.kept_key = append(self.kept_key, keys[:, :, :kept])
        self.kept_value = append(self.kept_value, values[:, :, :kept])

    def tensors(self) -> list[Tensor]:
        """Return every tensor that is stored."""
        stored = [self.kept_key, self.kept_value, self.raw_key, self.raw_value, self.raw_query,
                  *(self.rotation or ())]
        return [tensor for tensor in stored if tensor is not None]

    def select(self, rows: Tensor) -> "DGAState":
        """Return a new state made of the given batch rows, int64, repetition allowed."""
        # the rotary tables are the same for all rows
        return with_rows(self, rows, "kept_key", "kept_value", "raw_key", "raw_value", "raw_query")


class DGACache(MechanismCache):
    """The cache for generating with DGA: `model.generate(ids, past_key_values=DGACache(model))`.

    What it promises depends on `choose`:

    * "blocks": decoding, in chunks of any size, gives what one forward over the whole text gives.
    * "prompt": the first chunk that it reads is the prompt and gives what a forward over the prompt gives.
      Each later token reads the prompt's focal tokens and groups, and raw tokens behind them. After every
      m' = ceil(1.1 m) of those the last one's query scores them: the m' - m best become focal, the others one
      group, judged by that query. How these tokens come in chunks does not matter. One forward over the whole
      text gives something else from the first generated token on, because it chooses anew; the logits of
      `generate` with and without this cache differ.

    Where the paper is silent ("we can use the attention of the last query to re-calculate the weight P and
    update the group keys", Section 5.1): m' is rounded up; the scores are the last query's attention among
    the m' tokens; they leave the raw tokens after its row; a pooled key stands at its middle member.

    Rows of different length must be padded on the left; they are then kept and computed row by row.
    """

    mechanism = "dga"
    state = DGAState

    def expected_bytes(self, length: int, *, prompt: int | None = None, batch: int = 1, itemsize: int = 4) -> int:
        """Return `nbytes()` after `length` tokens, from the closed form of `dga_cache_bytes`.

        Args:
            length: tokens read.
            prompt: how many of them were the prompt; all by default. Without effect for choose="blocks".
            batch: rows.
            itemsize: bytes of an element.
        """
        options = {name: value for name, value in self.choice.items() if name not in ("name", "backend")}
        return dga_cache_bytes(length, FocalRule(**options), prompt=prompt, heads=self.config.num_attention_heads,
                               rotary=has_rotary(self.config), batch=batch, itemsize=itemsize,
                               **cache_sizes(self.config))


def dga_cache_bytes(length: int, rule: FocalRule, *, layers: int, heads: int, kv_heads: int, head_dim: int,
                    prompt: int | None = None, rotary: bool = False, batch: int = 1, itemsize: int = 4) -> int:
    """Return the bytes of a DGA cache after `length` tokens.

        2 B D Hk (kept + raw) + B D H raw [blocks] + 2 D raw [rotary]

    numbers a layer, kept and raw being those of `dga_rows.cache_tokens`.

    Differs from the paper, which counts r + (L - r)/m + m (Appendix E): the queries of the open block and
    the rotary tables of the raw tokens are counted too.

    Args:
        length: tokens read.
        rule: the options.
        prompt: how many of them were the prompt; all by default.
        rotary: whether the tables of the raw tokens' positions are kept.
        itemsize: bytes of an element.
    """
    kept, raw = cache_tokens(length, rule, prompt=prompt)
    queries = heads * raw if rule.choose == "blocks" else 0
    numbers = batch * head_dim * (2 * kv_heads * (kept + raw) + queries) + (2 * head_dim * raw if rotary else 0)
    return layers * itemsize * numbers
