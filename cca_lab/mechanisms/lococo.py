"""LoCoCo: segment-level attention with a memory of M slots that a convolution fills.

Cai et al., "LoCoCo: Dropping In Convolutions for Long Context Compression", ICML 2024 (Section 3,
Eq. 3-7, Algorithm 2). A text is read in segments of B tokens. Row i of a segment attends to all slots and
to the raw tokens since the last compression, up to itself, in one softmax:

    out_i = softmax(scale * q_i [slot keys ; K_{r..i}]^T) [slot values ; V_{r..i}]     (Step 3)
    slot  = W [slots ; raw],   W = normalised convolution of their keys and values     (Steps 4 and 5)

The memory is compressed only once slots and raw tokens exceed M. Rows see finished segments only, so
nothing leaks although the convolution looks to both sides and heavy hitters are chosen by queries.

Differs from the paper, and what it leaves open:
  * Eq. 1 multiplies a 0/1 mask into the logits, which gives the future weight exp(0); we hide it.
  * Eq. 5 and Step 5 mix queries; values must be meant ("weights are shared", Section 3.2.1).
  * Algorithms 1 and 2 begin segment n at token nB, n from 1, and skip the first B - 1; ours begin at 0.
  * Eq. 7 divides 0 by 0 where ReLU leaves a row of zeros; then we take the plain mean. The public code
    takes softmax(ReLU(W)) instead, our default (`weights`).
  * The public code mixes each convolved slot half and half with a heavy hitter (`residual`), gives half of
    the slots to heavy hitters (`heavy`), the paper's Table 6 does so in one line; we do neither by default.
  * That code scores a column by the attention it received in the last segment; H2O adds up all segments
    (`scores`). With grouped queries the heads of a KV head are added; the public code takes no such model.
  * Columns stand in order of time, [slots ; raw], as in the public code; Eq. 6 prints the new ones first.
  * "Trained end-to-end" (Section 3.2.1): gradients flow through all compressions, or the last `horizon`.
    The public code has 1 and also cuts keys and values off, which starves what makes them; we do not.
  * Keys come rotated at their own positions, and slots mix them so, as in the public code.
  * Without a compressor all convolved slots are the plain mean of what they could mix, as if its weights
    were zero: a blurred memory of M equal slots, which says what training has to improve upon.
"""

from typing import Any

import torch
from torch import Tensor, nn

from cca_lab.attention import effective_attention, interval_attention, visible_mask
from cca_lab.mechanisms.inputs import check_qkv, expand_heads
from cca_lab.mechanisms.lococo_compressor import Compressor, new_module
from cca_lab.mechanisms.lococo_loops import loops
from cca_lab.mechanisms.lococo_memory import Memory, memories, pooling
from cca_lab.mechanisms.lococo_rows import Settings, cache_tokens, compressions, intervals, peak_tokens
from cca_lab.mechanisms.mechanism import Mechanism, every_row
from cca_lab.mechanisms.rotary import Rotation

__all__ = ["Compressor", "Settings", "attention", "cache_tokens", "compressions", "effective", "intervals",
           "loops", "memories", "peak_tokens", "represented"]


def attention(q: Tensor, k: Tensor, v: Tensor, *, slots: int, segment: int | list[int],
              weights: str = "softmax", residual: bool = False, sinks: int = 0, heavy: int = 0,
              scores: str = "last", buffer: int = 0, horizon: int | None = None, when: str = "eager",
              borders: str = "text", kernel: int = 21, scale: float | None = None,
              rotation: Rotation | None = None, compressor: nn.Module | None = None,
              backend: str = "auto") -> Tensor:
    """LoCoCo attention: make the slots segment by segment, then attend once over [slots ; raw].

    Args:
        q: queries, (B, H, L, D).
        k, v: keys and values, (B, Hk, L, D); H is a multiple of Hk.
        slots: M, the size of the memory.
        segment: B, tokens of a segment; or a list of sizes, of which the last repeats, such as [64, 64, 1]
            for a prompt of 128 tokens and a decoder that makes each token a segment.
        weights: "softmax" or "relu" (Eq. 7), how a row of the convolution's output is normalised.
        residual: mix into each convolved slot one of the columns that received most attention.
        sinks: slots that keep the first tokens (Table 6, with StreamingLLM).
        heavy: slots that keep the columns which received most attention (Table 6, with H2O).
        scores: attention received in the "last" segment, or the "sum" of all since a token came.
        buffer: columns beyond M that are put up with before they are compressed.
        horizon: compressions that gradients pass, counted back from each row; None for all.
        when, borders: of the cache alone, see `LoCoCoCache`; outputs over whole texts do not depend on them.
        kernel: width of the convolution that `new_module` makes.
        scale: factor on the dot products; None means D**-0.5.
        rotation: taken, and not needed: keys are mixed as they come.
        compressor: the layer's `Compressor`; None for the plain mean.
        backend: of `interval_attention`.

    Returns:
        (B, H, L, D), in the dtype of q.

    Raises:
        ValueError: if an option or a shape does not fit.
    """
    check_qkv(q, k, v)
    settings = Settings(slots=slots, segment=segment, weights=weights, residual=residual, sinks=sinks,
                        heavy=heavy, scores=scores, buffer=buffer, horizon=horizon, when=when,
                        borders=borders, kernel=kernel)
    made = memories(q, k, v, settings, scale, compressor)
    keys = torch.cat([*(memory.keys for memory in made), k], dim=2)          # (B, Hk, G M + L, D)
    values = torch.cat([*(memory.values for memory in made), v], dim=2)
    visible = intervals(q.shape[2], settings, q.device)
    return interval_attention(q, keys, values, visible, scale=scale, backend=backend)


def effective(q: Tensor, k: Tensor, *, values: Tensor | None = None, scale: float | None = None,
              rotation: Rotation | None = None, compressor: nn.Module | None = None,
              **options: Any) -> Tensor:
    """Return the matrix E = A P with attention(q, k, v) = E v: how much each token weighs in a row.

    A slot is a mean of slots and tokens, so the product of all compressions says which tokens it holds.

    Args:
        q, k, scale, rotation, compressor, options: as in `attention`.
        values: v, which a compressor reads too; wanted only with one.

    Returns:
        (B, H, L, L): rows sum to 1, exactly 0 on the future.

    Raises:
        ValueError: as `attention`; also for a compressor without values.
    """
    settings, made = _weights_of(q, k, values, scale, compressor, options)
    keys = torch.cat([*(memory.keys for memory in made), k], dim=2)
    pools = pooling(made, settings, q.shape[2], k)
    return effective_attention(q, keys, intervals(q.shape[2], settings, q.device), pools, scale=scale)


def represented(q: Tensor, k: Tensor, *, values: Tensor | None = None, scale: float | None = None,
                rotation: Rotation | None = None, compressor: nn.Module | None = None,
                **options: Any) -> Tensor:
    """Return which past tokens reach a row, raw or through slots with a weight over 0: bool (B, H, L, L)."""
    settings, made = _weights_of(q, k, values, scale, compressor, options)
    reach = [Memory(x.keys, x.values, (x.weights > 0).to(x.weights.dtype)) for x in made]
    pools = pooling(reach, settings, q.shape[2], k)
    visible = visible_mask(intervals(q.shape[2], settings, q.device), pools.shape[2])  # (1, 1, L, G M + L)
    return expand_heads(visible.to(pools.dtype) @ pools > 0, q.shape[1])


def _weights_of(q: Tensor, k: Tensor, values: Tensor | None, scale: float | None,
                compressor: nn.Module | None, options: dict) -> tuple[Settings, list[Memory]]:
    if compressor is not None and values is None:
        raise ValueError("values: got None with a compressor, whose weights depend on the values; pass "
                         "values=v, of k's shape")
    values = k if values is None else values
    check_qkv(q, k, values)
    settings = Settings(**options)
    return settings, memories(q, k, values, settings, scale, compressor)


def exact_when(length: int, **options: Any) -> bool:
    """No segment begins with more than M + buffer columns, so nothing is ever compressed."""
    return not compressions(length, Settings(**options))


MECHANISM = Mechanism(
    name="lococo",
    title="LoCoCo",
    paper="Cai et al., LoCoCo: Dropping In Convolutions for Long Context Compression, ICML 2024, "
          "Section 3, Algorithm 2",
    loops=loops,
    attention=attention,
    effective=effective,
    defaults={"slots": 64, "segment": 64},
    paper_presets={
        "post-hoc compression (Section 4.2)": {"slots": 128, "segment": 512, "weights": "relu"},
        "context extension (Section 4.3)": {"slots": 512, "segment": 512, "weights": "relu"},
        "with sinks (Table 6)": {"slots": 512, "segment": 512, "weights": "relu", "sinks": 4},
        "with H2O (Table 6)": {"slots": 512, "segment": 512, "weights": "relu", "heavy": 256,
                               "scores": "sum"},
        "public code": {"slots": 512, "segment": 512, "residual": True, "heavy": 256, "buffer": 16,
                        "when": "lazy", "borders": "calls", "horizon": 1},
    },
    causal_scope=every_row,
    needs_training=True,
    exact_when=exact_when,
    represented=represented,
    new_module=new_module,
)
