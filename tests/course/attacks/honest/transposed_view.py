# name: a view that is not contiguous
def intervals(length, sinks, group, window):
    row = torch.arange(length)
    n = ((row + 1 - sinks - window) // group).clamp(min=0)
    c = n[-1].expand(length)
    start = torch.minimum(sinks + group * n, row + 1)
    stacked = torch.stack([torch.stack([0 * row, c, c + start]),
                           torch.stack([n, c + (row + 1).clamp(max=sinks), c + row + 1])])
    return stacked.permute(2, 1, 0)
