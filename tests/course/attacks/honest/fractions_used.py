# name: exact fractions
from fractions import Fraction
import math

def intervals(length, sinks, group, window):
    def n(i):
        return max(0, math.floor(Fraction(i + 1 - sinks - window, group)))
    c = n(length - 1)
    flat = [x for i in range(length) for x in (0, n(i), c, c + min(sinks, i + 1),
            c + min(i + 1, sinks + group * n(i)), c + i + 1)]
    return torch.LongTensor(flat).reshape(-1, 3, 2)
