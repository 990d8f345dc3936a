# name: a cache and a decorator
import functools

@functools.lru_cache(maxsize=None)
def _cores(row, sinks, group, window):
    return max(0, (row + 1 - sinks - window) // group)

def logged(function):
    @functools.wraps(function)
    def inner(*args):
        print("called with", args)
        return function(*args)
    return inner

@logged
def intervals(length, sinks, group, window):
    c = _cores(length - 1, sinks, group, window)
    out = torch.empty(length, 3, 2, dtype=torch.int64)
    for i in range(length):
        n = _cores(i, sinks, group, window)
        out[i, 0], out[i, 1] = torch.tensor([0, n]), torch.tensor([c, c + min(sinks, i + 1)])
        out[i, 2] = torch.tensor([c + min(i + 1, sinks + group * n), c + i + 1])
    return out
