"""a5: other right answers, and wrong ones with what they lose."""

from tests.course.kinds import Right, Wrong

FUTURE = "no row reads a later token"
ONCE = "every earlier token is read exactly once"
WINDOW = "the window is as long as it should be"
COUNTED = "tokens are counted, inside cores and raw"
EQUAL = "the output equals one matrix"
LARGE = "large scores do no harm"
LOADED = "only what a row reads is loaded"
SMALL, TRILLION = "equal to counting", "right for a trillion tokens"

RIGHT = [
    Right("loops instead of tensors", {
        "a5.2": '''
def intervals(length, sinks, group, window):
    cores = [max(0, (row + 1 - sinks - window) // group) for row in range(length)]
    table = torch.zeros(length, 3, 2, dtype=torch.long)
    for row, n in enumerate(cores):
        table[row, 0, 1] = n
        if row < sinks:  # the row's own token is a sink: all is in the window's interval
            table[row, 2] = torch.tensor([cores[-1], cores[-1] + row + 1])
        else:
            table[row, 1] = torch.tensor([cores[-1], cores[-1] + sinks])
            table[row, 2] = torch.tensor([cores[-1] + sinks + n * group, cores[-1] + row + 1])
    return table
''',
        "a5.3": '''
def read_counts(table, length, sinks, group, window):
    last = max(0, (length - sinks - window) // group)
    counts = torch.zeros(length, length, dtype=torch.long)
    for row, spans in enumerate(table.tolist()):
        for start, stop in spans:
            for column in range(start, stop):
                tokens = [column - last] if column >= last else range(sinks + column * group,
                                                                      sinks + (column + 1) * group)
                for token in tokens:
                    counts[row, token] += 1
    return counts
'''}),
    Right("numpy, and all scores of a row before one softmax of its own", {
        "a5.5": '''
import numpy

def blocked(q, table, load, tile, scale):
    out = []
    for query, spans in zip(q.numpy(), table.numpy()):
        scores, values = [], []
        for start, stop in spans:
            for begin in range(int(start), int(stop), tile):
                keys, more = load(begin, min(begin + tile, int(stop)))
                scores.append(scale * (keys.numpy() @ query))
                values.append(more.numpy())
        scores = numpy.concatenate(scores)
        weights = numpy.exp(scores - scores.max())
        out.append(weights @ numpy.concatenate(values) / weights.sum())
    return torch.tensor(numpy.stack(out))
''',
        "a5.4": '''
def printed_formula():
    return {"group": 5, "window": 1, "row": 9, "token": 5}
'''}),
]

WRONG = [
    Wrong("the sink is forgotten by hand", "a5.1", '"most raw tokens": 5', '"most raw tokens": 4',
          {"the numbers of the example": 0.5}, "most raw tokens"),
    Wrong("the window starts one token early", "a5.2",
          "start = torch.minimum(sinks + group * cores, row + 1)",
          "start = torch.minimum((sinks + group * cores - 1).clamp(min=0), row + "
          "1)", {ONCE: 2}, "twice, inside a core and raw"),
    Wrong("the row itself is left out", "a5.2", "raw + row + 1], dim",
          "raw + torch.maximum(row, start)], dim", {ONCE: 2, WINDOW: 2}, "never reads"),
    Wrong("one token of the future", "a5.2", "raw + row + 1], dim",
          "raw + (row + 2).clamp(max=length)], dim", {FUTURE: 2}, "comes later"),
    Wrong("a core one row early", "a5.2", "(row + 1 - sinks - window) // group",
          "(row + 2 - sinks - window) // group", {WINDOW: 2}, "too early"),
    Wrong("a core one row late, with C from the same formula", "a5.2",
          "(row + 1 - sinks - window) // group", "(row - sinks - window) // group", {WINDOW: 2},
          "too late"),
    Wrong("only C is wrong", "a5.2", "raw = int(cores[-1])", "raw = int(cores[-1]) + 1",
          {WINDOW: 2}, "how many cores does the *last* row read"),
    Wrong("plain causal attention", "a5.2", "((row + 1 - sinks - window) // group)", "(0 * row)",
          {FUTURE: 2, ONCE: 2, WINDOW: 2}, "its own token is column C"),
    Wrong("sinks twice in the first rows", "a5.2",
          "start = torch.minimum(sinks + group * cores, row + 1)",
          "start = torch.where(row < sinks, 0 * row, sinks + group * "
          "cores)", {ONCE: 2}, "as a sink and in the window"),
    Wrong("tokens inside cores are not counted", "a5.3", "+= seen[:, core, None]",
          "+= 0 * seen[:, core, None]", {COUNTED: 2}, "tokens inside cores are not counted"),
    Wrong("read or not, instead of how often", "a5.3", "return counts",
          "return counts.clamp(max=1)", {COUNTED: 2}, "instead of how often"),
    Wrong("an example that is none", "a5.4", '"token": 3', '"token": 4',
          {"the printed formulas read a token twice or never": 2}, "exactly once"),
    Wrong("the accumulator does not shrink", "a5.5", "out * shrink +", "out +",
          {EQUAL: 3, LARGE: 1, LOADED: 1}),
    Wrong("no running maximum", "a5.5", "new = max(top, scores.max().item())", "new = 0.0",
          {LARGE: 1}, "maximum"),
    Wrong("every column is loaded", "a5.5", "", '''
def blocked(q, table, load, tile, scale):
    count = int(table.max())
    parts = [[load(at, min(at + tile, count)) for at in range(0, count, tile)] for row in q]
    column = torch.arange(count)
    out = []
    for query, spans, part in zip(q, table, parts):
        keys, values = (torch.cat(side) for side in zip(*part))
        seen = ((column >= spans[:, :1]) & (column < spans[:, 1:])).any(0)
        out.append((scale * keys @ query).masked_fill(~seen, float("-inf")).softmax(0) @ values)
    return torch.stack(out)
''', {LOADED: 1}),
    Wrong("floating division", "a5.6", "cycles, rest = divmod(length - plain, group)",
          "cycles, rest = int((length - plain) / group), int((length - plain) % group)\n    total "
          "= float(total)", {TRILLION: 1}),
    Wrong("the last remainder is forgotten", "a5.6", " + rest * window + rest * (rest - 1) // 2",
          "", {SMALL: 1, TRILLION: 1, "no other group takes fewer pairs": 1}),
]
