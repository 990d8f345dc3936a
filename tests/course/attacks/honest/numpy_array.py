# name: numpy, returned as an array
import numpy as np

def intervals(length, sinks, group, window):
    row = np.arange(length)
    n = np.maximum(0, (row + 1 - sinks - window) // group)
    c, zero = n[-1], np.zeros_like(row)
    start = c + np.minimum(row + 1, sinks + group * n)
    return np.stack([zero, n, zero + c, c + np.minimum(row + 1, sinks), start, c + row + 1],
                    axis=1).reshape(length, 3, 2)
