# name: prints, warnings and a progress bar
import sys, warnings

def intervals(length, sinks, group, window):
    warnings.warn("this prints a line")
    for i in range(3):
        print(f"\r{i} of 3 |###   |", end="", file=sys.stderr)
    print("done")
    n = lambda row: max(0, (row + 1 - sinks - window) // group)
    c = n(length - 1)
    return torch.tensor([[(0, n(i)), (c, c + min(sinks, i + 1)),
                          (c + min(i + 1, sinks + group * n(i)), c + i + 1)]
                         for i in range(length)])
