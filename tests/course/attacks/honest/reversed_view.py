# name: a reversed view of an array
import numpy as np

def intervals(length, sinks, group, window):
    rows = []
    last = max(0, (length - sinks - window) // group)
    for row in reversed(range(length)):
        n = max(0, (row + 1 - sinks - window) // group)
        rows.append([[0, n], [last, last + min(sinks, row + 1)],
                     [last + min(row + 1, sinks + group * n), last + row + 1]])
    return np.array(rows)[::-1]
