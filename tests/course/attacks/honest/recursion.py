# name: recursion over the rows
def _rows(row, sinks, group, window, last):
    if row < 0:
        return []
    n = max(0, (row + 1 - sinks - window) // group)
    return _rows(row - 1, sinks, group, window, last) + [
        [[0, n], [last, last + min(sinks, row + 1)],
         [last + min(row + 1, sinks + group * n), last + row + 1]]]

def intervals(length, sinks, group, window):
    return torch.tensor(_rows(length - 1, sinks, group, window,
                              max(0, (length - sinks - window) // group)))
