"""Wrong answers to the turns of notebook 14_finetune."""

from collections import defaultdict


def shares(answers):
    hits_at = defaultdict(list)
    for offset, right in answers:
        hits_at[offset].append(right)
    return {offset: sum(hits) / len(hits) for offset, hits in sorted(hits_at.items())}


def mean(answers):
    return sum(shares(answers).values()) / len(shares(answers))


def worst(answers):
    return min(shares(answers).values())


def weight(core=lambda t, g: t // g, place=lambda t, g: t % g, join=lambda a, p: a * p,
           raw=lambda t, c, g: t - c * g + c):
    def token_weight(row, phi, token):
        cores, group = phi.shape
        if token >= cores * group:
            return row[raw(token, cores, group)]
        p, m = min(core(token, group), cores - 1), min(place(token, group), group - 1)
        return join(row[p], phi[p, m])

    return token_weight


WRONG = {
    "14.2": {
        "one token too many":
            (lambda first, n, g: list(range(first // g, (first + n) // g + 1)),
             "the token behind the document"),
        "without the last":
            (lambda first, n, g: list(range(first // g, (first + n - 1) // g)), "is left out"),
        "whole groups only":
            (lambda first, n, g: list(range(-(-first // g), (first + n) // g)),
             "entirely inside"),
        "as if it began with a group":
            (lambda first, n, g: list(range(first // g, first // g - (-n // g))),
             "that begins inside a group"),
        "tokens": (lambda first, n, g: list(range(first, first + n)), "not groups"),
        "how many": (lambda first, n, g: (first + n - 1) // g - first // g + 1, "wanted the list"),
    },
    "14.4": {
        "all questions alike":
            (lambda answers: (sum(right for _, right in answers) / len(answers), worst(answers)),
             "all offsets do"),
        "a sum of shares":
            (lambda answers: (sum(shares(answers).values()), worst(answers)), "not divided"),
        "the worst offset":
            (lambda answers: (mean(answers), min(shares(answers), key=shares(answers).get)),
             "the number of the worst"),
        "the best":
            (lambda answers: (mean(answers), max(shares(answers).values())), "the best offset's"),
        "the share of errors":
            (lambda answers: (mean(answers), 1 - worst(answers)), "that is wrong there"),
        "one number": (mean, "wanted two numbers"),
    },
    "14.5": {
        "without phi": (weight(join=lambda a, p: a), "multiply by phi"),
        "phi alone": (weight(join=lambda a, p: p), "phi alone"),
        "exchanged": (weight(core=lambda t, g: t % g, place=lambda t, g: t // g),
                      "they are exchanged"),
        "a sum": (weight(join=lambda a, p: a + p), "they are multiplied"),
        "raw tokens before the cores":
            (weight(raw=lambda t, c, g: t - c * g), "add the number of cores"),
        "the first raw token": (weight(raw=lambda t, c, g: c), "the first raw token's"),
    },
}
