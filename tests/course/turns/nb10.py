"""Wrong answers to the turns of notebook 10_how_sparse_is_attention."""


def chance(event):
    return lambda law, rho: sum(p * event(row, rho) for p, row in law)


def sparse(row, rho):
    return len(row) * rho * max(row) > sum(row)


def over(law, x):
    return sum(p for p, row in law if max(row) > x)


def heavy(law, rho, x):
    return sum(p for p, row in law if sum(row) > len(row) * rho * x)


def best(at, take=max):
    return lambda law, rho, points: take(at(law, rho, x) for x in points)


def sink(weight, share=True):
    """A heavy first token, and all others alike."""
    def row(length, rho):
        w = weight(length, rho)
        return [w] + [(1 - w if share else 1) / (length - 1)] * (length - 1)

    return row


def few(length, rho):
    tokens = int(length * rho) - 1
    return [1 / tokens] * tokens + [0.0] * (length - tokens)


WRONG = {
    "10.2": {
        "at the bar":
            (chance(lambda row, r: max(row) / sum(row) >= 1 / (len(row) * r)), "only reaches"),
        "divides first":
            (chance(lambda row, r: max(row) / sum(row) > 1 / len(row) * r), "divides first"),
        "no L": (chance(lambda row, r: max(row) / sum(row) > 1 / r), "L is forgotten"),
        "X for alpha":
            (chance(lambda row, r: max(row) > 1 / (len(row) * r)), "divided by the row's sum"),
        "no probabilities":
            (lambda law, r: sum(sparse(row, r) for _, row in law) / len(law),
             "its own probability"),
        "tokens":
            (chance(lambda row, r: sum(len(row) * r * x > sum(row) for x in row)), "still one row"),
        "the others": (chance(lambda row, r: not sparse(row, r)), "not sparse"),
        "first token":
            (chance(lambda row, r: row[0] / sum(row) > 1 / (len(row) * r)), "any token"),
        "a list": (lambda law, r: [sparse(row, r) for _, row in law], "wanted a number"),
    },
    "10.4": {
        "nothing": (lambda: None, "found nothing"),
        "one number": (lambda: 1, "wanted a row X, rho and x"),
        "sparse": (lambda: ((3, 1), 1, 0.5), "P_sparse is 1"),
        "rate": (lambda: ((1, 1), 0.5, 0.5), "1/L < rho <= 1"),
        "x": (lambda: ((1, 1), 1, 0), "over x > 0"),
        "between": (lambda: ((1, 1), 1, 1), "a smaller or a larger x"),
        "logits": (lambda: ((0, 0), 1, 0.5), "over 0"),
        "three tokens": (lambda: ((1, 1, 1), 1, 0.5), "begin with L = 2"),
    },
    "10.6": {
        "smallest":
            (best(lambda law, r, x: over(law, x) - heavy(law, r, x), min), "take the best one"),
        "first X":
            (best(lambda law, r, x: sum(p for p, row in law if row[0] > x) - heavy(law, r, x)),
             "the first X"),
        "no L":
            (best(lambda law, r, x: over(law, x) - sum(p for p, row in law if sum(row) > r * x)),
             "L is forgotten"),
        "sum below":
            (best(lambda law, r, x: over(law, x) - 1 + heavy(law, r, x)), "may not be subtracted"),
        "added": (best(lambda law, r, x: over(law, x) + heavy(law, r, x)), "added"),
        "product":
            (best(lambda law, r, x: over(law, x) * (1 - heavy(law, r, x))),
             "as if the events were"),
        "at once":
            (best(lambda law, r, x: sum(p for p, row in law
                                        if max(row) > x and sum(row) <= len(row) * r * x)),
             "both events at once"),
        "at x":
            (best(lambda law, r, x: sum(p for p, row in law if max(row) >= x) - heavy(law, r, x)),
             "may also equal x"),
        "every point":
            (lambda law, r, points: [over(law, x) for x in points], "wanted a number"),
    },
    "10.8": {
        "even": (lambda length, rho: [1 / length] * length, "is not over the bar"),
        "at the bar": (sink(lambda length, rho: 1 / (length * rho)), "only reaches the bar"),
        "one rate only": (sink(lambda length, rho: 0.101), "is not over the bar"),
        "no L": (sink(lambda length, rho: 1.01 / rho), "no weight is negative"),
        "sum": (sink(lambda length, rho: 1.01 / (length * rho), share=False), "share what is left"),
        "few tokens": (few, "wanted 80%"),
        "one token": (sink(lambda length, rho: 0.95), "wanted 80%"),
        "one too many":
            (lambda length, rho: [0.2] + [0.8 / length] * length, "the heavy token is one of them"),
        "a number": (lambda length, rho: 1.01 / (length * rho), "wanted a list"),
    },
}
