"""Wrong answers to the turns of notebook 00_start_here."""

import torch


def matrix(length, group, raw_first=False, weight=None, strided=False, incomplete=False, raw=True,
           late=0):
    count = -(-length // group) if incomplete else length // group
    pooled = torch.zeros(count, length).double()
    for p in range(count):
        for t in range(length):
            member = t % count == p and t < count * group if strided else (t - late) // group == p
            pooled[p, t] = (weight or 1 / group) * member
    if not raw:
        return pooled
    rows = [pooled, torch.eye(length).double()]
    return torch.cat(rows[::-1] if raw_first else rows)


def wrong(**mistake):
    return lambda length, group: matrix(length, group, **mistake)


WRONG = {
    "00.1": {
        "not divided": (lambda s, v: s.exp() @ v, "do not sum to 1"),
        "scores as weights":
            (lambda s, v: s / s.sum() @ v, "the weights are e to the power of them"),
        "scores, not divided": (lambda s, v: s @ v, "not even divided"),
        "plain mean": (lambda s, v: v.mean(0), "the plain mean"),
        "the best one": (lambda s, v: v[s.argmax()], "only the best score counts"),
        "plain sum": (lambda s, v: v.sum(0), "without weights"),
        "one number": (lambda s, v: (s.softmax(0) @ v).sum(), "wanted (2,)"),
    },
    "00.2": {
        "raw tokens first": (wrong(raw_first=True), "the raw tokens stand first"),
        "sums": (wrong(weight=1), "each is 1 / group"),
        "every n-th token": (wrong(strided=True), "neighbours are"),
        "one token late": (wrong(late=1), "one token late"),
        "an incomplete group": (wrong(incomplete=True), "wanted (7, 5)"),
        "no raw tokens": (wrong(raw=False), "wanted (7, 5)"),
        "transposed": (lambda length, group: matrix(length, group).T, "wanted (7, 5)"),
    },
}
