"""Wrong answers to the turns of notebook 06_the_baselines."""

import torch

from cca_lab.course.turns.nb06 import best, keep, old_groups


def _heaviest(scores, tokens):
    return sorted(tokens, key=lambda t: (-scores[t], -t))


def _recent_take_part(scores, heavy, recent):
    tokens = range(len(scores))
    return sorted({*_heaviest(scores, tokens)[:heavy], *tokens[max(0, len(scores) - recent):]})


def _by_score_only(scores, heavy, recent):
    return sorted(_heaviest(scores, range(len(scores)))[: heavy + recent])


def _minus_zero(scores, heavy, recent):
    tokens = range(len(scores))
    return sorted([*_heaviest(scores, tokens[:-recent])[:heavy], *tokens[-recent:]])


def _blocks(low=lambda start, block, row: start, size=lambda block: block, *, ahead=False,
            negative=False, twice=False):
    """Read columns and a range of every diagonal, with a mistake."""
    def answer(row, columns, offsets, block):
        first = low(row - row % block, block, row)
        ranges = {t for o in offsets for t in range(first - o, first - o + size(block))}
        chosen = [*ranges, *columns] if twice else ranges | set(columns)
        return sorted(t for t in chosen if (negative or t >= 0) and (ahead or t <= row))
    return answer


def table(recent):
    """The table of StreamingLLM with another second interval."""
    return lambda length, sinks, window: torch.tensor(
        [[[0, min(sinks, i + 1)], [*recent(i, sinks, window)]] for i in range(length)])


WRONG = {
    "06.2": {
        "recent ones take part": (_recent_take_part, "take part in the choice"),
        "by score only": (_by_score_only, "whatever their score"),
        "keeps the lightest": (lambda s, h, r: keep(s, h, r, lightest=True), "the heaviest leave"),
        "the newer of equals leaves":
            (lambda s, h, r: keep(s, h, r, old_wins=True), "it is the older"),
        "in the order of scores":
            (lambda s, h, r: keep(s, h, r, in_order=False), "in the order of the text"),
        "minus zero": (_minus_zero, "the whole list"),
        "the scores instead of places":
            (lambda s, h, r: [s[t] for t in keep(s, h, r)], "wanted a list of integers"),
    },
    "06.6": {
        "a diagonal of one token":
            (_blocks(lambda start, b, row: row, lambda b: 1), "is one token"),
        "from the row's own place": (_blocks(lambda start, b, row: row), "own place"),
        "range behind":
            (_blocks(lambda start, b, row: start - b + 1), "ends where it should begin"),
        "one too long": (_blocks(size=lambda b: b + 1), "too long"),
        "the future": (_blocks(ahead=True), "later tokens are read"),
        "before the text": (_blocks(negative=True), "cut at 0"),
        "a token twice": (_blocks(twice=True), "listed twice"),
    },
    "06.10": {
        "not shifted": (lambda row, group: row // group * group, "not shifted"),
        "before the text":
            (lambda row, group: (row + group // 2) // group * group - group // 2,
             "before the text"),
        "not shifted back":
            (lambda row, group: (row + group // 2) // group * group, "not shifted back"),
        "by a whole group":
            (lambda row, group: max(0, row // group * group - group), "by a whole group"),
        "half blocks":
            (lambda row, group: row // (group // 2) * (group // 2), "have half the size"),
        "no first half block":
            (lambda row, group: max(group // 2, (row + group // 2) // group * group - group // 2),
             "is forgotten"),
    },
    "06.11": {
        "sinks twice": (table(lambda i, s, r: (max(0, i - r), i + 1)), "is read twice"),
        "own counted": (table(lambda i, s, r: (min(max(s, i + 1 - r), i + 1), i + 1)),
                        "comes on top of them"),
        "ends early": (table(lambda i, s, r: (max(s, i - r), i + 1)), "ends before it starts"),
        "future": (table(lambda i, s, r: (min(max(s, i - r), i + 1), i + 2)), "in the future"),
        "no sinks": (lambda n, s, r: torch.tensor(
            [[[0, 0], [min(max(s, i - r), i + 1), i + 1]] for i in range(n)]),
                     "the sinks are left out"),
        "a list": (lambda n, s, r: [[0, 1]] * n, "wanted a tensor"),
    },
    "06.4": {
        "the true distance": (lambda i, t, n: i - t, "has no limit"),
        "one too small": (lambda i, t, n: min(i - t, n - 1), "one too small"),
        "all first tokens far":
            (lambda i, t, n: min(n, i) if t < 2 else i - t, "those in the window too"),
        "of StreamingLLM":
            (lambda i, t, n: i - t if i - t < n else min(i, n + 1) - t, "a place in the cache"),
    },
    "06.8": {
        "own by score": (lambda s, k: best(s, k, own=False), "by its score"),
        "one more": (lambda s, k: best(s, k, extra=1), "comes on top"),
        "lowest": (lambda s, k: best(s, k, lowest=True), "lowest scores"),
        "nearest": (lambda s, k: list(range(len(s)))[-k:], "nearest blocks"),
    },
    "06.12": {
        "own token forgotten": (lambda i, g, w: old_groups(i, g, w)[:-1], "is forgotten"),
        "as soon as complete": (lambda i, g, w: old_groups(i, g, 0), "as soon as it is complete"),
        "raw twice":
            (lambda i, g, w: [c for c in old_groups(i, g, w) if len(c) > 1]
             + [[t] for t in range(i + 1)], "read twice"),
        "one row late":
            (lambda i, g, w: old_groups(i, g, w + 1), "one row too late"),
    },
}
