"""Tests of causality, by derivatives and by finite edits, and two ways to apply the mask.

A row must not depend on later tokens. The Jacobian test computes derivatives; a finite edit
replaces later tokens and compares outputs. Where an algorithm *chooses* tokens, the choice is
piecewise constant in the later tokens: its derivatives are 0, and only a finite edit detects that
the choice has changed.
"""

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
                               f"{sum(weights)}, {leaked} of it on hidden tokens")
    return Outcome(True, f"hidden columns weigh 0 and rows sum to 1 in {cases} of {cases} cases")


SUBJECTS = {"LC.eq1": Subjects(check_masking, mask_times, corrected=mask_before)}
