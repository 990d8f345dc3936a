"""Tests of causality, by derivatives and by finite edits, and three places to apply the mask.

A row must not depend on later tokens. The Jacobian test computes derivatives; a finite edit replaces later tokens
and compares outputs. Where an algorithm *chooses* tokens, the choice is piecewise constant in the later tokens: its
derivatives are 0, and only a finite edit detects that the choice has changed.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product

import torch
from torch import Tensor

from cca_lab.theory.base_two import softmax
from cca_lab.theory.causality.likelihood import CLAIMS as LIKELIHOOD
from cca_lab.theory.claim import Claim, Finding, Strength, Verdict, Weight

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
Weigh = Callable[[Sequence[int], Sequence[bool]], list[Fraction]]


def jacobian_leak(attend: Attend, q: Tensor, k: Tensor, v: Tensor, token: int) -> float:
    """Return the largest derivative of an output before `token` by q, k or v of `token` and later tokens.

    Args:
        attend: (q, k, v) -> outputs, all (..., L, D).
        q, k, v: (..., L, D), float64.
        token: the first token that rows 0 .. token - 1 must not read.

    Returns:
        max |d out_i / d x_t| over i < token <= t; 0 for a causal mechanism, and for one that leaks only by its choice.
    """
    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    out = attend(*inputs)[..., :token, :]
    largest = 0.0
    for value in out.flatten():
        gradients = torch.autograd.grad(value, inputs, retain_graph=True, allow_unused=True)
        largest = max([largest, *(float(g[..., token:, :].abs().max()) for g in gradients if g is not None)])
    return largest


def edit_leak(attend: Attend, q: Tensor, k: Tensor, v: Tensor, token: int, new: Sequence[Tensor]) -> float:
    """Return the largest change of an output before `token` when the tokens from `token` on are replaced.

    Args:
        attend, q, k, v, token: as in `jacobian_leak`.
        new: replacements of q, k and v, (..., L, D) each; only their tokens from `token` on are used.

    Returns:
        max |out'_i - out_i| over i < token; 0 for a causal mechanism.
    """
    edited = [torch.cat([old[..., :token, :], other[..., token:, :]], dim=-2)
              for old, other in zip((q, k, v), new, strict=True)]
    return float((attend(*edited) - attend(q, k, v))[..., :token, :].abs().max())


def mask_before(scores: Sequence[int], visible: Sequence[bool]) -> list[Fraction]:
    """Weigh the visible columns only: -inf before the softmax (base 2). This is the mask that attention needs."""
    weights = iter(softmax([score for score, seen in zip(scores, visible, strict=True) if seen]))
    return [next(weights) if seen else Fraction(0) for seen in visible]


def mask_after(scores: Sequence[int], visible: Sequence[bool]) -> list[Fraction]:
    """DGA Eq. 13 as printed: softmax over all columns, then times the 0-1 mask."""
    return [weight * seen for weight, seen in zip(softmax(scores), visible, strict=True)]


def mask_times(scores: Sequence[int], visible: Sequence[bool]) -> list[Fraction]:
    """LoCoCo Eq. 1 as printed: scores times the 0-1 mask, then softmax. A hidden score becomes 0, not -inf."""
    return softmax([score * seen for score, seen in zip(scores, visible, strict=True)])


def check_masking(weigh: Weigh) -> Finding:
    """Judge a mask: hidden columns have weight 0 and no influence, and rows sum to 1; L <= 4, scores -1, 0, 2, exact.

    The rows are those of a causal mask: the first i of L columns are visible.
    """
    cases = 0
    for seen, hidden in ((seen, total - seen) for total in range(1, 5) for seen in range(total, 0, -1)):
        visible = [True] * seen + [False] * hidden
        for scores in product((0, -1, 2), repeat=seen + hidden):
            cases += 1
            weights = weigh(scores, visible)
            calm = weigh([score * seen for score, seen in zip(scores, visible, strict=True)], visible)
            leaked = sum(weights[seen:], Fraction(0))
            if leaked or sum(weights) != 1 or weights != calm:
                return Finding(False, f"L={seen + hidden}, scores {list(scores)}, {hidden} hidden: weights "
                                      f"{', '.join(map(str, weights))}; the row sums to {sum(weights)}, {leaked} of it "
                                      "on hidden tokens",
                               {"row_sum": float(sum(weights)), "leaked": float(leaked)})
    return Finding(True, f"hidden columns weigh 0 and rows sum to 1 in {cases} of {cases} cases", {"cases": cases})


CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="D1.eq13", paper="DGA", place="Section 5, Eq. 13; Appendix D, Algorithm 2", check=check_masking,
        printed=mask_after, corrected=mask_before, formula=True,
        quote=(r"(\mathbf{A}_{i,j}^{\text{group}} \odot \mathbf{M}_{i,j}) \mathbf{V}_{j}^{\text{group}}",
               r"is the causing mask and $\odot$ is the element-product", "Construct 0-1 mask"),
        reading="The weights of row i are the softmax over all columns, times the 0-1 mask; what is left is to be "
                "attention to the visible columns [rows that sum to 1, without influence of the hidden ones].",
        verdict=Verdict.FALSE, strength=Strength.COUNTEREXAMPLE, weight=Weight.SLIP, repaired=Strength.PROOF,
        repair="the mask goes into the softmax: softmax(Q_i K^T / sqrt(d) + log M), as a flash kernel applies it",
        proof="The normaliser is a sum over all columns, the hidden ones included. With scores 0 and 0, row "
              "1 of 2 weighs itself 1/2 instead of 1, and 1/(1 + 2^s) once the hidden score is s: it depends "
              "on the future. Dividing each row by its sum repairs it as well.",
        example="""
import numpy as np

def first_row(hidden):                             # scores of the first of two tokens; the second is hidden
    weights = np.exp([0.0, hidden])
    return weights / weights.sum() * [1, 0]

print(first_row(0.0), first_row(3.0))              # wanted: [1, 0], whatever the future
assert first_row(0.0)[0] == 0.5 and first_row(3.0)[0] < 0.05
"""),
    *LIKELIHOOD,
)
