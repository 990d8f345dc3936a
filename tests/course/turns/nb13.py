"""Wrong answers to the turns of notebook 13_swap_into_gpt2_and_opt."""

import torch

from cca_lab.course.turns.nb13 import attend


def _with(factor=lambda scaling, d: scaling, **mistake):
    return lambda q, k, v, scaling: attend(q, k, v, factor(scaling, q.shape[-1]),
                                           **mistake).transpose(1, 2)


def _late_mask(q, k, v, scaling):
    return ((scaling * q @ k.mT).softmax(-1).tril() @ v).transpose(1, 2)


def _new_shape(q, k, v, scaling):
    return attend(q, k, v, scaling).reshape(q.shape[0], q.shape[2], q.shape[1], q.shape[3])


def _groups(place, padding):
    def answer(mask, group):
        number = torch.div(place(mask), group, rounding_mode="floor")
        return number if padding is None else number.masked_fill(mask == 0, padding)
    return answer


def _from_one(mask, group):
    return ((mask.cumsum(1) - 1) // group + 1).masked_fill(mask == 0, -1)


def _column(mask):
    return torch.arange(mask.shape[1]).expand(len(mask), -1)


WRONG = {
    "13.3": {
        "always 1/sqrt(d)": (_with(lambda scaling, d: d**-0.5), "whatever arrives"),
        "scaled twice": (_with(lambda scaling, d: scaling * d**-0.5), "scaled twice"),
        "not scaled": (_with(lambda scaling, d: 1.0), "not scaled at all"),
        "axes as they came": (attend, "heads and tokens exchanged"),
        "axes by a new shape": (_new_shape, "transpose moves the numbers along"),
        "no causal mask": (_with(seen=99), "read later tokens too"),
        "one token too far": (_with(seen=1), "the next token as well"),
        "masked after softmax": (_late_mask, "do not sum to 1"),
        "softmax over the queries": (_with(axis=-2), "belongs over the keys"),
        "wrong in OPT only": (_with(lambda scaling, d: d**-0.5), "OPT"),
    },
    "13.6": {
        "from the first column": (_groups(_column, -1), "they begin at each text's own"),
        "counts from 1": (_groups(lambda mask: mask.cumsum(1), -1), "one token short"),
        "padding in group 0":
            (_groups(lambda mask: (mask.cumsum(1) - 1).clamp(min=0), None),
             "beside the text's first"),
        "padding grouped": (_groups(_column, None), "padding is put into groups too"),
        "numbered from 1": (_from_one, "numbered from 1"),
    },
}
