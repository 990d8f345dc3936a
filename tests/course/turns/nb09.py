"""Wrong answers to the turns of notebook 09_who_can_see_what."""

import torch


def _search(reach, row, token, *, start=1, own=True):
    found = {row} if own else {t for t in range(len(reach)) if reach[row][t]}
    if not own and token in found:
        return 1
    for layers in range(start, len(reach) + start):
        if own and layers == 0 and token == row:
            return 0
        found = found | {t for j in found for t in range(len(reach)) if reach[j][t]}
        if token in found:
            return layers
    return 0


def _exchanged(reach, row, token):
    return _search([list(column) for column in zip(*reach, strict=True)], row, token)


def _own_takes_none(reach, row, token):
    return 0 if row == token else _search(reach, row, token)


def _forgets_itself(reach, row, token):
    return 0 if row == token and not reach[row][row] else _search(reach, row, token)


def _detector(places=None, equal=torch.equal, rows=lambda t: slice(0, t)):
    def reads_future(attend, text, other):
        usual = attend(text)
        for t in range(1, len(text)) if places is None else places(len(text)):
            edited = attend(torch.cat([text[:t], other[t:]]))
            if not equal(edited[rows(t)], usual[rows(t)]):
                return True
        return False
    return reads_future


def _one_token(attend, text, other):
    usual = attend(text)
    for t in range(1, len(text)):
        edited = text.clone()
        edited[t] += 1e-6
        if not torch.equal(attend(edited)[:t], usual[:t]):
            return True
    return False


WRONG = {
    "09.2": {
        "exchanged": (_exchanged, "row and token are exchanged"),
        "one layer": (lambda reach, row, token: int(reach[row][token]), "only one layer"),
        "steps in between": (lambda reach, row, token: max(0,
                                                           _search(reach, row,
                                                                   token) - 1), "rows in between"),
        "itself for nothing": (_own_takes_none, "takes no layer"),
        "forgets itself": (_forgets_itself, "does not keep its own input"),
    },
    "09.7": {
        "compares all rows": (_detector(rows=lambda t: slice(None)), "is causal, and is accused"),
        "the last token only":
            (_detector(places=lambda length: [length - 1]),
             "mean of each pair of tokens is missed"),
        "the middle only": (_detector(places=lambda length: [length // 2 + 1]),
                            "each pair of tokens is missed"),
        "a tolerance": (_detector(equal=lambda a, b: torch.allclose(a, b, atol=1e-6)),
                        "1e-9 of all tokens is missed"),
        "a tiny edit": (_one_token, "a choice that later tokens make is missed"),
        "None": (lambda attend, text, other: None, "wanted True or False"),
    },
}
