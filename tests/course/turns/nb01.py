"""Wrong answers to the turns of notebook 01_attention_from_loops_to_a_kernel."""

import math

import torch


def past(scores, diagonal=0):
    return torch.ones(scores.shape, dtype=torch.bool).tril(diagonal)


def dense(weights):
    """Attention from a function of the scores."""
    return lambda q, k, v, scale: weights(scale * q @ k.T) @ v


def hidden(value, diagonal=0, dim=1):
    return dense(lambda s: s.masked_fill(~past(s, diagonal), value).softmax(dim))


def rows(end=1, divided=True):
    """The loops; row i reads the words before i + end."""
    def attend(q, k, v, scale):
        out = []
        for i in range(len(q)):
            powers = (scale * k[: max(0, i + end)] @ q[i]).exp()
            out.append((powers / powers.sum() if divided else powers) @ v[: max(0, i + end)])
        return torch.stack(out)

    return attend


def in_tiles(q, k, v, scale, height, width, *, corrected=True, masked=True, end=None, divided=True,
             log2=False, exp=torch.exp, zero=False):
    """Tiles, right or with mistakes; `log2` scales the scores for exp2."""
    out = []
    for first in range(0, len(q), height):
        tile = torch.arange(first, min(first + height, len(q)))
        top = torch.full((len(tile), 1), 0.0 if zero else -math.inf, dtype=q.dtype)
        total, sums = torch.zeros_like(top), q.new_zeros(len(tile), v.shape[1])
        last = first + height if end is None else end(first, height)
        for start in range(0, min(len(q), last), width):
            columns = torch.arange(start, min(start + width, len(q)))
            scores = scale * (math.log2(math.e) if log2 else 1.0) * q[tile] @ k[columns].T
            if masked:
                scores = scores.masked_fill(columns > tile[:, None], -math.inf)
            new = torch.maximum(top, scores.amax(1, keepdim=True))
            factor = exp(top - new) if corrected else torch.ones_like(top)
            weights = exp(scores - new)
            total, top = factor * total + weights.sum(1, keepdim=True), new
            sums = factor * sums + weights @ v[columns]
        out.append(sums / total if divided else sums)
    return torch.cat(out)


def tiled(**wrong):
    return lambda q, k, v, scale, height, width: in_tiles(q, k, v, scale, height, width, **wrong)


def kernel(**wrong):
    """The exercise's kernel in PyTorch, in tiles of 16."""
    options = {"log2": True, "exp": torch.exp2} | wrong
    return lambda q, k, v, scale: in_tiles(q, k, v, scale, 16, 16, **options)


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
        "without itself": (rows(end=0), "at least its own word"),
        "one word ahead": (rows(end=2), "one word of the future"),
        "everything": (rows(end=99), "nothing is hidden"),
        "not divided": (rows(divided=False), "divide by the sum"),
        "no scale": (lambda q, k, v, scale: rows()(q, k, v, 1.0), "the scale is forgotten"),
        "no softmax": (dense(lambda s: s.tril()), "take the softmax first"),
    },
    "01.3": {
        "no mask": (dense(lambda s: s.softmax(1)), "nothing is hidden"),
        "scores times mask": (dense(lambda s: (s * past(s)).softmax(1)), "still has the weight"),
        "weights times mask": (dense(lambda s: s.softmax(1) * past(s)), "no longer sum to 1"),
        "the other triangle":
            (dense(lambda s: s.masked_fill(~past(s).T, -math.inf).softmax(1)),
             "the past is hidden"),
        "wrong axis": (hidden(-math.inf, dim=0), "runs over the queries"),
        "one word ahead": (hidden(-math.inf, diagonal=1), "one word of the future"),
        "without itself": (hidden(-math.inf, diagonal=-1), "at least its own word"),
        "-10000 is added": (dense(lambda s: (s - 1e4 * ~past(s)).softmax(1)), "not enough here"),
        "-1e9 is added": (dense(lambda s: (s - 1e9 * ~past(s)).softmax(1)), "not enough here"),
    },
    "01.4": {
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
    "01.7": {
        "not corrected": (step(factor=False), "the old terms are not corrected"),
        "upside down": (step(upside_down=True), "upside down"),
        "corrects all": (step(both=True), "only the old ones are"),
        "old maximum": (step(weight=False), "old maximum"),
        "no maximum": (step(maximum=False), "no maximum is subtracted"),
        "the last score": (last_maximum, "the maximum is"),
        "two numbers": (lambda top, total, sums, score, value: (top, total), "wanted three"),
    },
    "01.10": {
        "not corrected": (tiled(corrected=False), "the old terms are not corrected"),
        "no mask": (tiled(masked=False), "need a mask"),
        "not the diagonal": (tiled(end=lambda first, height: max(1, first)), "left out"),
        "not divided": (tiled(divided=False), "nothing is divided"),
        "from zero": (tiled(zero=True), "begins at -inf"),
        "all tiles": (tiled(end=lambda first, height: 10**6), "stop before the tiles"),
        "the whole matrix": (lambda *answer: hidden(-math.inf)(*answer[:4]),
                             "as many as all scores"),
    },
    "01.13": {
        "exp": (kernel(exp=torch.exp), "take exp2"),
        "no log2": (kernel(log2=False), "not multiplied by log2"),
        "not corrected": (kernel(corrected=False), "not corrected"),
        "no mask": (kernel(masked=False), "need a mask"),
        "all tiles": (kernel(end=lambda first, height: 10**6), "end the loop over key tiles"),
    },
}
