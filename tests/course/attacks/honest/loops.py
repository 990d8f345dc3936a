# name: loops instead of tensors
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
