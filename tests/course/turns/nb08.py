"""Wrong answers to the turns of notebook 08_the_baselines."""

from cca_lab.course.turns.nb08 import keep


def _recent_take_part(scores, heavy, recent):
    order = sorted(range(len(scores)), key=lambda t: (-scores[t], -t))
    return sorted({*order[:heavy], *range(max(0, len(scores) - recent), len(scores))})


def _by_score_only(scores, heavy, recent):
    return sorted(sorted(range(len(scores)), key=lambda t: (-scores[t], -t))[: heavy + recent])


def _minus_zero(scores, heavy, recent):
    places = list(range(len(scores)))
    older = places[:-recent]
    return sorted(sorted(older, key=lambda t: (-scores[t], -t))[:heavy] + places[-recent:])


def _blocks(first, last, ahead=False):
    def answer(row, columns, offsets, block):
        start = row - row % block
        found = {t for o in offsets
                 for t in range(first(start, o, block, row), last(start, o, block, row))}
        top = max([row, *columns, *found]) if ahead else row
        return [t for t in range(top + 1) if t in found or t in columns]
    return answer


def _with_negative(row, columns, offsets, block):
    start = row - row % block
    found = {t for o in offsets for t in range(start - o, start - o + block)} | set(columns)
    return sorted(t for t in found if t <= row)


def _twice(row, columns, offsets, block):
    start = row - row % block
    found = {t for o in offsets for t in range(max(0, start - o), start - o + block)}
    return sorted([*(t for t in found if t <= row), *(t for t in columns if t <= row)])


WRONG = {
    "08.2": {
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
    "08.5": {
        "a diagonal of one token": (
            _blocks(lambda start, o, b, row: max(0, row - o), lambda start, o, b, row: row - o + 1),
            "is one token"),
        "from the row's own place": (
            _blocks(lambda start, o, b, row: max(0, row - o), lambda start, o, b, row: row - o + b),
            "own place"),
        "range behind": (
            _blocks(lambda start, o, b, row: start - o - b + 1, lambda start, o, b, row: start - o
                    + 1),
            "ends where it should begin"),
        "one too long": (
            _blocks(lambda start, o, b, row: start - o, lambda start, o, b, row: start - o + b + 1),
            "too long"),
        "the future": (
            _blocks(lambda start, o, b, row: start - o, lambda start, o, b, row: start - o
                    + b, ahead=True),
            "later tokens are read"),
        "before the text": (_with_negative, "cut at 0"),
        "a token twice": (_twice, "listed twice"),
    },
    "08.8": {
        "not shifted": (lambda row, group: row // group * group, "not shifted"),
        "before the text": (lambda row, group: (row + group // 2) // group * group
                            - group // 2, "before the text"),
        "not shifted back": (lambda row, group: (row + group // 2) // group
                             * group, "not shifted back"),
        "by a whole group": (lambda row, group: max(0,
                                                    row // group * group
                                                    - group), "by a whole group"),
        "half blocks": (lambda row, group: row // (group // 2) * (group // 2),
                        "have half the size"),
        "no first half block": (
            lambda row, group: max(group // 2, (row + group // 2) // group * group
                                   - group // 2), "is forgotten"),
    },
}
