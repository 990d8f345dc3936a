"""H2O: a cache of fixed size that keeps the last tokens and those that received most attention so far.

Zhang et al., "H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language Models",
NeurIPS 2023 (Section 4, Algorithm 1). Rows and tokens count from 0. S_i is what is kept after row i:

    row i reads R_i = S_{i-1} + {i}, with weights A_it = softmax(scale * q_i K_R^T)
    score_t += A_it                          for each t in R_i: attention received while it was kept
    S_i = the last `recent` tokens of R_i, and of the others the `heavy` with the highest scores

so a row attends first, to up to heavy + recent + 1 tokens, and evicts then. What is evicted, its score
included, never comes back (and could not: `heavy` tokens with higher scores, which only grow, are there).
Nothing later than a row decides what it reads.

A prompt is read densely: its rows see all of their past, and the first eviction comes after it. `prompt`
is its length; 1, the default, means token by token from the first one on.

Where the paper and the public code differ or are silent:
  * Scores are sums, not means, so that old tokens have an advantage, as in both.
  * Grouped queries: a score for each KV head, the mean over its query heads (their sum ranks alike). The
    code has a score for each query head and one KV head for each. Sequences of a batch score for themselves;
    the code adds scores over the batch and asks for a batch of one.
  * Of equal scores the older token goes first.
  * Budgets are tokens (int) or shares of the prompt (float, the code's 0.1 and 0.1), rounded down, at least 1.
  * Positions are the original ones; the code also has a variant with positions in the cache.
"""

from typing import Any

import torch
from torch import Tensor

from cca_lab.attention.dense import accumulation_dtype
from cca_lab.mechanisms import masked
from cca_lab.mechanisms.inputs import check_counts, check_positive, check_qkv, expand_heads, floor_of_share
from cca_lab.mechanisms.mechanism import Mechanism, every_row
from cca_lab.mechanisms.rotary import Rotation


def loops(q: Tensor, k: Tensor, v: Tensor, *, heavy: int | float, recent: int | float, prompt: int = 1,
          scale: float | None = None, rotation: Rotation | None = None) -> Tensor:
    """H2O, token by token with an explicit cache (Algorithm 1). The specification.

    Args:
        q: queries, (B, H, L, D).
        k, v: keys and values, (B, Hk, L, D); H is a multiple of Hk.
        heavy: tokens kept for their scores; a float is a share of the prompt.
        recent: last tokens kept; a float is a share of the prompt.
        prompt: tokens that are read before the first eviction, 1 or more.
        scale: factor on the dot products; None means D**-0.5.
        rotation: not used; keys keep the positions they were rotated to.

    Returns:
        (B, H, L, D), in the dtype of q.

    Raises:
        ValueError: if an option or a shape does not fit.
    """
    check_qkv(q, k, v)
    heavy, recent = budget(heavy, recent, prompt)
    batch, heads, length, head_dim = q.shape
    share, scale = heads // k.shape[1], head_dim**-0.5 if scale is None else scale
    out = q.new_zeros(q.shape)
    for b in range(batch):
        for kv in range(k.shape[1]):
            scores: dict[int, float] = {}                      # of the tokens that are kept, in time order
            for i in range(length):
                scores[i] = 0.0
                tokens = list(scores)                          # R_i
                for h in range(kv * share, kv * share + share):
                    weights = torch.softmax(scale * (k[b, kv, tokens] @ q[b, h, i]), dim=0)
                    out[b, h, i] = weights @ v[b, kv, tokens]
                    for token, weight in zip(tokens, weights.tolist(), strict=True):
                        scores[token] += weight / share
                if i + 1 >= prompt:
                    evict_loops(scores, heavy, recent)
    return out


def evict_loops(scores: dict[int, float], heavy: int, recent: int) -> None:
    """Drop the lightest of the tokens that are not recent until `heavy` of them are left."""
    older = list(scores)[: max(0, len(scores) - recent)]
    for token in sorted(older, key=scores.get)[: max(0, len(older) - heavy)]:
        del scores[token]


@torch.no_grad()
def represented(q: Tensor, k: Tensor, *, heavy: int | float, recent: int | float, prompt: int = 1,
                scale: float | None = None, **_: Any) -> Tensor:
    """Return which tokens each row reads, bool (B, H, L, L): the cache is simulated, all heads at once."""
    heavy, recent = budget(heavy, recent, prompt)
    batch, heads, length, head_dim = q.shape
    scale = head_dim**-0.5 if scale is None else scale
    dtype = accumulation_dtype(q.dtype)
    logits = scale * (q.to(dtype) @ expand_heads(k, heads).to(dtype).mT)
    logits = logits.unflatten(1, (k.shape[1], -1))                                    # (B, Hk, H/Hk, L, L)
    kept = torch.zeros(batch, k.shape[1], length, dtype=torch.bool, device=q.device)  # (B, Hk, L)
    scores, rows = torch.zeros(kept.shape, dtype=dtype, device=q.device), []
    for i in range(length):
        kept[..., i] = True
        rows.append(kept)
        hidden = ~kept[:, :, None]                                                    # (B, Hk, 1, L)
        scores = scores + logits[..., i, :].masked_fill(hidden, float("-inf")).softmax(-1).mean(2)
        if i + 1 >= prompt:
            kept = evict(kept, scores, heavy, recent, i)
        else:
            kept = kept.clone()
    return torch.stack(rows, dim=2).repeat_interleave(heads // k.shape[1], dim=1)


def evict(kept: Tensor, scores: Tensor, heavy: int, recent: int, row: int) -> Tensor:
    """Return what is kept after a row: bool (B, Hk, L) of kept tokens and their scores (B, Hk, L) -> the same."""
    extra = int(kept[0, 0].sum()) - heavy - recent  # all heads keep equally many tokens
    if extra <= 0:
        return kept.clone()
    older = torch.arange(kept.shape[-1], device=kept.device) <= row - recent
    lightest_first = scores.masked_fill(~(kept & older), float("inf")).argsort(dim=-1, stable=True)
    return kept.scatter(-1, lightest_first[..., :extra], False)


def attention(q: Tensor, k: Tensor, v: Tensor, *, heavy: int | float, recent: int | float, prompt: int = 1,
              scale: float | None = None, rotation: Rotation | None = None, backend: str = "auto") -> Tensor:
    """H2O over a whole sequence: the rows' caches, then all rows at once under that mask.

    No gradient flows through the choice of tokens, as in `loops`.

    Args, Returns, Raises: those of `loops`; backend is "dense" or "auto".
    """
    check_qkv(q, k, v)
    visible = represented(q, k, heavy=heavy, recent=recent, prompt=prompt, scale=scale)
    return masked.attend(q, k, v, visible, scale=scale, backend=backend)


def effective(q: Tensor, k: Tensor, *, scale: float | None = None, **options: Any) -> Tensor:
    """Return the attention matrix E, (B, H, L, L), with attention(q, k, v) = E v; options of `loops`."""
    check_qkv(q, k, k)
    return masked.matrix(q, k, represented(q, k, scale=scale, **options), scale=scale)


def budget(heavy: int | float, recent: int | float, prompt: int) -> tuple[int, int]:
    """Return how many heavy and recent tokens are kept.

    Args:
        heavy, recent: tokens (int), or shares of the prompt (float), rounded down but at least 1.
        prompt: tokens of the prompt.

    Raises:
        ValueError: for negative numbers, shares over 1, or nothing to keep.
    """
    check_positive(prompt=prompt)
    for name, value in {"heavy": heavy, "recent": recent}.items():
        if not isinstance(value, float):
            check_counts(**{name: value})
        elif not 0 < value <= 1:
            raise ValueError(f"{name}: got {value}, wanted an integer number of tokens, or a share of the prompt "
                             "over 0 and at most 1, such as 0.1")
    heavy, recent = (max(1, floor_of_share(x, prompt)) if isinstance(x, float) else x for x in (heavy, recent))
    if heavy + recent == 0:
        raise ValueError("heavy and recent: got 0 and 0, wanted a token to keep; give one of them 1 or more")
    return heavy, recent


def exact_when(length: int, *, heavy: int | float, recent: int | float, prompt: int = 1, **_: Any) -> bool:
    """The last row comes before the first eviction that hurts."""
    return length <= max(prompt, sum(budget(heavy, recent, prompt)) + 1)


MECHANISM = Mechanism(
    name="h2o",
    title="H2O",
    paper="Zhang et al., H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language Models, "
          "NeurIPS 2023, Section 4, Algorithm 1",
    loops=loops,
    attention=attention,
    effective=effective,
    represented=represented,
    defaults={"heavy": 48, "recent": 48},
    paper_presets={
        "a fifth of a prompt of 2048 tokens": {"heavy": 0.1, "recent": 0.1, "prompt": 2048},
        "summarization in the public code": {"heavy": 1024, "recent": 1024},
    },
    causal_scope=every_row,
    needs_training=False,
    exact_when=exact_when,
    rungs=("dense",),
)
