"""Wrong H2Os: `simulate` is right, a mutant changes one thing; below them, wrong caches."""

import torch
from torch import Tensor

from cca_lab.attention.dense import expand_heads
from cca_lab.mechanisms.h2o.mechanism import tokens_kept


class Parts:
    """The decisions of H2O: weights (B, H, L) of one row, scores and kept (B, Hk, L)."""

    share: int

    def received(self, weights: Tensor) -> Tensor:
        """What a row adds to the scores of each KV head."""
        return weights.unflatten(1, (-1, self.share)).mean(2)

    def add(self, scores: Tensor, received: Tensor) -> Tensor:
        """The scores after a row."""
        return scores + received

    def keep(self, kept: Tensor, scores: Tensor, heavy: int, recent: int, i: int) -> Tensor:
        """What is kept after row i."""
        new = torch.zeros_like(kept)
        for b in range(kept.shape[0]):
            for h in range(kept.shape[1]):
                tokens = kept[b, h].nonzero().flatten().tolist()
                older = [t for t in tokens if t <= i - recent]
                heaviest = sorted(older, key=lambda t, s=scores[b, h]: (-s[t].item(), -t))[:heavy]
                new[b, h, heaviest + [t for t in tokens if t > i - recent]] = True
        return new

    def read(self, kept: Tensor, scores: Tensor, heavy: int, recent: int, i: int) -> Tensor:
        """What row i reads: the kept tokens, its own among them."""
        return kept


def simulate(q: Tensor, k: Tensor, v: Tensor, *, heavy, recent, prompt: int = 1,
             scale: float | None = None, parts: Parts | None = None) -> Tensor:
    """H2O row by row, all heads at once, from `parts`."""
    parts = parts or Parts()
    heavy, recent = tokens_kept(heavy, recent, prompt)
    parts.share, (batch, kv_heads, length) = q.shape[1] // k.shape[1], k.shape[:3]
    k, v = expand_heads(k, q.shape[1]), expand_heads(v, q.shape[1])
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    kept, out = torch.zeros(batch, kv_heads, length, dtype=torch.bool), []
    scores = torch.zeros(batch, kv_heads, length, dtype=q.dtype)
    for i in range(length):
        kept[..., i] = True
        seen = parts.read(kept, scores, heavy, recent, i).repeat_interleave(parts.share, dim=1)
        logits = scale * (k @ q[:, :, i, :, None]).squeeze(-1)
        weights = logits.masked_fill(~seen, float("-inf")).softmax(-1)                # (B, H, L)
        out.append((weights[:, :, None] @ v).squeeze(2))
        scores = parts.add(scores, parts.received(weights.detach()))
        if i + 1 >= prompt:
            kept = parts.keep(kept, scores, heavy, recent, i)
    return torch.stack(out, dim=2)


def evicts_before_attending(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """A row attends to heavy + recent tokens: the one that leaves has left already."""
    class Wrong(Parts):
        def read(self, kept, scores, heavy, recent, i):
            return self.keep(kept, scores, heavy, recent, i) if i else kept
    return simulate(q, k, v, parts=Wrong(), **options)


def forgets_scores(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """The attention of the last row alone decides."""
    class Wrong(Parts):
        def add(self, scores, received):
            return received
    return simulate(q, k, v, parts=Wrong(), **options)


def keeps_the_lightest(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Sorted the wrong way round."""
    class Wrong(Parts):
        def keep(self, kept, scores, *args):
            return super().keep(kept, -scores, *args)
    return simulate(q, k, v, parts=Wrong(), **options)


def recent_of_nothing(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """tokens[-recent:] with recent = 0 is everything: nothing is ever evicted."""
    class Wrong(Parts):
        def keep(self, kept, scores, heavy, recent, i):
            return kept if recent == 0 else super().keep(kept, scores, heavy, recent, i)
    return simulate(q, k, v, parts=Wrong(), **options)


def scores_of_full_attention(q: Tensor, k: Tensor, v: Tensor, *, heavy: int, recent: int,
                             prompt: int = 1, scale: float | None = None) -> Tensor:
    """Ranks by full attention, evicted tokens included: a cache cannot know that."""
    length, share = q.shape[2], q.shape[1] // k.shape[1]
    past = torch.ones(length, length, dtype=torch.bool).tril()
    logits = q @ expand_heads(k, q.shape[1]).mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    received = logits.masked_fill(~past, float("-inf")).softmax(-1).unflatten(1, (-1, share)).mean(
        2).cumsum(-2)
    visible = torch.eye(length, dtype=torch.bool).expand(*received.shape[:2], -1, -1).clone()
    visible[:, :, 0, 0] = True
    for i in range(1, length):
        older = max(0, i - recent)
        heaviest = received[:, :, i - 1, :older].topk(min(heavy, older)).indices
        visible[:, :, i].scatter_(-1, heaviest, True)
        visible[:, :, i, older : i + 1] = True
    visible = visible.repeat_interleave(share, dim=1)
    return logits.masked_fill(~visible, float("-inf")).softmax(-1) @ expand_heads(v, q.shape[1])


def scores_of_the_batch(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Scores summed over the batch, as in the public code: right for a batch of one."""
    class Wrong(Parts):
        def received(self, weights):
            return super().received(weights).sum(0, keepdim=True).expand(len(weights), -1, -1)
    return simulate(q, k, v, parts=Wrong(), **options)


def first_head_scores(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Grouped queries: the first query head of a KV head decides for all of them."""
    class Wrong(Parts):
        def received(self, weights):
            return weights[:, :: self.share]
    return simulate(q, k, v, parts=Wrong(), **options)


def evicts_during_the_prompt(q: Tensor, k: Tensor, v: Tensor, *, prompt: int = 1,
                             **options) -> Tensor:
    """The prompt is read as if it were decoded."""
    return simulate(q, k, v, prompt=1, **options)


def scores_of_the_whole_text(q: Tensor, k: Tensor, v: Tensor, *, heavy: int, recent: int,
                             scale: float | None = None, prompt: int = 1) -> Tensor:
    """Heavy hitters from the attention of all rows, later ones too."""
    past = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril()
    logits = q @ expand_heads(k, q.shape[1]).mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = logits.masked_fill(~past, float("-inf")).softmax(-1).sum(-2)             # (B, H, L)
    row = torch.arange(q.shape[2])
    older = past & (row[:, None] - row > recent)
    ranked = scores[:, :, None].masked_fill(~older, float("-inf"))
    heaviest = torch.zeros_like(ranked, dtype=torch.bool).scatter(-1, ranked.topk(heavy).indices,
                                                                  True)
    visible = past & (heaviest & older | ~older)
    return logits.masked_fill(~visible, float("-inf")).softmax(-1) @ expand_heads(v, q.shape[1])


# ---------------------------------------------------------------- the cache

def state_that_evicts_first(state, query: Tensor, scale: float) -> Tensor:
    """H2OState._attend after an eviction: killed by test_token_by_token_equals_the_mechanism."""
    if state.seen > state.prompt:
        state._evict()
    return type(state).attend_as_written(state, query, scale)


def state_that_forgets_scores(state, query: Tensor, scale: float) -> Tensor:
    """H2OState._attend from zero scores: killed by test_token_by_token_equals_the_mechanism."""
    state.score = torch.zeros_like(state.score)
    return type(state).attend_as_written(state, query, scale)


def state_that_keeps_a_view(state) -> None:
    """H2OState._evict of a window that keeps all memory."""
    state.key, state.value, state.score = (x[:, :, -(state.heavy + state.recent):]
                                           for x in (state.key, state.value, state.score))
