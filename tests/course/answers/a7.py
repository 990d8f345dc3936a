"""a7: other right answers, and wrong ones with what they lose."""

from tests.course.kinds import Right, Wrong

SUM, OWNER = "the sum, and nothing behind it", "each program does the blocks that are its own"
SEEN = "the softmax of the visible columns, and nothing behind it"
STRIDES = "any offset and strides"
HARD = "scores of 10000, and rows that see nothing"
ONE, SHARED = "cores of one head", "batches, and query heads that share a key head"
NAN = "NaN of other groups stays there"
TAIL, TILES, FAR = "a tile that is not full", "several tiles", "all of it, far from 0"
MATRIX, PARTS = "one head and one interval equal one matrix", "several intervals, some empty"
HEADS, LARGE = "shared key heads and a soft cap", "scores near 10000 do no harm"
TRAP = "what no row reads or is stays untouched"
COUNTED, BILLIONS = "equal to counting", "right for two billion tokens"

RIGHT = [
    Right("loops in torch, without a kernel: only a person can object", {
        "a7.2": '''
def scaled_sum(x, y, out, n, factor, block, programs):
    owner = [-1] * len(out)
    for i in range(n):
        out[i] = x[i] + factor * y[i]
        owner[i] = i // block % programs
    return [out, torch.tensor(owner, dtype=torch.int32)]
''',
        "a7.3": '''
def softmax_rows(memory, offset, strides, lengths, columns, out):
    out[:, :columns] = 0
    for row, length in enumerate(lengths.tolist()):
        scores = torch.stack([memory[offset + row * strides[0] + c * strides[1]]
                              for c in range(columns)])
        out[row, :length] = scores[:length].softmax(0)
    return out
''',
        "a7.4": '''
def pool(q, k, v, starts, scale):
    starts, shared = starts.tolist(), q.shape[2] // k.shape[2]
    cores = [torch.empty(len(k), k.shape[2], len(starts) - 1, k.shape[3], dtype=torch.float64)
             for _ in range(2)]
    for batch in range(len(k)):
        for head in range(k.shape[2]):
            for group, (first, end) in enumerate(zip(starts, starts[1:])):
                judge = q[batch, end - 1, head * shared : (head + 1) * shared].double().mean(0)
                weights = (scale * k[batch, first:end, head].double() @ judge).softmax(0)
                for core, x in zip(cores, (k, v)):
                    core[batch, head, group] = weights @ x[batch, first:end, head].double()
    return cores
''',
        "a7.5": '''
def lse_rows(x, block):
    return x.double().logsumexp(-1)
''',
        "a7.6": '''
def one_interval(q, k, v, table, out, scale, block_rows, block_columns):
    for row, (start, stop) in enumerate(table.tolist()):
        weights = (scale * k[start:stop].double() @ q[row].double()).softmax(0)
        out[row] = weights @ v[start:stop].double()
    return out
''',
        "a7.7": '''
def attention(q, k, v, table, out, scale, cap, block_rows, block_columns):
    for head in range(len(q)):
        for row, spans in enumerate(table.tolist()):
            columns = [c for start, stop in spans for c in range(start, stop)]
            keys, values = (x[head * len(k) // len(q)][columns].double() for x in (k, v))
            scores = scale * keys @ q[head, row].double()
            scores = scores if cap is None else cap * (scores / cap).tanh()
            out[head, row] = scores.softmax(0) @ values if columns else 0.0
    return out
'''}),
    Right("noisy within the tolerance, and other types", {
        "a7.1": '''
def by_hand():
    return {"programs": 3 * 2, "rows": (8, 9), "columns": (4, 5), "offset": 4 * 6 + 4, "program":
                (1, 1),
            "masked": 96 - 60}
''',
        "a7.2": '''
def scaled_sum(x, y, out, n, factor, block, programs):
    out = out.double()
    out[:n] = (x + factor * y)[:n] * (1 + 1e-6)
    place = torch.arange(len(out))
    return out, torch.where(place < n, place // block % programs, -1).to(torch.int16)
''',
        "a7.8": '''
import math

def tiles_read(length, group, window, block_rows, block_columns):
    count = 0
    for block in range(math.ceil(length / block_rows)):
        first, end = block * block_rows, min(length, (block + 1) * block_rows)
        cores = (end - window) // group if end >= window + group else 0
        raw = end - ((first + 1 - window) // group * group if first + 1 >= window + group else 0)
        count += math.ceil(cores / block_columns) + math.ceil(raw / block_columns)
    return torch.tensor(count)
'''}),
]

WRONG = [
    Wrong("an offset without its column", "a7.1", '"offset": 28', '"offset": 24',
          {"the numbers of the launch": 2 - 1.67}, "offset"),
    Wrong("a store without a mask", "a7.2", "x + factor * y, mask=inside)", "x + factor * y)",
          {SUM: 1}, "Is the store masked?"),
    Wrong("one block for each program", "a7.2", "range(program, tl.cdiv(n, BLOCK), PROGRAMS)",
          "range(program, program + 1)", {SUM: 1, OWNER: 1}, "every program does only one block"),
    Wrong("neighbouring blocks", "a7.2",
          "for block in range(program, tl.cdiv(n, BLOCK), PROGRAMS):",
          "each = tl.cdiv(tl.cdiv(n, BLOCK), PROGRAMS)\n    for block in range(program * each, "
          "tl.minimum((program + 1) * each, tl.cdiv(n, BLOCK))):",
          {OWNER: 1}, "a program does neighbouring blocks"),
    Wrong("the factor is forgotten", "a7.2", "x + factor * y", "x + y", {SUM: 1},
          "not multiplied by the factor"),
    Wrong("padding of 0 instead of -inf", "a7.3", 'other=float("-inf")', "other=0.0",
          {SEEN: 1, STRIDES: 1, HARD: 1}, "scores of 0"),
    Wrong("no maximum", "a7.3", "tl.exp(scores - top)", "tl.exp(scores)", {HARD: 1},
          "its maximum not subtracted"),
    Wrong("a row of length 0 is NaN", "a7.3", "tl.where(length > 0, tl.max(scores, 0), 0.0)",
          "tl.max(scores, 0)", {HARD: 1}, "nan"),
    Wrong("the whole tile is stored", "a7.3", ", mask=column < columns)", ")",
          {SEEN: 1, STRIDES: 1, HARD: 1}, "Is the store masked?"),
    Wrong("strides as of a contiguous matrix", "a7.3", "row * stride_row + column * stride_column",
          "row * columns + column", {STRIDES: 1}, "strides"),
    Wrong("padding takes part in the softmax", "a7.4",
          'scores = tl.where(token < end, scores, float("-inf"))', "pass",
          {ONE: 1, SHARED: 1, NAN: 1}, "with scores of 0"),
    Wrong("the tile is loaded without the group's end", "a7.4", "(token < end)[:, None]",
          "(token < L)[:, None]", {NAN: 1}, "nan"),
    Wrong("the scale is lost", "a7.4", "(scale / (H // HK))", "(1.0 / (H // HK))",
          {ONE: 1, SHARED: 1, NAN: 1}, "the scale is lost"),
    Wrong("the first query judges", "a7.4", "(batch * L + end - 1)", "(batch * L + first)",
          {ONE: 1, SHARED: 1, NAN: 1}, "first query judges"),
    Wrong("queries are added", "a7.4", "(scale / (H // HK))", "scale", {SHARED: 1, NAN: 1},
          "added, not averaged"),
    Wrong("every H-th head shares", "a7.4", "head * (H // HK) + shared", "shared * HK + head",
          {SHARED: 1}, "h % Hk"),
    Wrong("only the tail is mended", "a7.5", 'tl.full([], float("-inf"), dtype=tl.float32)',
          "tl.full([], 0.0, dtype=tl.float32)", {FAR: 1}, "inf"),
    Wrong("the tail is not mended", "a7.5", 'mask=column < columns, other=float("-inf")',
          "mask=column < columns, other=0.0", {TAIL: 1, FAR: 1}, "count as scores of 0"),
    Wrong("the sum is not corrected", "a7.5", "total * tl.exp(top - higher)", "total",
          {TILES: 1, FAR: 1}),
    Wrong("all as it was", "a7.5", "", "lse_rows = broken_lse", {TAIL: 1, TILES: 1, FAR: 1}),
    Wrong("no running maximum", "a7.6", "higher = tl.maximum(top, tl.max(scores, 1))",
          "higher = tl.zeros_like(top)", {LARGE: 1}, "maximum subtracted"),
    Wrong("a row that has seen nothing yet is NaN", "a7.6",
          'tl.where(higher == float("-inf"), 0.0, higher)', "higher", {MATRIX: 2, LARGE: 1}, "nan"),
    Wrong("the scale is lost", "a7.6", 'input_precision="ieee") * scale', 'input_precision="ieee")',
          {MATRIX: 2, LARGE: 1}, "the scale is lost"),
    Wrong("rows behind the last are stored", "a7.6", "d[None, :], result, mask=there)",
          "d[None, :], result, mask=(rows >= 0)[:, None] & (d < D)[None, :])",
          {MATRIX: 2, LARGE: 1}, "Is the store masked?"),
    Wrong("no running maximum", "a7.7", "higher = tl.maximum(top, tl.max(scores, 1))",
          "higher = tl.zeros_like(top)", {PARTS: 1}, "maximum subtracted"),
    Wrong("a row that reads nothing is NaN", "a7.7", "tl.where(total > 0, total, 1.0)", "total",
          {PARTS: 1, TRAP: 1}, "nan"),
    Wrong("query heads share in turn", "a7.7", "head // SHARED * N",
          "head % (tl.num_programs(1) // SHARED) * N", {HEADS: 1}, "h % Hk"),
    Wrong("the soft cap is lost", "a7.7", "CAPPED=cap is not None", "CAPPED=False",
          {HEADS: 1, TRAP: 1}, "the soft cap is lost"),
    Wrong("the scale is lost", "a7.7", 'tl.trans(k), input_precision="ieee") * scale',
          'tl.trans(k), input_precision="ieee")',
          {PARTS: 1, HEADS: 1, TRAP: 1}, "the scale is lost"),
    Wrong("rows behind the last are stored", "a7.7", "d[None, :], result, mask=there)",
          "d[None, :], result, mask=(rows >= 0)[:, None] & (d < D)[None, "
          ":])", {TRAP: 1}, "Is the store masked?"),
    Wrong("the last row speaks for its block", "a7.8", "max(0, (first + 1 - window) // group)",
          "max(0, (last + 1 - window) // group)", {COUNTED: 1, BILLIONS: 1},
          "only the last row of a block counts"),
    Wrong("tiles counted in single precision", "a7.8", "count = 0", "count = torch.tensor(0.0)",
          {BILLIONS: 1}),
]
