"""Wrong answers to the turns of notebook 17."""

import torch


def _kept(q, k, v, kept, others, *, later=False, scale=True, swapped=False, everyone=None,
          interleaved=False, first=False):
    each = len(q) // len(k)
    out, parts = torch.empty_like(q), []
    for kv in range(len(k)):
        rows = list(range(kv, len(q), len(k))) if interleaved else \
            list(range(each * kv, each * kv + each))
        chosen = (kv in kept) != swapped if everyone is None else everyone
        if not chosen:
            out[rows] = others(q[rows], k[kv], v[kv])
        else:
            scores = q[rows] @ k[kv].mT / (q.shape[-1] ** 0.5 if scale else 1)
            past = torch.ones(scores.shape[-2:]).tril().bool()
            scores = scores if later else scores.masked_fill(~past, float("-inf"))
            out[rows] = scores.softmax(-1) @ v[kv]
        parts.append((not chosen, out[rows]))
    return torch.cat([part for _, part in sorted(parts, key=lambda each: each[0])]) if first \
        else out


def _other(**changes):
    return lambda *given: _kept(*given, **changes)


def one_head(q, k, v, kept, others):
    return torch.stack([others(q[h], k[h * len(k) // len(q)], v[h * len(k) // len(q)])
                        for h in range(len(q))])


def _entries(*, sinks_kept=True, from_0=False, exactly=False, late=False, others=True, row=1):
    def entries(length, heads, kept, group, window, sinks):
        first = 0 if from_0 else min(sinks, length)
        behind = length - first
        seen = max(0, (behind + row - window) // group)
        raw = min(behind, window) if exactly else behind - group * seen
        one = (seen if late else behind // group) + raw + min(sinks, length) * sinks_kept
        return kept * length + (heads - kept) * one * others
    return entries


def _error(*, shift=1, most=30.0, least=1.0, divide=lambda out, full: full.square().sum(1).mean()):
    def layer_error(out, full, answer):
        weights = torch.full((len(out),), least, dtype=out.dtype)
        weights[[t - shift for t in answer.nonzero()[:, 0].tolist() if t >= shift]] = most
        return (weights * (out - full).square().sum(1) / divide(out, full)).sum()
    return layer_error


WRONG = {
    "17.4": {
        "exchanged": (_other(swapped=True), "are exchanged"),
        "all in full": (_other(everyone=True), "every head attends in full"),
        "none in full": (_other(everyone=False), "no head attends in full"),
        "the future": (_other(later=True), "later tokens"),
        "no scale": (_other(scale=False), "not divided by sqrt(D)"),
        "other grouping": (_other(interleaved=True), "stand together"),
        "kept ones first": (_other(first=True), "at its own place"),
        "one query head at a time": (one_head, "all query heads of one KV head"),
    },
    "17.6": {
        "no others": (_entries(others=False), "store nothing"),
        "no sinks": (_entries(sinks_kept=False), "sinks are forgotten"),
        "groups from 0": (_entries(from_0=True), "behind the sinks"),
        "the last row": (_entries(row=0), "keep those of the next row"),
        "exactly s": (_entries(exactly=True), "exactly s tokens"),
        "late cores": (_entries(late=True), "as soon as its group closes"),
        "everything": (lambda length, heads, *rest: length * heads, "stores everything too"),
    },
    "17.7": {
        "the answer's own rows": (_error(shift=0), "the rows before them"),
        "all alike": (_error(most=1.0), "count alike"),
        "only the answer": (_error(least=0.0), "only the rows"),
        "by the sum": (_error(divide=lambda out, full: full.square().sum()), "not by the mean"),
        "by each": (_error(divide=lambda out, full: full.square().sum(1)), "its own size"),
        "by the other": (_error(divide=lambda out, full: out.square().sum(1).mean()),
                         "not of the full one"),
        "by nothing": (_error(divide=lambda out, full: 1.0), "nothing is divided"),
    },
}
