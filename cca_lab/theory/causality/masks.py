"""Tests of causality, by derivatives and by finite edits, and three places to apply the mask.

A row must not depend on later tokens. The Jacobian test computes derivatives; a finite edit
replaces later tokens and compares outputs. Where an algorithm *chooses* tokens, the choice is
piecewise constant in the later tokens: its derivatives are 0, and only a finite edit detects that
the choice has changed.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product

import torch
from torch import Tensor

from cca_lab.theory.base_two import softmax
from cca_lab.theory.claim import Outcome, Subjects

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
Weigh = Callable[[Sequence[int], Sequence[bool]], list[Fraction]]


def jacobian_leak(attend: Attend, q: Tensor, k: Tensor, v: Tensor, token: int) -> float:
    """Return max |d out_i / d x_t| over i < token <= t, of outputs by q, k or v, (..., L, D) each.

    It is 0 for a causal mechanism, and for one that leaks only by its choice.
    """
    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    out = attend(*inputs)[..., :token, :]
    largest = 0.0
    for value in out.flatten():
        gradients = torch.autograd.grad(value, inputs, retain_graph=True, allow_unused=True)
        leaks = [float(g[..., token:, :].abs().max()) for g in gradients if g is not None]
        largest = max([largest, *leaks])
    return largest


def edit_leak(attend: Attend, q: Tensor, k: Tensor, v: Tensor, token: int,
              new: Sequence[Tensor]) -> float:
    """Return max |out'_i - out_i| over i < token if the tokens from it on become those of `new`.

    It is 0 for a causal mechanism; `new` replaces q, k and v, (..., L, D) each.
    """
    edited = [torch.cat([old[..., :token, :], other[..., token:, :]], dim=-2)
              for old, other in zip((q, k, v), new, strict=True)]
    return float((attend(*edited) - attend(q, k, v))[..., :token, :].abs().max())


def mask_before(scores: Sequence[int], visible: Sequence[bool]) -> list[Fraction]:
    """Weigh visible columns only: -inf before the softmax (base 2), the mask attention needs."""
    weights = iter(softmax([score for score, seen in zip(scores, visible, strict=True) if seen]))
    return [next(weights) if seen else Fraction(0) for seen in visible]


def mask_after(scores: Sequence[int], visible: Sequence[bool]) -> list[Fraction]:
    """DGA Eq. 13 as printed: softmax over all columns, then times the 0-1 mask."""
    return [weight * seen for weight, seen in zip(softmax(scores), visible, strict=True)]


def mask_times(scores: Sequence[int], visible: Sequence[bool]) -> list[Fraction]:
    """LoCoCo Eq. 1 as printed: scores times the mask, then softmax; hidden scores become 0."""
    return softmax([score * seen for score, seen in zip(scores, visible, strict=True)])


def check_masking(weigh: Weigh) -> Outcome:
    """Judge a mask of i of L <= 4 columns: hidden ones weigh 0, change nothing, rows sum to 1."""
    cases = 0
    for seen, hidden in ((seen, total - seen) for total in range(1, 5)
                         for seen in range(total, 0, -1)):
        visible = [True] * seen + [False] * hidden
        for scores in product((0, -1, 2), repeat=seen + hidden):
            cases += 1
            weights = weigh(scores, visible)
            calm = weigh([score * seen for score, seen in zip(scores, visible, strict=True)],
                         visible)
            leaked = sum(weights[seen:], Fraction(0))
            if leaked or sum(weights) != 1 or weights != calm:
                return Outcome(False, f"L={seen + hidden}, scores {list(scores)}, {hidden} hidden: "
                               f"weights {', '.join(map(str, weights))}; the row sums to "
                               f"{sum(weights)}, {leaked} of it on hidden tokens",
                               {"row_sum": float(sum(weights)), "leaked": float(leaked)})
    return Outcome(True, f"hidden columns weigh 0 and rows sum to 1 in {cases} of {cases} cases",
                   {"cases": cases})


Pair = tuple[str, str]  # (context, next token)
PAIRS: list[Pair] = [("c", "a"), ("c", "b"), ("d", "a")]
LONGEST = 5


def of_the_corpus(corpus: Sequence[Pair]) -> list[Pair]:
    """Return the factors of Eq. 2 as a product over the n pairs of the training corpus."""
    return list(corpus)


def distinct(corpus: Sequence[Pair]) -> list[Pair]:
    """Return Eq. 2's factors as a product over y and its contexts, each pair once."""
    return sorted(set(corpus))


def best_model(factors: Sequence[Pair]) -> dict[Pair, Fraction]:
    """Return the P(y | C) that maximises the product: the share of y among those with context C."""
    contexts = Counter(context for context, _ in factors)
    return {pair: Fraction(count, contexts[pair[0]]) for pair, count in Counter(factors).items()}


def check_best_model(factors: Callable[[Sequence[Pair]], list[Pair]]) -> Outcome:
    """Judge whether the product has the sequences' best model: corpora of up to 5 of 3 pairs."""
    corpora = [corpus for count in range(1, LONGEST + 1) for corpus in product(PAIRS, repeat=count)]
    for corpus in corpora:
        got, wanted = best_model(factors(corpus)), best_model(corpus)
        if got != wanted:
            context, token = pair = next(pair for pair in wanted if got.get(pair) != wanted[pair])
            shown = ", ".join(context + token for context, token in corpus)
            return Outcome(False, f"corpus of pairs {shown}: the best P({token}|{context}) is "
                           f"{wanted[pair]} for the sequences, {got.get(pair, 0)} for the product")
    return Outcome(True, f"the same best model for {len(corpora)} corpora",
                   {"corpora": len(corpora)})


SUBJECTS = {
    "D1.eq13": Subjects(check_masking, mask_after, corrected=mask_before),
    "D1.likelihood": Subjects(check_best_model, of_the_corpus, corrected=of_the_corpus,
                              models=(of_the_corpus, distinct)),
}
