"""a5: another right answer; wrong ones stand in the tables of the exercises."""

RIGHT = {
    "loops instead of tensors, and another example": {
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
''',
        "a5.4": '''
def printed_formula():
    return {"group": 5, "window": 1, "row": 9, "token": 5}
'''},
}
