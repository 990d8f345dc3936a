"""Wrong LM-Infinites, one change each in the loops; below them, wrong caches."""

from torch import Tensor

from cca_lab.mechanisms import LMInfinite
from tests.mechanisms.forms import form
from tests.mutants.slips import slip

LOOPS = form(LMInfinite, "loops")
ROWS = "cca_lab.mechanisms.streaming.lm_infinite.LMInfinite.row_by_row"
FAR, AT_ZERO = "i - t >= self.local and", "cos[0], sin[0]"
PLACES = "[d - min(self.distance, i - t) for t in far]"

clamped_for_each_key = slip("min(limit, i - t) for each global token", LOOPS,
                            (ROWS, AT_ZERO, f"cos[{PLACES}], sin[{PLACES}]"))
limit_of_the_whole_text = slip("the distance depends on how long the text becomes", LOOPS,
                               (ROWS, "min(self.distance, i)", "min(self.distance, length - 1)"))
true_distances = slip("global tokens at their true distances", LOOPS,
                      (ROWS, "if rotation is not None:", "if False:"))
global_keys_stay_rotated = slip("the query at the limit, the keys at their own positions", LOOPS, (
    ROWS, f"far_keys = rotate(unrotate(far_keys, cos[far], sin[far]), {AT_ZERO})", "pass"))
globals_counted_twice = slip("global tokens stand beside the window that holds them", LOOPS,
                             (ROWS, FAR, ""))
own_token_on_top = slip("`local` previous tokens and the own one, as StreamingLLM counts", LOOPS,
                        (ROWS, "i - t < self.local]", "i - t <= self.local]"))
gap_before_the_window = slip("global tokens appear a row late", LOOPS,
                             (ROWS, FAR, "i - t > self.local and"))


# ---------------------------------------------------------------- states of the cache

def far_at_true_distances(state, query, row, rotation) -> tuple[Tensor, Tensor]:
    """LMInfiniteState._far without a limit."""
    return query, state.key


def far_with_rotated_keys(state, query, row, rotation) -> tuple[Tensor, Tensor]:
    """LMInfiniteState._far that turns the query only."""
    return state._turned(query, row, rotation, state.limit), state.key


def evict_a_global(state) -> None:
    """LMInfiniteState._evict that keeps the last tokens and forgets the first."""
    state.key, state.value = (x[:, :, -(state.sinks + state.recent):].clone()
                              for x in (state.key, state.value))
