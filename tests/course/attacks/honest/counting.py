# name: core by core instead of row by row
def intervals(length, sinks, group, window):
    n = torch.zeros(length, dtype=torch.long)
    core = 0
    while (first := sinks + (core + 1) * group + window - 1) < length:
        n[first:] += 1
        core += 1
    token = torch.arange(1, length + 1)
    ends = torch.stack([n, core + token.clamp(max=sinks), core + token], 1)
    begins = torch.stack([0 * n, core + 0 * n, core + torch.minimum(token, sinks + group * n)], 1)
    return torch.stack([begins, ends], 2)
