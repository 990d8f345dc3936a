"""Wrong LoCoCo attentions: one change each in the loops."""

from cca_lab.mechanisms import LoCoCo
from tests.mechanisms.forms import form
from tests.mutants.slips import slip

LOOPS = form(LoCoCo, "loops")
READ, MIX, CUT = (f"cca_lab.mechanisms.lococo.mechanism.{name}" for name in (
    "read", "_mixing_weights", "segments"))
FULL, MADE = "if len(accumulated) > settings.slots:", "weights @ old_keys, weights @ old_values"
RATIO, RECEIVED = "positive.sum() > 0", "+= weights.detach()"

segments_from_nb = slip("Algorithms 1 and 2 as printed: segment n begins at token nB", LOOPS,
                        (CUT, "range(0, length", "range(segment - 1, length"),
                        (READ, "torch.zeros_like(queries), 0",
                         "torch.zeros_like(queries), settings.segment - 1"))
queries_mixed = slip("Eq. 5 as printed: queries are mixed where values are meant", LOOPS,
                     (READ, "slots[1], values[first:start]", "slots[1], queries[0, first:start]"))
ratio_unguarded = slip("Eq. 7 as printed: a row that ReLU leaves empty is 0/0", LOOPS,
                       (MIX, RATIO, "True"))
no_relu = slip("Eq. 7 without the ReLU of Section 3.2.1", LOOPS, (MIX, RATIO, "True"),
               (MIX, "output[i].clamp(min=0)", "output[i]"))
softmax_over_slots = slip("each column shares itself out over the slots", LOOPS,
                          (MIX, "positive.exp() / positive.exp().sum()",
                           "output.clamp(min=0).softmax(dim=0)[i]"))
compression_detached = slip("the convolution gets no gradient", LOOPS, (
    READ, MADE, "(weights @ old_keys).detach(), (weights @ old_values).detach()"))
always_compressed = slip("compresses once the memory is filled, not exceeded", LOOPS, (
    READ, FULL, "if len(accumulated) >= settings.slots:"))
kept_tokens_mixed_too = slip("columns that are kept count twice", LOOPS, (
    MIX, "[j for j in columns if j not in sinks + heavy]", "list(columns)"))
first_head_decides = slip("heavy hitters by one query head", LOOPS,
                          (READ, RECEIVED, f"{RECEIVED} * (head == 0)"))
last_query_decides = slip("heavy hitters by a segment's last row", LOOPS,
                          (READ, RECEIVED, f"{RECEIVED} * (i == stop - 1)"))
