"""Wrong answers to the turns of notebook 14_finetune."""

from collections import defaultdict
from functools import partial

import torch
import torch.nn.functional as F

from cca_lab.course.turns.nb14 import MISTAKES, STEP_FIRST, loop, losses_of


def _everything(logits, ids, known, text_rows):
    return losses_of(logits, ids, torch.ones_like(known), text_rows)


def _sums(logits, ids, known, text_rows):
    losses = F.cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")
    losses = losses * known[:, 1:]
    return losses[:text_rows].sum(), losses[text_rows:].sum()


def _wrong_weights(model, optimizer, batch, rate, steps, text_rows):
    history = loop(model, optimizer, batch, rate, steps, text_rows)
    optimizer.step()
    return history


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
        "not shifted": (partial(losses_of, ahead=0), "its own token"),
        "shifted twice": (partial(losses_of, ahead=2), "shifted twice"),
        "marks of the token read": (partial(losses_of, lag=1), "shift `known` as well"),
        "over the prompt": (_everything, "documents and question too"),
        "sums": (_sums, "not divided by their number"),
        "exchanged": (lambda *given: losses_of(*given)[::-1], "text rows come first"),
        "one loss": (lambda *given: sum(losses_of(*given)), "wanted two losses"),
    },
    "14.3": {
        **{name: (partial(loop, mistake=name), why[:40]) for name, why in MISTAKES.items()},
        "step first": (partial(loop, mistake="step first"), STEP_FIRST),
        "nothing returned": (lambda *given: loop(*given) and None, "one a step"),
        "one number a step": (lambda *given: [sum(pair) for pair in loop(*given)],
                              "a pair for each step"),
        "a step too many": (_wrong_weights, "the weights after the last step"),
    },
    "14.4": {
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
    "14.6": {
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
    "14.7": {
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
