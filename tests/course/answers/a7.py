"""a7: other right answers; wrong ones stand in the tables of the exercises."""

RIGHT = {
    "in torch, without a kernel: only a person can object; noisy, and in other types": {
        "a7.1": '''
def by_hand():
    return {"programs": 3 * 2, "rows": (8, 9), "columns": (4, 5), "offset": 4 * 6 + 4,
            "program": (1, 1), "masked": 96 - 60}
''',
        "a7.3": '''
def attention(q, k, v, table, out, scale, cap, block_rows, block_columns):
    for head in range(len(q)):
        for row, spans in enumerate(table.tolist()):
            columns = [c for start, stop in spans for c in range(start, stop)]
            keys, values = (x[head * len(k) // len(q)][columns].double() for x in (k, v))
            scores = scale * keys @ q[head, row].double()
            scores = scores if cap is None else cap * (scores / cap).tanh()
            out[head, row] = scores.softmax(0) @ values if columns else 0.0
    return out
''',
        "a7.4": '''
import math

def tiles_read(length, group, window, block_rows, block_columns):
    count = 0
    for block in range(math.ceil(length / block_rows)):
        first, end = block * block_rows, min(length, (block + 1) * block_rows)
        cores = (end - window) // group if end >= window + group else 0
        raw = end - ((first + 1 - window) // group * group if first + 1 >= window + group else 0)
        count += math.ceil(cores / block_columns) + math.ceil(raw / block_columns)
    return torch.tensor(count)
'''},
}
