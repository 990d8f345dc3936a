"""Wrong answers to the turns of notebook 05_convolutional_memory."""

from functools import partial

import torch

from cca_lab.course.turns.nb05 import remember, table_of


def _columns(*, always=False, least=1, slots_count=True, late=0):
    def columns_of(row, slots, segment):
        held, first = 0, 0
        for begin in range(segment, row + 1 - late, segment):
            if always or held * slots_count + begin - first >= slots + least:
                held, first = slots, begin
        return held, first
    return columns_of


def _ratio(positive, dim=1, more=0.0):
    return positive / (positive.sum(dim, keepdim=True) + more)


WRONG = {
    "05.2": {
        "always": (_columns(always=True), "compressed at every segment"),
        "at M": (_columns(least=0), "exactly M columns"),
        "raw tokens only": (_columns(slots_count=False), "only the raw tokens are counted"),
        "one row late": (_columns(late=1), "still reads the old columns"),
        "the segment's beginning":
            (lambda row, slots, segment: (slots * (row >= segment), row // segment * segment),
             "compressed at every segment"),
        "one number": (lambda row, slots, segment: row, "wanted two integers"),
    },
    "05.5": {
        "as printed": (_ratio, "not made 0 first"),
        "0/0": (lambda W: _ratio(W.relu()), "0/0"),
        "over the slots": (lambda W: _ratio(W.relu() + 1e-300, 0), "sums go over the slots"),
        "softmax of the ReLU": (lambda W: W.relu().softmax(1), "softmax of the ReLU"),
        "absolute values": (lambda W: _ratio(W.abs() + 1e-300), "absolute values"),
        "an empty slot": (lambda W: _ratio(W.relu()).nan_to_num(0.0), "its slot is empty"),
        "a small number": (lambda W: _ratio(W.relu(), more=1e-6), "a small number is added"),
        "one for all":
            (lambda W: _ratio(W.relu()) if (W > 0).any(1).all()
             else torch.full_like(W, 1 / W.shape[1]), "all rows even"),
    },
    "05.6": {
        "always": (partial(remember, full=lambda held, slots: held > 0), "at every segment"),
        "exactly": (partial(remember, full=lambda held, slots: held >= slots), "room for them"),
        "late": (partial(remember, late=1), "compression comes before it"),
        "own": (partial(remember, own=False), "its own token"),
        "never": (partial(remember, full=lambda held, slots: False), "ever compressed"),
    },
    "05.7": {
        "offset": (partial(table_of, offset=False), "slots of all compressions come first"),
        "all slots": (partial(table_of, latest=False), "those of the latest"),
        "all raw": (partial(table_of, since=False), "still read"),
        "a list": (lambda length, slots, segment: [], "wanted a tensor"),
    },
}
