"""Wrong answers to the turns of notebook 11_group_coding."""

import math

import torch


def moves(weights, j):
    """The derivatives of weight j by every logit."""
    return [weights[j] * ((i == j) - weight) for i, weight in enumerate(weights)]


def slopes(pooled, logits, step=1e-5):
    """Two-sided, as the solution has them."""
    derivatives = []
    for j in range(len(logits)):
        up, down = list(logits), list(logits)
        up[j], down[j] = up[j] + step, down[j] - step
        derivatives.append((pooled(up) - pooled(down)) / (2 * step))
    return derivatives


def one_sided(pooled, logits, step):
    changes = [pooled([a + step * (i == j) for i, a in enumerate(logits)]) - pooled(logits)
               for j in range(len(logits))]
    return sum((change / step) ** 2 for change in changes)


def together(pooled, logits):
    return ((pooled([a + 1e-5 for a in logits]) - pooled(logits)) / 1e-5) ** 2


def squares(values):
    return sum(x * x for x in values)


def kappa(matrix):
    spectrum = torch.linalg.eigvalsh(matrix)
    return spectrum[-1] / spectrum[0]


def means(values, m):
    return values.reshape(-1, m, values.shape[1]).mean(1)


def both(of, group=means):
    return lambda values, m: (of(values), of(group(values, m)))


def right(values):
    return kappa(2 * values @ values.T)


WRONG = {
    "11.2": {
        "own noise": (lambda w, j: moves(w, j)[j] ** 2, "only the token's own noise"),
        "the others' noise":
            (lambda w, j: squares(x for i, x in enumerate(moves(w, j)) if i != j), "left out"),
        "no 1": (lambda w, j: squares(w[j] * x for x in w), "of the token itself"),
        "added": (lambda w, j: sum(moves(w, j)) ** 2, "before squaring"),
        "relative": (lambda w, j: squares(moves(w, j)) / w[j] ** 2, "factor alpha_j of every"),
        "factor outside": (lambda w, j: squares(moves(w, j)) / w[j], "not squared"),
        "sizes": (lambda w, j: sum(abs(x) for x in moves(w, j)), "sizes are added"),
        "deviation": (lambda w, j: math.sqrt(squares(moves(w, j))), "standard deviation"),
        "mean": (lambda w, j: squares(moves(w, j)) / len(w), "number of tokens"),
        "a list": (moves, "wanted a number"),
    },
    "11.4": {
        "together": (together, "one at a time"),
        "no squares": (lambda pooled, a: sum(slopes(pooled, a)), "without squares"),
        "first token": (lambda pooled, a: slopes(pooled, a)[0] ** 2, "only the first token"),
        "mean": (lambda pooled, a: squares(slopes(pooled, a)) / len(a), "the mean is taken"),
        "deviation": (lambda pooled, a: math.sqrt(squares(slopes(pooled, a))), "square root"),
        "one step for two": (lambda pooled, a: 4 * squares(slopes(pooled, a)), "two steps apart"),
        "not divided": (lambda pooled, a: 1e-10 * squares(slopes(pooled, a)), "divide the change"),
        "a large step": (lambda pooled, a: one_sided(pooled, a, 0.1), "too large"),
        "a step of 1": (lambda pooled, a: squares(slopes(pooled, a, 1.0)), "too large"),
    },
    "11.10": {
        "nothing": (lambda: None, "found nothing"),
        "flat": (lambda: [0, 0, 0, 1, 0, 1, 1, 0], "wanted four rows of two"),
        "words": (lambda: "V", "wanted four rows of two"),
        "singular": (lambda: [[1, 0]] * 4, "V^T V has the eigenvalue 0"),
        "means singular": (lambda: [[1, 0], [-1, 0], [0, 1], [0, 1]], "the matrix of the means"),
        "equal rows": (lambda: [[1, 0], [1, 0], [0, 1], [0, 1]], "does not rise"),
        "four ones": (lambda: [[0, 1], [0, 1], [1, 0], [0, 1]], "three ones"),
    },
    "11.8": {
        "printed": (both(lambda v: kappa(2 * v.T @ v)), "one for each feature"),
        "singular values": (both(lambda v: right(v) ** 0.5), "singular values"),
        "upside down": (both(lambda v: 1 / right(v)), "divided by the largest"),
        "other groups": (both(right, lambda v, m: v.reshape(m, -1, v.shape[1]).mean(0)),
                         "here m neighbours do"),
        "not grouped": (both(right, lambda v, m: v), "group the rows of V first"),
        "groups first": (lambda v, m: (right(means(v, m)), right(v)), "the one in groups"),
        "one number": (lambda v, m: right(v), "wanted two"),
    },
}
