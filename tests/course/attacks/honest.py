# Right answers of a5.2 that look unusual.
import functools
import math
import pickle
import sys
import warnings
from dataclasses import dataclass
from fractions import Fraction

import torch


class Table:
    def __call__(self, length, sinks, group, window):
        row = torch.arange(length)
        n = torch.div(row + 1 - sinks - window, group, rounding_mode="floor").clamp(min=0)
        c, zero = n[-1], torch.zeros_like(row)
        parts = [zero, n, zero + c, c + (row + 1).clamp(max=sinks),
                 c + torch.minimum(row + 1, sinks + group * n), c + row + 1]
        return torch.stack(parts, 1).view(length, 3, 2)


callable_object = Table()


@dataclass
class Row:
    cores: int
    sinks: int
    start: int
    stop: int


def pickled_and_noisy(length, sinks, group, window):
    warnings.warn("this prints a line")
    print("\r1 of 3 |###   |", end="", file=sys.stderr)
    c = max(0, (length - sinks - window) // group)
    rows = []
    for i in range(length):
        n = max(0, math.floor(Fraction(i + 1 - sinks - window, group)))
        rows.append(Row(n, min(sinks, i + 1), min(i + 1, sinks + group * n), i + 1))
    rows = pickle.loads(pickle.dumps(rows))
    return torch.tensor([[[0, r.cores], [c, c + r.sinks], [c + r.start, c + r.stop]] for r in rows])


def other_empties(length, sinks, group, window):
    c = max(0, (length - sinks - window) // group)
    rows, empty = [], [c + length, c + length]
    for i in range(length):
        n = max(0, (i + 1 - sinks - window) // group)
        spans = [[0, n], [c, c + min(sinks, i + 1)],
                 [c + min(i + 1, sinks + group * n), c + i + 1]]
        rows.append([span if span[0] < span[1] else empty for span in spans])
    return torch.tensor(rows)


@functools.cache
def cores(row, sinks, group, window):
    return max(0, (row + 1 - sinks - window) // group)


def cached_view(length, sinks, group, window):
    row = torch.arange(length)
    n = torch.tensor([cores(i, sinks, group, window) for i in range(length)])
    c = n[-1].expand(length)
    start = torch.minimum(sinks + group * n, row + 1)
    stacked = torch.stack([torch.stack([0 * row, c, c + start]),
                           torch.stack([n, c + (row + 1).clamp(max=sinks), c + row + 1])])
    return stacked.permute(2, 1, 0)
