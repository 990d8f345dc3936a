"""Wrong answers to the turns of notebook 03_core_tokens_and_the_local_window."""

import math
from functools import partial

import torch


def pooling(weights_of):
    def core(q, k, v, scale):
        weights = weights_of(q, k, scale)
        return weights @ k, weights @ v

    return core


def pooled(x, q, scale):
    """The mean of x, weighted by the last query's scores of x itself."""
    return (scale * x @ q[-1]).softmax(0) @ x


def reads(cores_of, first_of=lambda row, g, s, n: g * n):
    def answer(row, g, s):
        n = cores_of(row, g, s)
        return n, first_of(row, g, s, n)

    return answer


def right(row, g, s):
    return max(0, (row + 1 - s) // g)


def kernel(q, k, v, group, scale, load_mask=True, score=-math.inf, judge="last"):
    """The exercise's kernel in PyTorch."""
    size, cores = 1 << (group - 1).bit_length(), []
    for start in range(0, len(k) // group * group, group):
        keys, values = (x[start : start + size] for x in (k, v))
        inside = torch.arange(size) < group
        if load_mask:
            keys, values = (torch.where(inside[:, None], x, 0.0) for x in (keys, values))
        scores = scale * keys @ q[start + {"last": group - 1, "first": 0, "tile": size - 1}[judge]]
        if score is not None:
            scores = torch.where(inside, scores, torch.tensor(score))
        weights = scores.softmax(0)
        cores.append((weights @ keys, weights @ values))
    return tuple(torch.stack(x) for x in zip(*cores, strict=True))


WRONG = {
    "03.2": {
        "first query judges":
            (pooling(lambda q, k, c: (c * k @ q[0]).softmax(0)), "the first query judges"),
        "all queries judge": (pooling(lambda q, k, c: (c * q @ k.T).softmax(1).mean(0)),
                              "all members judge"),
        "mean query judges": (pooling(lambda q, k, c: (c * k @ q.mean(0)).softmax(0)),
                              "the mean query judges"),
        "plain mean": (pooling(lambda q, k, c: torch.ones(len(k)).double() / len(k)),
                       "nobody judges"),
        "no scale": (pooling(lambda q, k, c: (k @ q[-1]).softmax(0)), "the scale is forgotten"),
        "not divided": (pooling(lambda q, k, c: (c * k @ q[-1]).exp()), "do not sum to 1"),
        "key judges": (pooling(lambda q, k, c: (c * k @ k[-1]).softmax(0)),
                       "it is the judge's query that asks"),
        "values scored anew":
            (lambda q, k, v, c: (pooled(k, q, c), pooled(v, q, c)), "values are scored anew"),
        "value from keys":
            (lambda q, k, v, c: (pooled(k, q, c), pooled(k, q, c)), "pooled from the keys"),
        "only a key": (lambda q, k, v, c: pooled(k, q, c), "wanted two"),
    },
    "03.3": {
        "one row late": (reads(lambda i, g, s: max(0, (i - s) // g)), "rows count from 0"),
        "rounded up": (reads(lambda i, g, s: max(0, -(-(i + 1 - s) // g))), "all must be"),
        "no window": (reads(lambda i, g, s: (i + 1) // g), "the window is forgotten"),
        "negative": (reads(lambda i, g, s: (i + 1 - s) // g), "max(0, ...)"),
        "C's division": (reads(lambda i, g, s: max(0, int((i + 1 - s - g) / g) + 1)),
                         "rounded towards zero"),
        "window only": (reads(right, lambda i, g, s, n: max(0, i + 1 - s)), "read by nobody"),
        "as printed": (reads(right, lambda i, g, s, n: max(0, g * n - 1)), "as printed"),
        "window mod row": (
            reads(right, lambda i, g, s, n: max(0, i + 1 - s - (i + 1) % g)), "(row + 1) mod g"),
        "counted from 1": (reads(right, lambda i, g, s, n: g * n + 1), "counted from 1"),
        "one number": (right, "wanted two"),
    },
    "03.8": {
        "padding of score 0": (partial(kernel, score=None), "exp(0) is 1"),
        "no mask at all": (partial(kernel, load_mask=False, score=None),
                           "the next group are pooled too"),
        "scores masked, loads not": (partial(kernel, load_mask=False), "may not be read at all"),
        "no scale": (lambda q, k, v, g, scale: kernel(q, k, v, g, 1.0), "the scale is forgotten"),
        "first query judges": (partial(kernel, judge="first"), "it is the last one"),
        "the tile's last query judges": (partial(kernel, judge="tile"), "not the group's"),
    },
}
