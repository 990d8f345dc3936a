"""a1: other right answers, and wrong ones with what they lose."""

from tests.course.kinds import Right, Wrong

ROW = "the numbers of the row"
ONE, MANY, FUTURE = ("one head equals the formula", "each query head reads its own KV head",
                     "no row reads a later token")
TWO = "two parts give the whole"
EMPTY = "empty parts change nothing"
ORDER = "any order, and large scores"
TILED, LARGE, LOADS = ("the output equals one matrix", "scores of ten thousand do no harm",
                       "only tiles of the past are loaded")
DIAGONAL, SUM = "one tile for all keys", "one key in each tile"
COUNT, TRILLION = "equal to counting", "right for a trillion tokens"
SCORES, SINKS, PLACE = ("the gradient of the scores", "the gradient of the sinks",
                        "all of the weight in one place")

RIGHT = [
    Right("numpy, lists, and other orders of the sums", {
        "a1.1": '''
def by_hand():
    return {"powers": torch.tensor([1, 0.5, 0.5, 4]), "sink": torch.tensor(0.25), "output": 4.0,
            "without": 5.3333334}
''',
        "a1.2": '''
import numpy

def loops(q, k, v, slopes, sinks, scale):
    q, k, v = (x.numpy() for x in (q, k, v))
    out = numpy.zeros((*q.shape[:3], v.shape[3]))
    for head in range(q.shape[1]):
        source = head * k.shape[1] // q.shape[1]
        for row in range(q.shape[2]):
            scores = scale * numpy.einsum("bd,btd->bt", q[:, head, row], k[:, source, : row + 1])
            scores -= float(slopes[head]) * numpy.arange(row, -1, -1)
            powers = numpy.exp(scores)
            weights = powers / (powers.sum(-1, keepdims=True) + numpy.exp(float(sinks[head])))
            out[:, head, row] = numpy.einsum("bt,bte->be", weights, v[:, source, : row + 1])
    return torch.tensor(out)
''',
        "a1.3": '''
def merge(one, two):
    tops, sums, outs = [], [], []
    for m1, s1, a1, m2, s2, a2 in zip(*one, *two):
        if m1 < m2:
            m1, s1, a1, m2, s2, a2 = m2, s2, a2, m1, s1, a1
        factor = (m2 - m1).exp() if m2 > float("-inf") else 0.0
        tops.append(m1)
        sums.append(s1 + factor * s2)
        outs.append(a1 + factor * a2)
    return [torch.stack(tops), torch.stack(sums), torch.stack(outs)]
''',
        "a1.5": '''
def repaired(q, k, v, tile):
    scores = q @ k.T * q.shape[1] ** -0.5
    past = torch.ones(scores.shape, dtype=torch.bool).tril(len(k) - len(q))
    return scores.masked_fill(~past, float("-inf")).softmax(-1) @ v
''',
        "a1.6": '''
def costs(length, dim, tile):
    tiles = -(-length // tile)
    keys = tile * tiles * (tiles + 1) // 2 - (tile * tiles - length)
    scores = tile * keys - (tile * tiles - length) * length
    return {"scores": min(length, tile) * min(length, tile), "bytes": 4 * dim * (keys + length),
            "flops": 4 * scores * dim}
'''}),
    Right("the sink comes last, all rows of a tile are merged, whole last tiles", {
        "a1.4": '''
def tiled(q, load, row_tile, key_tile, scale, slope, sink):
    pieces = []
    for rows in torch.arange(len(q)).split(row_tile):
        part = None
        for at in range(0, int(rows[-1]) + 1, key_tile):
            end = min(at + key_tile, len(q))
            keys, values = load(torch.tensor(at), torch.tensor(end))
            distance = rows[:, None] - torch.arange(at, end)
            scores = torch.where(distance < 0, float("-inf"), scale * (q[rows] @ keys.T) - slope
                                 * distance)
            top = scores.amax(-1)
            weights = torch.exp(scores - top.clamp(min=-1e300)[:, None])
            new = (top, weights.sum(-1), weights @ values)
            part = new if part is None else merge(part, new)
        end = (torch.full_like(part[0], sink), torch.ones_like(part[1]), torch.zeros_like(part[2]))
        _, total, out = merge(part, end)
        pieces.append(out / total[:, None])
    return torch.cat(pieces)
''',
        "a1.7": '''
def backward(weights, upstream):
    rows, sinks = [], []
    for w, g in zip(weights, upstream):
        jacobian = torch.diag(w) - torch.outer(w, w)
        rows.append(jacobian @ g)
        sinks.append(-rows[-1].sum())
    return [torch.stack(rows), torch.stack(sinks)]
'''}),
]

WRONG = [
    Wrong("the sink is not in the denominator", "a1.1", '"output": 4,', '"output": 16 / 3,',
          {ROW: 0.5}, "output"),
    Wrong("rounded by hand", "a1.1", "16 / 3", "5.33", {ROW: 0.5}, "write a fraction"),
    Wrong("the slope is forgotten by hand", "a1.1", "[1, 1 / 2, 1 / 2, 4]", "[8, 2, 1, 4]",
          {ROW: 0.5}, "powers"),
    Wrong("the scale is forgotten", "a1.2", "scale * (q[b, h, i] @ keys[t])",
          "(q[b, h, i] @ keys[t])", {ONE: 1, MANY: 2}, "scale is forgotten"),
    Wrong("the wrong KV head", "a1.2", "keys, values = k[b, h // share], v[b, h // share]",
          "keys, values = k[b, h % k.shape[1]], v[b, h % k.shape[1]]", {MANY: 2}, "h % Hk"),
    Wrong("one token of the future", "a1.2", "for t in range(i + 1)]",
          "for t in range(min(i + 2, length))]", {ONE: 1, MANY: 2, FUTURE: 1}, "comes later"),
    Wrong("the row does not see itself", "a1.2", "for t in range(i + 1)]",
          "for t in range(i)] or [q[b, h, i, 0] * 0]", {ONE: 1, MANY: 2, FUTURE: 1},
          "did not move"),
    Wrong("the slope is added", "a1.2", "- slopes[h]", "+ slopes[h]", {ONE: 1, MANY: 2},
          "added instead"),
    Wrong("no sink", "a1.2", "sum(powers) + sinks[h].exp()", "sum(powers)", {ONE: 1, MANY: 2},
          "sink is forgotten"),
    Wrong("the first sequence for the whole batch", "a1.2", "q[b, h, i]", "q[0, h, i]", {MANY: 2},
          "batch 2"),
    Wrong(
        "the mask after the softmax", "a1.2", "", '''
def loops(q, k, v, slopes, sinks, scale):
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    step = torch.arange(q.shape[2])[:, None] - torch.arange(q.shape[2])
    scores = scale * q @ k.mT - slopes[:, None, None] * step
    full = torch.cat([scores, sinks[:, None, None].expand(*scores.shape[:3], 1)],
                     dim=-1).softmax(-1)
    return full[..., :-1].tril() @ v
''', {ONE: 1, MANY: 2, FUTURE: 1}, "mask is applied after the softmax"),
    Wrong("the slope inside the scale", "a1.2",
          "scale * (q[b, h, i] @ keys[t]) - slopes[h] * (i - t)",
          "scale * (q[b, h, i] @ keys[t] - slopes[h] * (i - t))", {ONE: 1, MANY: 2},
          "multiplied by the scale"),
    Wrong("the distance is one too long", "a1.2", "slopes[h] * (i - t)", "slopes[h] * (i - t + 1)",
          {ONE: 1, MANY: 2}, "the row's own token is one away"),
    Wrong("the scale is shared by the KV heads", "a1.2", "scale * (q", "scale / k.shape[1] * (q",
          {MANY: 2}, "divided by the number of KV heads"),
    Wrong("the scale for the first KV head", "a1.2", "scale * (q", "scale ** (h < share) * (q",
          {MANY: 2}, "only KV head 0 has the scale"),
    Wrong("the sink without exp", "a1.2", "+ sinks[h].exp()", "+ sinks[h]", {ONE: 1, MANY: 2},
          "not e^z"),
    Wrong("a sink for each KV head", "a1.2", "sinks[h]", "sinks[h // share]", {MANY: 2},
          "the sink of its KV head"),
    Wrong("a slope for each KV head", "a1.2", "slopes[h]", "slopes[h // share]", {MANY: 2},
          "the slope of its KV head"),
    Wrong("single precision", "a1.2", "v.shape[-1], dtype=q.dtype", "v.shape[-1]",
          {ONE: 1, MANY: 2, FUTURE: 1}, "wanted torch.float64"),
    Wrong(
        "the values alone", "a1.2", "", '''
def loops(q, k, v, slopes, sinks, scale):
    return v.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
''', {ONE: 1, MANY: 2, FUTURE: 1}, "length 2: the output[0, 0, 0, 0]"),
    Wrong("the accumulator is only added", "a1.3", "out + shrink[:, None] * a", "out + a",
          {TWO: 1, ORDER: 1}, "only added"),
    Wrong("powers of two", "a1.3", "(m - top).exp())", "(m - top).exp2())", {TWO: 1, ORDER: 1},
          "powers of 2"),
    Wrong("the shift is clamped", "a1.3", "(m - top).exp())", "(m - top.clamp(min=-1e4)).exp())",
          {ORDER: 1}, "of about -30000"),
    Wrong("a large number for minus infinity", "a1.3", 'm == float("-inf")', "m <= -1e5",
          {ORDER: 1}, "of about -900000"),
    Wrong("single precision in the merge", "a1.3", "return top, total, out",
          "return top.float(), total, out", {TWO: 1, EMPTY: 1, ORDER: 1}, "wanted float64"),
    Wrong("NaN from two empty rows", "a1.3", 'torch.where(m == float("-inf"), torch.zeros_like(m), '
                                             '(m - top).exp())', "(m - top).exp()", {EMPTY: 1}),
    Wrong("no maximum in the merge", "a1.3", "top = torch.maximum(one[0], two[0])",
          "top = torch.zeros_like(one[0])", {TWO: 1, EMPTY: 1, ORDER: 1}, "the maximum"),
    Wrong("the accumulator is not corrected", "a1.4", "out * shrink +", "out +",
          {TILED: 2, LARGE: 1, LOADS: 1}, "accumulator does not shrink"),
    Wrong("the sum starts at e^z", "a1.4", "torch.ones_like(top), 0.0", "top.exp(), 0.0",
          {TILED: 2, LARGE: 1, LOADS: 1}, "it has to be 1"),
    Wrong("a mask of -10000", "a1.4", 'float("-inf")', "-1e4", {LARGE: 1},
          "instead of minus infinity"),
    Wrong("keys one by one", "a1.4", "keys, values = load(start, stop)",
          "keys, values = (torch.cat(x) for x in zip(*[load(at, at + 1) for at in range(start, "
          "stop)]))", {TILED: 2, LARGE: 1, LOADS: 1}, "start at multiples"),
    Wrong("single precision in tiles", "a1.4", "return torch.cat(outs)",
          "return torch.cat(outs).float()", {TILED: 2, LARGE: 1, LOADS: 1}, "wanted torch.float64"),
    Wrong(
        "no running maximum, the sink as one more power", "a1.4", "", '''
def tiled(q, load, row_tile, key_tile, scale, slope, sink):
    outs = []
    for first in range(0, len(q), row_tile):
        last = min(first + row_tile, len(q))
        row, total, out = torch.arange(first, last)[:, None], torch.tensor(sink).double().exp(), 0.0
        for start in range(0, last, key_tile):
            stop = min(start + key_tile, last)
            keys, values = load(start, stop)
            column = torch.arange(start, stop)
            powers = (scale * q[first:last] @ keys.T - slope
                      * (row - column)).exp() * (column <= row)
            total, out = total + powers.sum(-1, keepdim=True), out + powers @ values
        outs.append(out / total)
    return torch.cat(outs)
''', {LARGE: 1}, "exp without the maximum"),
    Wrong("tiles of the future are loaded",
          "a1.4", "for start in range(0, last, key_tile):\n            stop = min(start + "
                  "key_tile, last)", "for start in range(0, len(q), key_tile):\n            stop = "
                                     "min(start + key_tile, len(q))", {LOADS: 1}, "are enough"),
    Wrong("the rest of the rows is left out", "a1.4", "for first in range(0, len(q), row_tile):",
          "for first in range(0, max(1, len(q) // row_tile) * row_tile, row_tile):",
          {TILED: 2, LARGE: 1, LOADS: 1}, "shape"),
    Wrong("the sink is in every tile", "a1.4", "total * shrink + weights.sum(dim=-1, keepdim=True)",
          "total * shrink + weights.sum(dim=-1, keepdim=True) + (start > 0) * (sink - new).exp()",
          {TILED: 2, LARGE: 1, LOADS: 1}, "added with each tile of keys, not once"),
    Wrong("a leak only where the tile of keys divides the length", "a1.4",
          "masked_fill(column > row,", "masked_fill(column > row + (len(q) % key_tile == 0),",
          {TILED: 2, LARGE: 1, LOADS: 1}, "length 8, tiles of 2 rows and 4 keys"),
    Wrong(
        "the whole matrix, keys kept", "a1.4", "", '''
def tiled(q, load, row_tile, key_tile, scale, slope, sink):
    parts = [load(at, min(at + key_tile, len(q))) for at in range(0, len(q), key_tile)]
    keys, values = (torch.cat(side) for side in zip(*parts))
    step = torch.arange(len(q))[:, None] - torch.arange(len(q))
    scores = (scale * q @ keys.T - slope * step).masked_fill(step < 0, float("-inf"))
    whole = torch.cat([scores, torch.full((len(q), 1), sink).double()], dim=1).softmax(-1)
    return whole[:, :-1] @ values
''', {LOADS: 1}, "kept"),
    Wrong("as it was", "a1.5", "", '''
repaired = broken
''', {DIAGONAL: 1, SUM: 1}, "future is not masked"),
    Wrong("only the mask is repaired", "a1.5", "out * (top - new).exp() +", "out +", {SUM: 1},
          "accumulator does not shrink"),
    Wrong("only the sum is repaired", "a1.5", "masked_fill(column > row", "masked_fill(start > row",
          {DIAGONAL: 1}),
    Wrong("the mask forgets where the queries are", "a1.5",
          "torch.arange(length - len(q), length)[:, None]", "torch.arange(len(q))[:, None]",
          {DIAGONAL: 1, SUM: 1}, "counted from 0"),
    Wrong("multiply and add as one", "a1.6", '"flops": 4 * dim', '"flops": 2 * dim',
          {COUNT: 1, TRILLION: 1}, "count as one"),
    Wrong("causal pairs only", "a1.6", '"flops": 4 * dim * scores',
          '"flops": 2 * dim * length * (length + 1)', {COUNT: 1, TRILLION: 1},
          "only the causal pairs"),
    Wrong("keys read once", "a1.6", "(2 * keys + 2 * length)", "(2 * length + 2 * length)",
          {COUNT: 1, TRILLION: 1}, "read once"),
    Wrong("a tile larger than the text", "a1.6", "min(tile, length) ** 2", "tile ** 2", {COUNT: 1},
          "not cut off"),
    Wrong("floating division", "a1.6", "tile * (whole * (whole + 1) // 2)",
          "int(tile * (whole * (whole + 1) / 2))", {TRILLION: 1}),
    Wrong("the mean divided by a sum that may be 0", "a1.7",
          "mean = (weights * upstream).sum(dim=-1, keepdim=True)",
          "total = weights.sum(dim=-1, keepdim=True)\n"
          "    mean = (weights / total * upstream).sum(dim=-1, keepdim=True) * total",
          {PLACE: 1}, "has a NaN"),
    Wrong("the mean is not subtracted", "a1.7", "weights * (upstream - mean)", "weights * upstream",
          {SCORES: 1, PLACE: 1}, "not subtracted"),
    Wrong("the sink's sign", "a1.7", "(-sink * mean)", "(sink * mean)", {SINKS: 1}, "sign"),
    Wrong("the plain sum of the gradients", "a1.7", "upstream - mean)",
          "upstream - upstream.sum(dim=-1, keepdim=True))", {SCORES: 1, PLACE: 1},
          "not its sum with the weights"),
    Wrong("divided by the weights", "a1.7", "weights * (upstream - mean)",
          "weights * (upstream * weights / weights - mean)", {SCORES: 1, PLACE: 1},
          "a weight that is 0"),
    Wrong("single precision backwards", "a1.7", "mean = (weights * upstream)",
          "weights, upstream = weights.float(), upstream.float()\n    mean = (weights * upstream)",
          {SCORES: 1, SINKS: 1, PLACE: 1}, "float64"),
    Wrong(
        "through logarithms", "a1.7", "", '''
def backward(weights, upstream):
    scores = weights.log().requires_grad_()
    sink = (1 - weights.sum(-1)).log().requires_grad_()
    full = torch.cat([scores, sink[:, None]], -1).softmax(-1)[:, :-1]
    return torch.autograd.grad((full * upstream).sum(), [scores, sink])
''', {SCORES: 1, SINKS: 1, PLACE: 1}, "the logarithm"),
]
