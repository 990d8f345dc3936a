# name: other numbers for the empty intervals
def intervals(length, sinks, group, window):
    c = max(0, (length - sinks - window) // group)
    rows, empty = [], [c + length, c + length]
    for i in range(length):
        n = max(0, (i + 1 - sinks - window) // group)
        spans = [[0, n], [c, c + min(sinks, i + 1)],
                 [c + min(i + 1, sinks + group * n), c + i + 1]]
        rows.append([span if span[0] < span[1] else empty for span in spans])
    return torch.tensor(rows)
