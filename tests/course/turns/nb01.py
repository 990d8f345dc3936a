"""Wrong answers to the turns of notebook 01_attention_from_loops_to_a_kernel."""

import math

import torch


def past(scores, diagonal=0):
    return torch.ones(scores.shape, dtype=torch.bool).tril(diagonal)


def hidden(value, diagonal=0, dim=1):
    return lambda s: s.masked_fill(~past(s, diagonal), value).softmax(dim)


def detector(key=1e5, value=100.0, query=100.0, rows=slice(None, -1)):
    """A leak test that changes the last token and compares some rows."""
    def leaks(attention, q, k, v):
        edited = [x.clone() for x in (q, k, v)]
        for x, change in zip(edited, (query, key, value), strict=True):
            x[-1] += change
        return not torch.equal(attention(q, k, v)[rows], attention(*edited)[rows])

    return leaks


def step(factor=True, weight=True, upside_down=False, both=False, maximum=True):
    def online_step(top, total, sums, score, value):
        new = torch.maximum(top, score)
        old = ((new - top) if upside_down else (top - new)).exp() if factor else 1.0
        power = (score - (new if weight else top)).exp() if maximum else score.exp()
        if both:
            return new, (total + power) * old, (sums + power * value) * old
        return new, total * old + power, sums * old + power * value

    return online_step


def last_maximum(top, total, sums, score, value):
    return (score, *step()(top, total, sums, score, value)[1:])


WRONG = {
    "01.2": {
        "no mask": (lambda s: s.softmax(1), "nothing is hidden"),
        "scores times mask": (lambda s: (s * past(s)).softmax(1), "still has the weight"),
        "weights times mask": (lambda s: s.softmax(1) * past(s), "no longer sum to 1"),
        "the other triangle":
            (lambda s: s.masked_fill(~past(s).T, -math.inf).softmax(1), "the past is hidden"),
        "wrong axis": (hidden(-math.inf, dim=0), "columns of the matrix"),
        "one word ahead": (hidden(-math.inf, diagonal=1), "one word of the future"),
        "without itself": (hidden(-math.inf, diagonal=-1), "at least its own word"),
        "-10000 is added": (lambda s: (s - 1e4 * ~past(s)).softmax(1), "not enough here"),
        "-1e9 is added": (lambda s: (s - 1e9 * ~past(s)).softmax(1), "not enough here"),
    },
    "01.3": {
        "compares the last row": (detector(rows=slice(None)), "compare only the rows before it"),
        "small change": (detector(key=3.0), "change the last key by a lot"),
        "values only": (detector(key=0.0, query=0.0), "change the last key"),
        "keys only": (detector(value=0.0, query=0.0), "change the last value"),
        "no query": (detector(query=0.0), "change the last query too"),
        "first row only": (detector(rows=slice(0, 1)), "only the row just before the last one"),
        "NaN": (detector(key=math.nan, value=math.nan), "0 times NaN is NaN"),
        "always": (lambda attention, q, k, v: True, "compare only the rows before it"),
        "a number": (lambda attention, q, k, v: 0.5, "wanted True or False"),
    },
    "01.6": {
        "not corrected": (step(factor=False), "the old terms are not corrected"),
        "upside down": (step(upside_down=True), "upside down"),
        "corrects all": (step(both=True), "only the old ones are"),
        "old maximum": (step(weight=False), "old maximum"),
        "no maximum": (step(maximum=False), "no maximum is subtracted"),
        "the last score": (last_maximum, "the maximum is"),
        "two numbers": (lambda top, total, sums, score, value: (top, total), "wanted three"),
    },
}
