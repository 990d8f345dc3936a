"""Wrong H2Os: one change each in the loops; below them, wrong caches."""

import torch
from torch import Tensor

from cca_lab.mechanisms import H2O
from tests.mechanisms.forms import form
from tests.mutants.slips import slip

LOOPS = form(H2O, "loops")
ROWS, KEPT, EVICT = (f"cca_lab.mechanisms.h2o.mechanism.{name}" for name in (
    "H2O.row_by_row", "H2O.kept", "evict_loops"))
NEW, ADD = "scores[i] = 0.0", "scores[token] += weight / queries_per_key"

evicts_before_attending = slip("the token that leaves has left already", LOOPS, (
    ROWS, NEW, "scores[i] = evict_loops(scores, heavy, recent - 1) or 0.0"))
forgets_scores = slip("the attention of the last row alone decides", LOOPS, (
    ROWS, NEW, "scores = dict.fromkeys([*scores, i], 0.0)"))
keeps_the_lightest = slip("sorted the wrong way round", LOOPS,
                          (EVICT, "key=lambda t: scores[t]", "key=lambda t: -scores[t]"))
recent_of_nothing = slip("tokens[: -recent] with recent = 0 is nothing", LOOPS,
                         (EVICT, "[: max(0, len(scores) - recent)]", "[:-recent]"))
scores_of_full_attention = slip("ranks by full attention, which a cache cannot know", LOOPS, (
    ROWS, "zip(tokens, weights.tolist(), strict=True)",
    "zip(tokens, torch.softmax(scale * (k[b, kv, : i + 1] @ q[b, h, i]), dim=0)[tokens].tolist())"))
scores_of_the_batch = slip("scores summed over the batch, as in the public code",
                           form(H2O, "attention"), (
    KEPT, "-1).sum(-2).mean(2)", "-1).sum(-2).mean(2).sum(0, keepdim=True).repeat(batch, 1, 1)"))
first_head_scores = slip("the first query head of a KV head decides for all", LOOPS, (
    ROWS, ADD, "scores[token] += weight * (h % queries_per_key == 0)"))
evicts_during_the_prompt = slip("the prompt is read as if it were decoded", LOOPS,
                                (ROWS, "i + 1 >= self.prompt", "True"))
scores_of_the_whole_text = slip("later rows decide, too", LOOPS, (
    ROWS, NEW, "scores[i] = (scale * (q[b, kv] @ k[b, kv, i])).exp().sum().item()"))


# ---------------------------------------------------------------- the cache

def state_that_evicts_first(state, query: Tensor, scale: float) -> Tensor:
    """H2OState._attend after an eviction."""
    if state.seen > state.prompt:
        state._evict()
    return type(state).attend_as_written(state, query, scale)


def state_that_forgets_scores(state, query: Tensor, scale: float) -> Tensor:
    """H2OState._attend from zero scores."""
    state.score = torch.zeros_like(state.score)
    return type(state).attend_as_written(state, query, scale)


def state_that_keeps_a_view(state) -> None:
    """H2OState._evict of a window that keeps all memory."""
    state.key, state.value, state.score = (x[:, :, -(state.heavy + state.recent):]
                                           for x in (state.key, state.value, state.score))
