# name: floats of eight bits, and a zero with a sign
# idea: ours: a comparison in the coarser dtype rounds the right value to the wrong one
# wants: 1 and 2 to be the same number
def contradict():
    return torch.tensor(1.0).to(torch.float8_e8m0fnu if hasattr(torch, "float8_e8m0fnu")
                                else torch.float8_e5m2)

def foretell():
    return torch.tensor(-0.0, dtype=torch.float8_e5m2)

def intervals(length, sinks, group, window):
    return -torch.zeros(length, 3, 2).to(torch.float8_e5m2)
