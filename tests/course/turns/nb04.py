"""Wrong answers to the turns of notebook 04_dynamic_groups."""

from functools import partial

import torch

from cca_lab.course.turns.nb04 import attend


def _rule(pooled=lambda i, G: G[-1] < i, raw=lambda i, G: G[0] <= i <= G[-1], ahead=0):
    def reads(row, focal, groups):
        return ([t for t in focal if t <= row],
                [z for z, members in enumerate(groups) if pooled(row, members)],
                [t for members in groups if raw(row, members) for t in members if t <= row + ahead])
    return reads


def _sampled(divisor, unseen=torch.inf):
    def score(sampled, rows):
        token = torch.arange(sampled.shape[1])
        seen = (rows[:, None] >= token).any(0)
        return (sampled.sum(0) / divisor(rows, token)).where(seen, torch.tensor(unseen).double())
    return score


def _seen_by(rows, token):
    return (rows[:, None] >= token).sum(0).clamp(min=1)


def table(closes=lambda i, g: g[-1] < i, order=1, again=False, back=False):
    """The table of DGA, right or with a mistake."""
    def answer(length, focal, groups):
        size = len(groups[0]) if groups else 0
        pooled, raw = order * len(focal), order * (len(focal) + len(groups))
        rows = []
        for i in range(length):
            closed = sum(closes(i, members) for members in groups)
            opened = sum(t <= i for t in groups[closed]) if closed < len(groups) else 0
            start = raw + closed * size
            end = start + opened
            if again:
                start = raw
            if back and start == end:
                start = end = 0
            rows.append([[0, sum(t <= i for t in focal)], [pooled, pooled + closed], [start, end]])
        return torch.tensor(rows)

    return answer


WRONG = {
    "04.2": {
        "mean over all rows": (lambda a: a.mean(0), "only L - t rows"),
        "a sum": (lambda a: a.sum(0), "only added up"),
        "rows": (lambda a: a.sum(1), "which always gives 1"),
        "tokens before it": (lambda a: a.sum(0) / torch.arange(1, len(a) + 1), "divisor is t + 1"),
        "counts what is not zero": (lambda a: a.sum(0) / (a > 0).sum(0), "rounded to 0"),
    },
    "04.4": {
        "Algorithm 2": (_rule(pooled=lambda i, G: G[0] <= i), "reads the future"),
        "both": (_rule(pooled=lambda i, G: G[-1] <= i), "counts them twice"),
        "neither":
            (_rule(raw=lambda i, G: G[0] <= i < G[-1]), "neither the group nor its members"),
        "pooled at the end":
            (_rule(lambda i, G: G[-1] <= i, lambda i, G: G[0] <= i < G[-1]),
             "Eq. 15 gives it the members"),
        "all members": (_rule(ahead=10**9), "behind the row"),
        "not itself": (_rule(ahead=-1), "does not read itself"),
        "its own group only": (_rule(raw=lambda i, G: i in G), "it needs them too"),
        "no complement": (_rule(raw=lambda i, G: False), "the open group is lost"),
        "two lists": (lambda row, focal, groups: (focal, groups), "wanted three lists"),
    },
    "04.9": {
        "all sampled rows": (_sampled(lambda rows, token: len(rows)), "number of sampled rows"),
        "all rows of the text": (_sampled(lambda rows, token: len(token) - token),
                                 "as if all rows were sampled"),
        "not its own row":
            (_sampled(lambda rows, token: _seen_by(rows, token + 1)), "a row sees its own token"),
        "0/0":
            (lambda a, rows: a.sum(0) / (rows[:, None] >= torch.arange(a.shape[1])).sum(0),
             "0/0 is not a number"),
        "unseen is unimportant": (_sampled(_seen_by, unseen=0.0), "its score is infinity"),
    },
    "04.5": {
        "any member": (partial(attend, shows=lambda i, g: g[0] <= i, raw=lambda i, g: False),
                       "reads the future"),
        "twice": (partial(attend, shows=lambda i, g: g[-1] <= i), "each member twice"),
        "no open group": (partial(attend, raw=lambda i, g: False), "open group are left out"),
        "always raw": (partial(attend, raw=lambda i, g: True), "stay raw"),
        "first judge": (partial(attend, judge=0), "the first member judges"),
        "mean": (partial(attend, even=True), "plain means"),
    },
    "04.7": {
        "closed too early": (table(closes=lambda i, g: g[-1] <= i), "counts as closed"),
        "one order": (table(order=0), "begin behind the focal ones"),
        "raw again": (table(again=True), "are read raw too"),
        "moves back": (table(back=True), "moves back"),
        "a list": (lambda length, focal, groups: [], "wanted a tensor"),
    },
}
