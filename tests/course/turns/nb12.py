"""Wrong answers to the turns of notebook 12_who_can_see_what."""

from itertools import product

import torch


def _search(reach, row, token):
    inside = {row}
    for layers in range(1, len(reach) + 1):
        inside |= {t for j in inside for t in range(len(reach)) if reach[j][t]}
        if token in inside:
            return layers
    return 0


def _exchanged(reach, row, token):
    return _search([list(column) for column in zip(*reach, strict=True)], row, token)


def _own_takes_none(reach, row, token):
    return 0 if row == token else _search(reach, row, token)


def _forgets_itself(reach, row, token):
    return 0 if row == token and not reach[row][row] else _search(reach, row, token)


def _detector(places=lambda length: range(1, length), equal=torch.equal, rows=slice,
              edit=lambda text, other, t: torch.cat([text[:t], other[t:]])):
    def reads_future(attend, text, other):
        return any(not equal(attend(edit(text, other, t))[rows(t)], attend(text)[rows(t)])
                   for t in places(len(text)))
    return reads_future


def _a_tiny_edit(text, other, t):
    return text + 1e-6 * (torch.arange(len(text)) == t)[:, None]


def _changing(values=range(-2, 3), moves=lambda kept, full: kept == 0 != full,
              size=lambda change: sum(map(abs, change))):
    def unseen_change(kept, full):
        found = [change for change in product(values, repeat=len(full))
                 if moves(*(sum(w * by for w, by in zip(row, change, strict=True))
                            for row in (kept, full)))]
        return min(found, key=size, default=None)
    return unseen_change


WRONG = {
    "12.2": {
        "exchanged": (_exchanged, "row and token are exchanged"),
        "one layer": (lambda reach, row, token: int(reach[row][token]), "only one layer"),
        "steps in between": (lambda *example: max(0, _search(*example) - 1), "rows in between"),
        "itself for nothing": (_own_takes_none, "takes no layer"),
        "forgets itself": (_forgets_itself, "does not keep its own input"),
    },
    "12.5": {
        "compares all rows": (_detector(rows=lambda t: slice(None)), "is causal, and is accused"),
        "the last token only": (_detector(places=lambda length: [length - 1]),
                                "mean of each pair of tokens is missed"),
        "the middle only": (_detector(places=lambda length: [length // 2 + 1]),
                            "each pair of tokens is missed"),
        "a tolerance": (_detector(equal=lambda a, b: torch.allclose(a, b, atol=1e-6)),
                        "1e-9 of all tokens is missed"),
        "a tiny edit": (_detector(edit=_a_tiny_edit), "a choice that later tokens make is missed"),
        "None": (lambda attend, text, other: None, "wanted True or False"),
    },
    "12.6": {
        "nothing": (lambda kept, full: None, "found nothing"),
        "raises only": (_changing(values=range(3)), "found nothing"),
        "both still": (_changing(moves=lambda kept, full: kept == 0), "moves neither"),
        "full alone": (_changing(moves=lambda kept, full: full != 0), "moves the first output too"),
        "the first": (_changing(size=lambda change: 0), "try small changes first"),
        "a share": (lambda kept, full: [0.5] * len(full), "wanted a whole number"),
        "one number": (lambda kept, full: 1, "wanted a whole number"),
    },
}
