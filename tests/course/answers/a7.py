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
    Right("other kernels: two passes, one token or one column at a time, base 2", {
        "a7.3": '''
@triton.jit
def two_passes(SCORES, LENGTHS, OUT, stride_row, stride_column, stride_out, columns):
    row = tl.program_id(0)
    length = tl.load(LENGTHS + row)
    top = tl.full([], float("-inf"), dtype=tl.float32)
    total = tl.full([], 0.0, dtype=tl.float32)
    for column in range(0, length):
        score = tl.load(SCORES + row * stride_row + column * stride_column) * 1.4426950408889634
        higher = tl.maximum(top, score)
        total = total * tl.exp2(top - higher) + tl.exp2(score - higher)
        top = higher
    for column in range(0, columns):
        score = tl.load(SCORES + row * stride_row + column * stride_column, mask=column < length,
                        other=0.0) * 1.4426950408889634
        if column < length:
            tl.store(OUT + row * stride_out + column, tl.exp2(score - top) / total)
        else:
            tl.store(OUT + row * stride_out + column, 0.0)


def softmax_rows(memory, offset, strides, lengths, columns, out):
    two_passes[(len(lengths),)](memory[offset:], lengths, out, *strides, out.stride(0), columns)
    return out
''',
        "a7.4": '''
@triton.jit
def token_by_token(Q, K, V, STARTS, CORES, L, scale, H: tl.constexpr, HK: tl.constexpr,
                   D: tl.constexpr,
                   BLOCK: tl.constexpr):
    group, batch, head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first, end = tl.load(STARTS + group), tl.load(STARTS + group + 1)
    d = tl.arange(0, BLOCK)
    shared = tl.arange(0, H)
    mine = (shared // (H // HK) == head)[:, None] & (d < D)[None, :]
    query = tl.load(Q + ((batch * L + end - 1) * H + shared[:, None]) * D + d[None, :], mask=mine,
                    other=0.0)
    query = tl.sum(query, 0) / (H // HK) * scale
    top = tl.full([], float("-inf"), dtype=tl.float32)
    total = tl.full([], 0.0, dtype=tl.float32)
    core_k = tl.zeros([BLOCK], dtype=tl.float32)
    core_v = tl.zeros([BLOCK], dtype=tl.float32)
    for token in range(first, end):
        place = ((batch * L + token) * HK + head) * D + d
        k = tl.load(K + place, mask=d < D, other=0.0)
        v = tl.load(V + place, mask=d < D, other=0.0)
        score = tl.sum(k * query, 0)
        higher = tl.maximum(top, score)
        shrink, weight = tl.exp(top - higher), tl.exp(score - higher)
        total = total * shrink + weight
        core_k = core_k * shrink + weight * k
        core_v = core_v * shrink + weight * v
        top = higher
    core = ((batch * HK + head) * tl.num_programs(0) + group) * D + d
    size = tl.num_programs(1) * HK * tl.num_programs(0) * D
    tl.store(CORES + core, core_k / total, mask=d < D)
    tl.store(CORES + size + core, core_v / total, mask=d < D)


def pool(q, k, v, starts, scale):
    batch, length, heads, dim = q.shape
    heads = triton.next_power_of_2(heads) if heads & (heads - 1) == 0 else heads
    if heads & (heads - 1):  # tl.arange wants a power of two
        q = torch.nn.functional.pad(q.unflatten(2, (k.shape[2], -1)).mean(3), (0, 0, 0, 0))
        heads = k.shape[2]
    cores = torch.full((2, batch, k.shape[2], len(starts) - 1, dim), 7.0)
    token_by_token[(len(starts) - 1, batch, k.shape[2])](
        q.contiguous(), k, v, starts, cores, length, scale, H=heads, HK=k.shape[2], D=dim,
        BLOCK=triton.next_power_of_2(dim))
    return cores[0], cores[1]
''',
        "a7.6": '''
def one_interval(q, k, v, table, out, scale, block_rows, block_columns):
    return attention(q[None], k[None], v[None], table[:, None], out[None], scale, None, block_rows,
                     block_columns)[0]
''',
        "a7.7": '''
@triton.jit
def one_row(Q, K, V, TABLE, OUT, L, N, scale, cap, stride_out, SHARED, n, CAPPED: tl.constexpr,
            D: tl.constexpr,
            BLOCK_D: tl.constexpr, BLOCK: tl.constexpr):
    row, head = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, BLOCK_D)
    q = tl.load(Q + (head * L + row) * D + d, mask=d < D, other=0.0)
    top = tl.full([], -1e30, dtype=tl.float32)
    total = tl.full([], 0.0, dtype=tl.float32)
    accumulator = tl.zeros([BLOCK_D], dtype=tl.float32)
    for part in range(n):
        start = tl.load(TABLE + (row * n + part) * 2)
        stop = tl.load(TABLE + (row * n + part) * 2 + 1)
        for first in range(start, stop, BLOCK):
            column = first + tl.arange(0, BLOCK)
            inside = (column < stop)[:, None] & (d < D)[None, :]
            place = (head // SHARED * N + column[:, None]) * D + d[None, :]
            scores = tl.sum(tl.load(K + place, mask=inside, other=0.0) * q[None, :], 1) * scale
            if CAPPED:
                scores = cap * (2 * tl.sigmoid(2 * scores / cap) - 1)
            scores = tl.where(column < stop, scores, float("-inf"))
            higher = tl.maximum(top, tl.max(scores, 0))
            weights = tl.exp(scores - higher)
            values = tl.load(V + place, mask=inside, other=0.0)
            total = total * tl.exp(top - higher) + tl.sum(weights, 0)
            accumulator = accumulator * tl.exp(top - higher) + tl.sum(weights[:, None] * values, 0)
            top = higher
    tl.store(OUT + head * stride_out + row * D + d, accumulator / tl.maximum(total, 1e-30),
             mask=d < D)


def attention(q, k, v, table, out, scale, cap, block_rows, block_columns):
    one_row[(q.shape[1], len(q))](
        q, k, v, table, out, q.shape[1], k.shape[1], scale, cap or 1.0, out.stride(0),
        len(q) // len(k),
        table.shape[1], CAPPED=bool(cap), D=q.shape[2], BLOCK_D=triton.next_power_of_2(q.shape[2]),
        BLOCK=8)
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
    Wrong("only what is seen is stored", "a7.3", ", mask=column < columns)",
          ", mask=column < length)", {SEEN: 1, STRIDES: 1, HARD: 1}),
    Wrong("strides as of a contiguous matrix", "a7.3", "row * stride_row + column * stride_column",
          "row * columns + column", {STRIDES: 1}, "strides"),
    Wrong("padding takes part in the softmax", "a7.4",
          'scores = tl.where(token < end, scores, float("-inf"))', "pass",
          {ONE: 1, SHARED: 1, NAN: 1}, "with scores of 0"),
    Wrong("the tile is loaded without the group's end", "a7.4", "(token < end)[:, None]",
          "(token < L)[:, None]", {NAN: 1}, "nan"),
    Wrong(
        "the next group takes part", "a7.4", "tl.load(STARTS + group), tl.load(STARTS + group + 1)",
        "tl.load(STARTS + group), tl.load(STARTS + group) + BLOCK_T", {ONE: 1, SHARED: 1, NAN: 1}),
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
    Wrong("the last block of rows is forgotten", "a7.6", "(triton.cdiv(length, block_rows),)",
          "(max(1, length // block_rows),)", {MATRIX: 2, LARGE: 1}),
    Wrong("no running maximum", "a7.6", "higher = tl.maximum(top, tl.max(scores, 1))",
          "higher = tl.zeros_like(top)", {LARGE: 1}, "maximum subtracted"),
    Wrong("the accumulator is not corrected", "a7.6", "accumulator * shrink[:, None]",
          "accumulator", {MATRIX: 2, LARGE: 1}),
    Wrong("a row that has seen nothing yet is NaN", "a7.6",
          'tl.where(higher == float("-inf"), 0.0, higher)', "higher", {MATRIX: 2, LARGE: 1}, "nan"),
    Wrong("the stop is read as well", "a7.6", "(columns[None, :] < stops[:, None])",
          "(columns[None, :] <= stops[:, None])", {MATRIX: 2, LARGE: 1}),
    Wrong("the scale is lost", "a7.6", 'input_precision="ieee") * scale', 'input_precision="ieee")',
          {MATRIX: 2, LARGE: 1}, "the scale is lost"),
    Wrong("starts never move back", "a7.6", "range(tl.min(starts, 0),",
          "range(tl.load(TABLE + tl.program_id(0) * BLOCK_M * 2),", {MATRIX: 2, LARGE: 1}),
    Wrong("rows behind the last are stored", "a7.6", "d[None, :], result, mask=there)",
          "d[None, :], result, mask=(rows >= 0)[:, None] & (d < D)[None, :])",
          {MATRIX: 2, LARGE: 1}, "Is the store masked?"),
    Wrong("the last block of rows is forgotten", "a7.7", "(triton.cdiv(length, block_rows), heads)",
          "(max(1, length // block_rows), heads)",
          {PARTS: 1, HEADS: 1, TRAP: 1}),
    Wrong("a program's rows begin one early", "a7.7", "tl.program_id(0) * BLOCK_M +",
          "tl.maximum(tl.program_id(0) * BLOCK_M - 1, 0) +", {TRAP: 1}),
    Wrong("no running maximum", "a7.7", "higher = tl.maximum(top, tl.max(scores, 1))",
          "higher = tl.zeros_like(top)", {PARTS: 1}, "maximum subtracted"),
    Wrong("the accumulator is not corrected", "a7.7", "accumulator * shrink[:, None]",
          "accumulator", {PARTS: 1, HEADS: 1, TRAP: 1}),
    Wrong("a row that has seen nothing yet is NaN", "a7.7",
          'tl.where(higher == float("-inf"), 0.0, higher)', "higher",
          {PARTS: 1, HEADS: 1, TRAP: 1}, "nan"),
    Wrong("a row that reads nothing is NaN", "a7.7", "tl.where(total > 0, total, 1.0)", "total",
          {PARTS: 1, TRAP: 1}, "nan"),
    Wrong("query heads share in turn", "a7.7", "head // SHARED * N",
          "head % (tl.num_programs(1) // SHARED) * N", {HEADS: 1}, "h % Hk"),
    Wrong("only one interval", "a7.7", "INTERVALS=table.shape[1]", "INTERVALS=1",
          {PARTS: 1, HEADS: 1, TRAP: 1}),
    Wrong("the last interval is forgotten", "a7.7", "for part in range(INTERVALS):",
          "for part in range(max(INTERVALS - 1, 1)):", {PARTS: 1, HEADS: 1, TRAP: 1}),
    Wrong("the stop is read as well", "a7.7", "(columns[None, :] < stops[:, None])",
          "(columns[None, :] <= stops[:, None])",
          {PARTS: 1, HEADS: 1, TRAP: 1}),
    Wrong("the cap comes after the mask", "a7.7", '''            if CAPPED:
                scores = cap * (1 - 2 / (tl.exp(2 * scores / cap) + 1))
            scores = tl.where(seen, scores, float("-inf"))''',
          '''            scores = tl.where(seen, scores, float("-inf"))
            if CAPPED:
                scores = cap * (1 - 2 / (tl.exp(2 * scores / cap) + 1))''', {HEADS: 1, TRAP: 1}),
    Wrong("the soft cap is lost", "a7.7", "CAPPED=cap is not None", "CAPPED=False",
          {HEADS: 1, TRAP: 1}, "the soft cap is lost"),
    Wrong("the scale is lost", "a7.7", 'tl.trans(k), input_precision="ieee") * scale',
          'tl.trans(k), input_precision="ieee")',
          {PARTS: 1, HEADS: 1, TRAP: 1}, "the scale is lost"),
    Wrong("starts never move back", "a7.7", "range(tl.min(starts, 0), tl.max(stops, 0), BLOCK_N)",
          "range(tl.load(TABLE + (tl.program_id(0) * BLOCK_M * INTERVALS + part) * 2), "
          "tl.max(stops, 0), BLOCK_N)", {PARTS: 1, HEADS: 1, TRAP: 1}),
    Wrong("columns of a tile that no row reads are loaded", "a7.7",
          "needed = (tl.max(seen.to(tl.int32), 0) > 0)[:, None]", "needed = (columns < N)[:, None]",
          {TRAP: 1}, "nan"),
    Wrong("rows behind the last are stored", "a7.7", "d[None, :], result, mask=there)",
          "d[None, :], result, mask=(rows >= 0)[:, None] & (d < D)[None, "
          ":])", {TRAP: 1}, "Is the store masked?"),
    Wrong("the last row speaks for its block", "a7.8", "max(0, (first + 1 - window) // group)",
          "max(0, (last + 1 - window) // group)", {COUNTED: 1, BILLIONS: 1},
          "only the last row of a block counts"),
    Wrong("rounded down", "a7.8", "-(-cores // block_columns)", "cores // block_columns",
          {COUNTED: 1, BILLIONS: 1}),
    Wrong("tiles counted in single precision", "a7.8", "count = 0", "count = torch.tensor(0.0)",
          {BILLIONS: 1}),
    Wrong("raw tokens and cores in one", "a7.8", "-(-cores // block_columns) + -(-(last + 1 - "
                                                 "start) // block_columns)",
          "-(-(cores + last + 1 - start) // block_columns)", {COUNTED: 1, BILLIONS: 1}),
]
