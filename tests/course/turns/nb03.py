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


def loop(q, k, v, group, window, scale, *, count=None, raw=lambda n, g, i, s: (g * n, i + 1),
         judge=-1, core_scale=None, row_scale=None, join=None):
    """CCA-Attention row by row, with the mistakes of the keywords."""
    cores = []
    for p in range(len(k) // group):
        x, y, z = (t[p * group : p * group + group] for t in (q, k, v))
        weights = ((core_scale or scale) * y @ x[judge]).softmax(0)
        cores.append((weights @ y, weights @ z))
    rows = []
    for i in range(len(k)):
        n = max(0, (i + 1 - window) // group)
        start, end = raw(n, group, i, window)
        seen = cores[: n if count is None else count(i, group)]
        sides = [[core[side] for core in seen] for side in (0, 1)]
        rows.append((join or joined)(q[i], *sides, k[start:end], v[start:end],
                                     row_scale or scale))
    return torch.stack(rows)


def joined(query, core_keys, core_values, keys, values, scale):
    """One softmax over both."""
    keys, values = torch.stack([*core_keys, *keys]), torch.stack([*core_values, *values])
    return (scale * keys @ query).softmax(0) @ values


def apart(query, core_keys, core_values, keys, values, scale, half=1.0):
    """Two softmaxes, added."""
    near = joined(query, [], [], keys, values, scale)
    if not core_keys:
        return near
    return half * (near + joined(query, core_keys, core_values, [], [], scale))


def dense_columns(q, k, v, group, window, scale, *, judge=-1, behind=True, own=True, late=False,
                  clamp=True, every=False, raw_first=False, first_raw=None):
    """The columns of CCA and its table, with the mistakes of the keywords."""
    row = torch.arange(len(k))
    n = (row + (0 if late else 1) - window) // group
    n = n.clamp(min=0) if clamp else n
    count = len(k) // group if every else max(0, (len(k) - window) // group)
    queries, keys, values = (x[: count * group].reshape(count, group, -1) for x in (q, k, v))
    weights = (scale * (keys @ queries[:, judge, :, None])[..., 0]).softmax(1)
    cores = [(weights[..., None] * x).sum(1) for x in (keys, values)]
    first = group * n if first_raw is None else first_raw(row, group, window)
    begin = count if behind else 0
    table = torch.stack([torch.stack([0 * n, n], 1),
                         torch.stack([begin + first, begin + row + own], 1)], 1)
    pairs = ((x, core) if raw_first else (core, x) for x, core in zip((k, v), cores, strict=True))
    return *(torch.cat(pair) for pair in pairs), table


def looped_columns(q, k, v, group, window, scale):
    """The right columns, by a loop over groups."""
    _, _, table = dense_columns(q, k, v, group, window, scale)
    cores = [((scale * k[p : p + group] @ q[p + group - 1]).softmax(0) @ k[p : p + group],
              (scale * k[p : p + group] @ q[p + group - 1]).softmax(0) @ v[p : p + group])
             for p in range(0, int(table[-1, 0, 1]) * group, group)]
    keys, values = zip(*cores, strict=True) if cores else ((), ())
    return torch.stack([*keys, *k]), torch.stack([*values, *v]), table


def softmax_of(scores, seen):
    return scores.masked_fill(~seen, -math.inf).softmax(1)


def masked(mask_of, weights_of=softmax_of):
    """Attention under the mask of columns (1, 1, N), starts and ends (L, n, 1) each."""
    def dense(q, keys, values, table, scale):
        column = torch.arange(len(keys))
        seen = mask_of(column, table[..., :1], table[..., 1:])
        return weights_of(scale * q @ keys.T, seen) @ values

    return dense


def inside(column, starts, ends):
    return ((column >= starts) & (column < ends)).any(1)


def tiled(q, keys, values, table, scale, *, rows=8, columns=4, seen_of=None, old=(1, 1),
          safe=True, running=True, base=math.e, cut=True):
    """The blocked form, with the mistakes of the keywords."""
    out = torch.zeros(len(q), values.shape[1], dtype=q.dtype)
    for begin in range(0, len(q), rows):
        block = q[begin : begin + rows]
        top = torch.full((len(block), 1), -math.inf if running else 0.0, dtype=q.dtype)
        total, sums = torch.zeros_like(top), torch.zeros(len(block), values.shape[1]).to(q)
        for interval in table[begin : begin + rows].unbind(1):
            starts, ends = interval[:, :1], interval[:, 1:]
            for left in range(int(starts[0]), int(ends[-1]), columns):
                right = min(left + columns, int(ends[-1]) if cut else len(keys))
                tile = torch.arange(left, right)
                seen = (seen_of or (lambda t, a, b: (t >= a) & (t < b)))(tile, starts, ends)
                scores = (scale * block @ keys[tile].T).masked_fill(~seen, -math.inf)
                new = torch.maximum(top, scores.amax(1, keepdim=True)) if running else top
                still = new.clamp(min=-1e30) if safe else new
                powers, factor = base ** (scores - still), base ** (top - still)
                total = factor ** old[0] * total + powers.sum(1, keepdim=True)
                sums = factor ** old[1] * sums + powers @ values[tile]
                top = new
        out[begin : begin + rows] = sums / total
    return out


BLOCKED = {
    "no mask": (dict(seen_of=lambda t, a, b: (t >= 0) & (b > -1)), "nothing is hidden inside"),
    "ends only": (dict(seen_of=lambda t, a, b: t < b), "only the ends are compared"),
    "starts only": (dict(seen_of=lambda t, a, b: t >= a), "only the starts are compared"),
    "nothing corrected": (dict(old=(0, 0)), "the old terms are not corrected"),
    "sum not corrected": (dict(old=(0, 1)), "the old sum is not corrected"),
    "output not corrected": (dict(old=(1, 0)), "the old weighted sum is not corrected"),
    "-inf minus -inf": (dict(safe=False), "-inf - (-inf) is NaN"),
}
kernel_tiles = partial(tiled, rows=16, columns=16)

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
    "03.6": {
        "two softmaxes": (partial(loop, join=apart), "the results are added"),
        "their mean": (partial(loop, join=partial(apart, half=0.5)), "the mean is taken"),
        "all cores": (partial(loop, count=lambda i, g: 99), "those of the future too"),
        "complete cores": (partial(loop, count=lambda i, g: (i + 1) // g), "inside its window"),
        "window alone": (partial(loop, count=lambda i, g: 0), "no row reads a core"),
        "not itself": (partial(loop, raw=lambda n, g, i, s: (min(g * n, i), max(i, 1))),
                       "its own token"),
        "all raw": (partial(loop, raw=lambda n, g, i, s: (0, i + 1)), "read twice"),
        "nearest only": (partial(loop, raw=lambda n, g, i, s: (max(0, i + 1 - s), i + 1)),
                         "are lost"),
        "as printed": (partial(loop, raw=lambda n, g, i, s: (max(0, g * n - 1), i + 1)),
                       "as printed"),
        "first judges": (partial(loop, judge=0), "it is the last one"),
        "cores unscaled": (partial(loop, core_scale=1.0), "missing in the cores"),
        "rows unscaled": (partial(loop, row_scale=1.0), "missing in the rows"),
        "keys for values": (partial(loop, join=lambda q, a, b, *rest: joined(q, a, a, *rest)),
                            "in the place of the core values"),
    },
    "03.8": {
        "first judges": (partial(dense_columns, judge=0), "it is the last one"),
        "tokens, not columns": (partial(dense_columns, behind=False), "so add C"),
        "without its own token": (partial(dense_columns, own=False), "so i + 1"),
        "one row late": (partial(dense_columns, late=True), "rows count from 0"),
        "negative": (partial(dense_columns, clamp=False), "negative entries"),
        "all groups": (partial(dense_columns, every=True), "only the groups that the last row"),
        "raw first": (partial(dense_columns, raw_first=True), "the cores do"),
        "window for the last core": (
            partial(dense_columns, first_raw=lambda i, g, s: (i + 1 - s).clamp(min=0)),
            "start where the last core ends"),
        "a loop over groups": (looped_columns, "still a loop over groups"),
    },
    "03.9": {
        "no mask": (masked(lambda c, a, b: (c >= 0).expand(len(a), -1)), "nothing is hidden"),
        "end included": (masked(lambda c, a, b: ((c >= a) & (c <= b)).any(1)), "so <"),
        "ends only": (masked(lambda c, a, b: (c < b).any(1)), "only the ends"),
        "starts only": (masked(lambda c, a, b: (c >= a).any(1)), "nothing is hidden"),
        "both at once": (masked(lambda c, a, b: ((c >= a) & (c < b)).all(1)), "OR in the other"),
        "second only": (masked(lambda c, a, b: inside(c, a[:, 1:], b[:, 1:])),
                        "only the second interval"),
        "weights times mask": (masked(inside, lambda x, seen: x.softmax(1) * seen),
                               "no longer sum to 1"),
        "scores times mask": (masked(inside, lambda x, seen: (x * seen).softmax(1)), "e^0 = 1"),
        "no scale": (lambda q, k, v, t, c: masked(inside)(q, k, v, t, 1.0),
                     "the scale is forgotten"),
    },
    "03.11": {what: (partial(tiled, **wrong), words)
              for what, (wrong, words) in BLOCKED.items()} | {
        "no scale": (lambda q, k, v, t, c: tiled(q, k, v, t, 1.0), "the scale is forgotten"),
        "no maximum": (partial(tiled, running=False), "subtract the largest score"),
    },
    "03.13": {
        "padding of score 0": (partial(kernel, score=None), "exp(0) is 1"),
        "no mask at all": (partial(kernel, load_mask=False, score=None),
                           "the next group are pooled too"),
        "scores masked, loads not": (partial(kernel, load_mask=False), "may not be read at all"),
        "no scale": (lambda q, k, v, g, scale: kernel(q, k, v, g, 1.0), "the scale is forgotten"),
        "first query judges": (partial(kernel, judge="first"), "it is the last one"),
        "the tile's last query judges": (partial(kernel, judge="tile"), "not the group's"),
    },    "03.14": {what: (partial(kernel_tiles, **wrong), words)
              for what, (wrong, words) in BLOCKED.items()} | {
        "no scale": (lambda q, k, v, t, c: kernel_tiles(q, k, v, t, 1.0),
                     "the scale is forgotten"),
        "powers of two of natural scores": (partial(kernel_tiles, base=2), "log2(e)"),
        "the causal kernel": (
            lambda q, k, v, t, c: masked(lambda i, a, b: i < b[:, 1])(q, k, v, t, c),
            "as in the causal kernel"),
        "raw tokens only": (lambda q, k, v, t, c: kernel_tiles(q, k, v, t[:, 1:], c),
                            "the loop over the intervals"),
        "loads behind the end": (partial(kernel_tiles, cut=False), "may not be loaded"),
    },
}
