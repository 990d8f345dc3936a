# name: a dataclass that is pickled on the way
import pickle
from dataclasses import dataclass

@dataclass
class Row:
    cores: int
    sinks: int
    start: int
    stop: int

def intervals(length, sinks, group, window):
    c = max(0, (length - sinks - window) // group)
    rows = []
    for i in range(length):
        n = max(0, (i + 1 - sinks - window) // group)
        rows.append(Row(n, min(sinks, i + 1), min(i + 1, sinks + group * n), i + 1))
    rows = pickle.loads(pickle.dumps(rows))
    return torch.tensor([[[0, r.cores], [c, c + r.sinks], [c + r.start, c + r.stop]] for r in rows])
