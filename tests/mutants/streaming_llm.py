"""Wrong StreamingLLMs, one change each in the loops; below them, wrong caches."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from cca_lab.attention.rotary import rotate, unrotate
from cca_lab.mechanisms import StreamingLLM
from tests.mechanisms.forms import form
from tests.mutants.slips import slip

LOOPS = form(StreamingLLM, "loops")
ROWS = "cca_lab.mechanisms.streaming.streaming_llm.StreamingLLM.row_by_row"
FULL, NEW, NEAR = ("self.sinks + self.recent:", "cache.append(i)",
                   "*range(max(0, i - self.recent), i + 1)")

own_token_counted_as_recent = slip("a window that counts the row's own token, as LM-Infinite's",
                                   LOOPS, (ROWS, FULL, "self.sinks + self.recent - 1:"))
one_more_recent = slip("the oldest recent token leaves one step late", LOOPS,
                       (ROWS, FULL, "self.sinks + self.recent + 1:"))
sinks_counted_twice = slip("sinks in front of the window, also while they are in it", LOOPS, (
    ROWS, NEW, f"cache = [*range(min(self.sinks, i + 1)), {NEAR}]"))
sinks_in_the_future = slip("sinks visible to every row", LOOPS, (
    ROWS, NEW, f"cache = sorted({{*range(min(self.sinks, length)), {NEAR}}})"))
rotated_again = slip("rotated keys are rotated again at their places", LOOPS, (
    ROWS, "rotate(unrotate(keys, cos[cache], sin[cache]), cos[:last + 1],",
    "rotate(keys, cos[:last + 1],"))
positions_ignored = slip("positions in the text where places in the cache are asked for", LOOPS, (
    ROWS, 'self.positions == "cache" and rotation is not None', "False"))
query_left_behind = slip("the query at its position in the text", LOOPS, (
    ROWS, "query = rotate(unrotate(query, cos[i], sin[i]), cos[last], sin[last])", "pass"))


# ---------------------------------------------------------------- states of the cache

def evict_first(state, query, rotation, scale: float) -> Tensor:
    """StreamingLLMState._attend after tokens were dropped for the next row."""
    key, value, length = state.key, state.value, query.shape[2]
    extra = max(0, key.shape[2] - state.sinks - state.recent)
    kept = [t for t in range(key.shape[2]) if t < state.sinks or t >= state.sinks + extra]
    bias = torch.ones(length, len(kept)).tril(len(kept) - length).log()
    return scaled_dot_product_attention(query, key[:, :, kept], value[:, :, kept], bias.to(query),
                                        scale=scale, enable_gqa=True)


def aligned_at_the_top_left(state, query, rotation, scale: float) -> Tensor:
    """StreamingLLMState._attend by is_causal, which takes row 0 of a chunk for the first token."""
    return scaled_dot_product_attention(query, state.key, state.value, is_causal=True, scale=scale,
                                        enable_gqa=True)


def keep_a_view(state) -> None:
    """StreamingLLMState._evict for sinks=0 that keeps a view, and with it the memory."""
    extra = max(0, state.key.shape[2] - state.sinks - state.recent)
    state.key, state.value = state.key[:, :, extra:], state.value[:, :, extra:]


def all_queries_by_one_angle(state, query, row, rotation, limit: int) -> Tensor:
    """StreamingLLMState._turned with the last row's angle for the whole chunk."""
    if int(row[-1]) <= limit:
        return query
    cos, sin = (table[:, -1:] for table in rotation)
    return rotate(unrotate(query, cos, sin), *state.table(limit))
