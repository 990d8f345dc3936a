"""LoCoCo: segment-level attention with a memory of M slots, filled by a convolution.

Cai et al., "LoCoCo: Dropping In Convolutions for Long Context Compression", ICML 2024 (Section 3,
Eq. 3-7, Algorithm 2). A text is read in segments of B tokens. Row i of a segment attends to all
slots and to the raw tokens since the last compression, up to itself, in one softmax:

    out_i = softmax(scale * q_i [slot keys ; K_{r..i}]^T) [slot values ; V_{r..i}]     (Step 3)
    slot  = W [slots ; raw],   W = normalised convolution of their keys and values     (Steps 4, 5)

The memory is compressed only once slots and raw tokens exceed M. Slots hold complete segments only,
so no row sees the future, although the convolution uses columns on both sides and queries choose
the heavy hitters.

Differs from the paper, or decides what it leaves open:
  * Eq. 1 multiplies a 0/1 mask into the logits, which gives the future the weight exp(0); here it
    is hidden.
  * Eq. 5 and Step 5 mix queries; values must be meant ("weights are shared", Section 3.2.1).
  * Algorithms 1 and 2 begin segment n at token nB, n from 1, and skip the first B - 1; here
    segments begin at 0.
  * Eq. 7 divides 0 by 0 if ReLU leaves a row of zeros; here that row becomes the plain mean. The
    public code uses softmax(ReLU(W)) instead, which is the default here (`weights`).
  * The public code mixes each convolved slot half and half with a heavy hitter, compresses late,
    with 16 columns more than M, and gives half of the slots to heavy hitters, as one line of the
    paper's Table 6 does. Only the last is an option here (`heavy`, 0 by default).
  * That code scores a column by its accumulated attention in the last segment; H2O adds up all
    segments (`scores`). Here the query heads of a KV head are added; the public code has no grouped
    queries.
  * Columns are in order of time, [slots ; raw], as in the public code; Eq. 6 prints the new ones
    first.
  * "Trained end-to-end" (Section 3.2.1): gradients flow through all compressions. In the public
    code they flow through one, and keys and values are detached, whose projections learn nothing.
  * Keys are rotated at their own positions, and slots mix the rotated keys, as in the public code.
  * Without a compressor all convolved slots are the plain mean of the columns they could mix, as if
    its weights were zero. These M equal slots are the baseline on which training has to improve.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self, Unpack

import torch
from torch import Tensor, nn

from cca_lab.mechanisms.base import Call, Keywords, Mechanism
from cca_lab.mechanisms.columns import Columns, behind
from cca_lab.mechanisms.indices import first_compression, lococo_entries, lococo_peak
from cca_lab.mechanisms.lococo.memory import Compressor, memories, pooling
from cca_lab.mechanisms.lococo.segments import Settings, intervals, segments


def paper_algorithm(queries: Tensor, keys: Tensor, values: Tensor, kernel: Tensor, *,
                    segment: int) -> Tensor:
    """Compute LoCoCo of one head (Algorithm 2), in its simplest form: read this first.

    Args:
        queries, keys, values: (L, D).
        kernel: g of Eq. 6, (M, 2D, K), K odd: one channel for each of the M slots.
        segment: B, tokens of a segment.

    Returns:
        (L, D).
    """
    length, scale, slots = len(keys), keys.shape[1] ** -0.5, len(kernel)
    row_keys, row_values, out = keys[:0], values[:0], []  # slots, then raw tokens
    for start in range(0, length, segment):                                              # Step 1
        if len(row_keys) > slots:  # Steps 4 and 5
            channels = torch.cat([row_keys, row_values], dim=1).T                        # (2D, N)
            # Eq. 6, (M, N)
            weights = torch.conv1d(channels[None], kernel, padding="same")[0].relu()
            weights = weights / weights.sum(dim=1, keepdim=True)                         # Eq. 7
            row_keys, row_values = weights @ row_keys, weights @ row_values  # Eq. 4 and 5
        for i in range(start, min(start + segment, length)):                             # Step 3
            row_keys, row_values = torch.cat([row_keys,
                                              keys[[i]]]), torch.cat([row_values, values[[i]]])
            out.append(torch.softmax(scale * (row_keys @ queries[i]), dim=0) @ row_values)
    return torch.stack(out)


@dataclass(frozen=True, kw_only=True)
class LoCoCo(Settings, Mechanism):
    """LoCoCo: a convolution compresses each segment into slots; rows read slots and raw tokens.

    `module` is the layer's `Compressor`; None for the plain mean. Its weights depend on the values,
    so `effective` and `represented` need v with it.

    Attributes:
        slots: M, the size of the memory.
        segment: B, tokens in a segment.
        weights: how a row of the convolution's output is normalised, "softmax" or "relu" (Eq. 7).
        sinks: slots that keep the first tokens (Table 6, with StreamingLLM).
        heavy: slots that keep the columns with the most attention (Table 6, with H2O).
        scores: attention accumulated in the "last" segment only, or the "sum" over all.
        kernel: the width of the convolution, an odd number.
        backend: how attention is computed, as in `interval_attention`; the result is the same.
    """

    name: ClassVar[str] = "lococo"
    title: ClassVar[str] = "LoCoCo"
    paper: ClassVar[str] = ("Cai et al., LoCoCo: Dropping In Convolutions for Long Context "
                            "Compression, ICML 2024, Section 3, Algorithm 2")
    sizes: ClassVar[tuple[str, ...]] = ("slots", "segment")
    paper_presets: ClassVar[dict[str, dict[str, Any]]] = {
        "post-hoc compression (Section 4.2)": {"slots": 128, "segment": 512, "weights": "relu"},
        "context extension (Section 4.3)": {"slots": 512, "segment": 512, "weights": "relu"},
        "with sinks (Table 6)": {"slots": 512, "segment": 512, "weights": "relu", "sinks": 4},
        "with H2O (Table 6)": {"slots": 512, "segment": 512, "weights": "relu", "heavy": 256,
                               "scores": "sum"}}
    needs_training: ClassVar[bool] = True

    def __post_init__(self) -> None:
        Mechanism.__post_init__(self)
        Settings.__post_init__(self)

    def row_by_row(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        """Compute LoCoCo attention step by step (Algorithm 2): the specification."""
        queries_per_key = q.shape[1] // k.shape[1]  # query heads that use the slots of one KV head
        out = q.new_zeros(q.shape)
        for b in range(len(q)):
            for kv in range(k.shape[1]):
                heads = slice(kv * queries_per_key, (kv + 1) * queries_per_key)
                out[b, heads] = read(q[b, heads], k[b, kv], v[b, kv], self, call.scale, call.module)
        return out

    def columns(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> list[Columns]:
        """Return one part: the slots of all G compressions, then raw tokens, (B, Hk, G M + L, D).

        P is the product of all compressions.
        """
        length = q.shape[2]
        made = memories(q, k, v, self, call.scale, call.module)
        keys, values = (behind(torch.cat([x[:, :, :0], *slots], dim=2), x)
                        for x, slots in ((k, [memory.keys for memory in made]),
                                         (v, [memory.values for memory in made])))
        return [Columns(q, keys, values, intervals(length, self, q.device),
                        partial(pooling, made, self, length, k),
                        reach=partial(pooling, made, self, length, k, reach=True))]

    def effective(self, q: Tensor, k: Tensor, v: Tensor | None = None,
                  **keywords: Unpack[Keywords]) -> Tensor:
        """Return E as in `Mechanism.effective`; ValueError for a module without values."""
        check_values(v, keywords.get("module"))
        return super().effective(q, k, v, **keywords)

    def represented(self, q: Tensor, k: Tensor, v: Tensor | None = None,
                    **keywords: Unpack[Keywords]) -> Tensor:
        """Return which tokens a row attends to, raw or in slots with weights above 0."""
        check_values(v, keywords.get("module"))
        return super().represented(q, k, v, **keywords)

    def exact_when(self, length: int) -> bool:
        """Return True if no segment begins with more than M columns."""
        return length <= first_compression(self.slots, self.segment)

    def new_module(self, config: Any) -> Compressor | None:
        """Return the compressor of one attention layer, or None if no slot is a mixture.

        Raises:
            ValueError: for more slots than a text of the model has tokens, which would cost memory
                and never be filled.
        """
        most = getattr(config, "max_position_embeddings", self.slots)
        if self.slots > most:
            raise ValueError(f"slots: got {self.slots}, wanted at most {most}, the positions of "
                             "the model")
        head_dim = getattr(config, "head_dim",
                           None) or config.hidden_size // config.num_attention_heads
        mixed = self.convolved
        return Compressor(head_dim, mixed, kernel=self.kernel) if mixed else None

    def cache_entries(self, length: int) -> int:
        """Return the slots and raw tokens, see `indices`."""
        return lococo_entries(length, slots=self.slots, segment=self.segment)

    def peak_entries(self, length: int) -> int:
        """Return the most columns before a compression."""
        return min(length, lococo_peak(slots=self.slots, segment=self.segment))

    @classmethod
    def sized(cls, entries: int, length: int) -> Self:
        """Return LoCoCo with half of the entries as slots and half as tokens of a segment."""
        return cls(slots=entries // 2, segment=entries - entries // 2)


def check_values(v: Tensor | None, module: nn.Module | None) -> None:
    """Raise ValueError for a module without values."""
    if v is None and module is not None:
        raise ValueError(
            "v: got None with a module, whose weights depend on the values; pass v, of k's shape")


def read(queries: Tensor, keys: Tensor, values: Tensor, settings: Settings, scale: float,
         compressor: nn.Module | None) -> Tensor:
    """Attend with a KV head's G query heads: (G, L, D), keys and values (L, D) -> (G, L, D)."""
    out, first = torch.zeros_like(queries), 0
    slots = keys[:0], values[:0]
    accumulated = keys.new_zeros(0)                         # accumulated attention of each column
    for start, stop in segments(len(keys), settings.segment):        # Step 1
        # Steps 4 and 5 of the segment before
        if len(accumulated) > settings.slots:
            old_keys = torch.cat([slots[0], keys[first:start]])      # (N, D)
            old_values = torch.cat([slots[1], values[first:start]])
            weights = _mixing_weights(old_keys, old_values, accumulated, settings, compressor)
            slots = weights @ old_keys, weights @ old_values         # Eq. 4, and Eq. 5 with v for q
            accumulated, first = weights.detach() @ accumulated, start
        columns = [torch.cat([slot, x[first:stop]])
                   for slot, x in zip(slots, (keys, values), strict=True)]
        accumulated = torch.cat([accumulated, accumulated.new_zeros(stop - start)])
        if settings.scores == "last":
            accumulated = torch.zeros_like(accumulated)
        for i in range(start, stop):                                 # Step 3
            seen = len(columns[0]) - (stop - 1 - i)  # all slots, and raw tokens up to i
            for head, query in enumerate(queries[:, i]):
                weights = torch.softmax(scale * (columns[0][:seen] @ query), dim=0)  # (seen,)
                out[head, i] = weights @ columns[1][:seen]
                accumulated[:seen] += weights.detach()
    return out


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
        # (M', R), Eq. 6
        output = compressor(torch.cat([keys, values], dim=1)[None, None, rest])[0, 0]
    for i in range(settings.convolved):
        positive = output[i].clamp(min=0)
        if settings.weights == "softmax":
            weights = positive.exp() / positive.exp().sum()
        elif positive.sum() > 0:
            weights = positive / positive.sum()                      # Eq. 7
        else:
            weights = torch.full_like(positive, 1 / len(rest))       # 0/0 in Eq. 7
        rows.append(torch.zeros(len(keys), dtype=keys.dtype).index_add(0, torch.tensor(rest),
                                                                       weights))
    return torch.stack(rows)


def _largest(accumulated: Tensor, columns: list[int] | range, count: int) -> list[int]:
    """Return the `count` columns with the most attention, ascending; of equal ones the earlier."""
    return sorted(sorted(columns, key=lambda j: -accumulated[j].item())[:count])
