"""DGA's choice of focal tokens (Eq. 16) reads the future, may prefer the first tokens, and has a causal variant.

The score of a token is its mean attention weight over all later queries: editing the last token can change which
tokens are focal, and so any earlier output. The checks judge the package's own `DGA`, whose masks are causal: with
choose="prompt", Eq. 16 as printed, and with choose="blocks", where the focal tokens of each block are chosen by its
own queries and keys.
"""

import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from cca_lab.mechanisms import DGA, full
from cca_lab.theory.base_two import causal_attention
from cca_lab.theory.causality.masks import Attend, edit_leak, jacobian_leak
from cca_lab.theory.claim import Claim, Finding, Strength, Verdict, Weight

Matrix = Sequence[Sequence[Fraction]]
Score = Callable[[Matrix], list[Fraction]]
Model = Callable[[int], tuple[list[list[Fraction]], set[int]]]  # L -> (attention, the important tokens)
LENGTH, PREFIX = 24, 16
SIZES: dict[str, Any] = {"group": 4, "gamma": 0.0, "floor": 4}  # 4 focal tokens at every length; groups of 4
DRAWS = 120


def attend_prompt(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """DGA with Eq. 16 as printed: focal tokens chosen from the whole text; q, k, v and the output are (L, D)."""
    return DGA(choose="prompt", **SIZES).attention(q[None, None], k[None, None], v[None, None])[0, 0]


def attend_blocks(q: Tensor, k: Tensor, v: Tensor, *, block: int = 8) -> Tensor:
    """The causal variant: focal tokens chosen in each finished block alone; q, k, v and the output are (L, D)."""
    return DGA(choose="blocks", block=block, **SIZES).attention(q[None, None], k[None, None], v[None, None])[0, 0]


def check_choice(attend: Attend) -> Finding:
    """Judge whether outputs stay if the last token is edited, or a prefix is read alone: 120 draws of 24 tokens."""
    moved = prefix = 0
    largest = derivative = 0.0
    for seed in range(DRAWS):
        generator = torch.Generator().manual_seed(seed)
        q, k, v, *new = torch.randn(6, LENGTH, 2, generator=generator, dtype=torch.float64)
        change = edit_leak(attend, q, k, v, LENGTH - 1, [3 * x for x in new])
        moved += change > 1e-12
        largest = max(largest, change)
        if seed % 4 == 0:
            shorter, whole = attend(q[:PREFIX], k[:PREFIX], v[:PREFIX]), attend(q, k, v)[:PREFIX]
            prefix += bool((shorter - whole).abs().max() > 1e-12)
        if seed < 2:
            derivative = max(derivative, jacobian_leak(attend, q, k, v, LENGTH - 1))
    numbers = {"draws": DRAWS, "moved": moved, "largest_change": round(largest, 3), "largest_derivative": derivative,
               "prefix_differs": prefix}
    if moved or prefix or derivative:
        return Finding(False, f"editing the last of 24 tokens moves earlier outputs in {moved} of {DRAWS} draws (by "
                              f"up to {largest:.1f}); the Jacobian reads {derivative:g}; 16 tokens alone differ in "
                              f"{prefix} of {DRAWS // 4}", numbers)
    return Finding(True, f"largest change 0 in {DRAWS} draws, Jacobian 0, 16 tokens alone equal", numbers)


def exact_mean(weights: Matrix) -> list[Fraction]:
    """Eq. 16 in fractions: sum_j A_jt / (L - t)."""
    length = len(weights)
    return [sum((row[t] for row in weights), Fraction(0)) / (length - t) for t in range(length)]


def rescaled_mean(weights: Matrix) -> list[Fraction]:
    """Eq. 16 with each row scaled by its number of visible tokens: sum_j (j + 1) A_jt / (L - t)."""
    return exact_mean([[(j + 1) * weight for weight in row] for j, row in enumerate(weights)])


def uniform_attention(length: int) -> list[list[Fraction]]:
    """Return attention in which every row weighs its past equally: A_jt = 1 / (j + 1)."""
    return [[Fraction(int(t <= j), j + 1) for t in range(length)] for j in range(length)]


def none_important(length: int) -> tuple[list[list[Fraction]], set[int]]:
    """A model of attention: every row weighs its past evenly, and no token is more important than another."""
    return uniform_attention(length), set()


def one_important(length: int) -> tuple[list[list[Fraction]], set[int]]:
    """A model of attention: the middle token has half of every row that sees it; the rest is even."""
    middle = length // 2
    rows = [[Fraction(int(t <= j), j + 1) for t in range(length)] for j in range(middle)]
    rows += [[Fraction(int(t <= j), 2 * j) if t != middle else Fraction(1, 2) for t in range(length)]
             for j in range(middle, length)]
    return rows, {middle}


def check_importance(subject: tuple[Score, Sequence[Model]]) -> Finding:
    """Judge whether a score ranks the important tokens first, and all tokens alike where none is: L = 4 .. 24, exact.

    Args:
        subject: the score, and the models of attention on which it is judged.
    """
    score, models = subject
    for model in models:
        for length in range(4, 25):
            weights, important = model(length)
            scores = score(weights)
            first = sorted(range(length), key=scores.__getitem__, reverse=True)[: len(important)]
            if important and set(first) != important:
                return Finding(False, f"L={length}: token {first[0] + 1} has the highest score, {scores[first[0]]}, "
                                      f"but token {min(important) + 1} has half of every row that sees it")
            if not important and len(set(scores)) > 1:
                falling = all(a > b for a, b in zip(scores, scores[1:], strict=False))
                return Finding(False, f"L={length}, even attention: scores {', '.join(map(str, scores))}"
                                      f"{'; falling, so the top ones are the first tokens' if falling else ''}")
    return Finding(True, "important tokens score highest, and equal ones alike, for L = 4 .. 24")


def printed_norm(i: int, length: int) -> int:
    """Section 5.2: the number of non-zero entries in column i, counted from 1."""
    return length - i + 1


def check_norm(norm: Callable[[int, int], int]) -> Finding:
    """Judge the number of non-zero entries of each column of causal attention: L <= 12, scores in -40 .. 40, exact."""
    scores = random.Random(0)
    for length in range(1, 13):
        weights = causal_attention([[scores.randint(-40, 40) for _ in range(length)] for _ in range(length)])
        for i in range(1, length + 1):
            count = sum(row[i - 1] != 0 for row in weights)
            if norm(i, length) != count:
                return Finding(False, f"L={length}: column {i} has {count} non-zero entries, claimed {norm(i, length)}")
    return Finding(True, "right for every column of L <= 12")


def focal_thirds(rescale: bool, length: int = 300, share: float = 0.1, seeds: int = 20) -> list[float]:
    """Return the shares of chosen tokens in each third of the text, for independent normal logits."""
    positions, identity = [], torch.eye(length, dtype=torch.float64)[None, None]
    rows_seen = torch.arange(length, 0, -1, dtype=torch.float64)
    for seed in range(seeds):
        logits = torch.randn(1, 1, length, length, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        weights = full.effective(logits, identity, scale=1.0)[0, 0]           # each query is its row of logits
        if rescale:
            weights = weights * torch.arange(1, length + 1, dtype=torch.float64)[:, None]
        positions.append((weights.sum(dim=0) / rows_seen).topk(int(share * length)).indices)
    third = torch.cat(positions) * 3 // length
    return [float((third == part).double().mean()) for part in range(3)]


CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="D1.eq16", paper="DGA", place="Section 5.1; Section 5.2, Eq. 16", check=check_choice, formula=True,
        quote=("We then mask inaccessible keys and values due to the autoregressive nature",
               r"s_{i} = \frac{\sum_{j=1}^{L} \mathbf{A}_{j,i}}{\|\mathbf{A}_{\cdot,i}\|_{0}}"),
        reading="With the masks [the repaired ones], row i depends on tokens up to i only, where the focal tokens are "
                "those with the highest mean weight over all L queries.",
        printed=attend_prompt, corrected=attend_blocks, verdict=Verdict.FALSE, strength=Strength.COUNTEREXAMPLE,
        weight=Weight.SUBSTANCE, repaired=Strength.PROOF,
        repair="choose in blocks: a row reads its own block raw, finished blocks compressed by their own "
               "queries and keys",
        proof="s_t sums over later queries, and the choice of the top r compares all tokens, so a later "
              "token can move a token from focal to pooled in an earlier row. The choice is piecewise "
              "constant, so all derivatives are 0: only a finite edit shows it. In blocks, what a row reads "
              "is a function of tokens up to its own.",
        example="""
from fractions import Fraction as F

def third_row(last):                               # L = 4, m = 2, two focal tokens; rows 1 to 3 attend evenly
    rows = [[F(1)], [F(1, 2)] * 2, [F(1, 3)] * 3, last]
    s = [sum(row[t] for row in rows[t:]) / (4 - t) for t in range(4)]          # Eq. 16
    focal = sorted(sorted(range(4), key=lambda t: -s[t])[:2])
    group = [t for t in range(4) if t not in focal]
    if group[1] > 2:                               # the group is open in row 3: it reads all three tokens raw
        return [F(1, 3)] * 3
    weights = {t: F(1, 2) for t in focal if t <= 2} | {t: F(1, 4) for t in group}  # a focal token, a pooled group
    return [weights[t] for t in range(3)]

even, late = [F(1, 4)] * 4, [F(0), F(0), F(1, 2), F(1, 2)]
print(*third_row(even), "|", *third_row(late))     # only the last row was changed
assert third_row(even) != third_row(late)
"""),
    Claim(
        id="D1.bias", paper="DGA", place="Section 5.2, Eq. 16", check=check_importance,
        printed=(exact_mean, (none_important, one_important)),
        corrected=(rescaled_mean, (none_important, one_important)),
        quote=("Evaluating the importance of the token is crucial for our group-oriented attention",
               "we employ an importance score s by computing accumulated attention weights"),
        reading="The mean weight that a token gets from the rows that see it measures its importance [important tokens "
                "score highest, and equally important ones alike].",
        verdict=Verdict.DEPENDS, strength=Strength.COUNTEREXAMPLE, repaired=Strength.PROOF, weight=Weight.SUBSTANCE,
        models={"one token that has half of every row that sees it": ((exact_mean, (one_important,)), True),
                "even attention, in which no token is preferred": ((exact_mean, (none_important,)), False)},
        repair="scale row j by j before the mean: the expected score no longer depends on the position (its "
               "variance does)",
        proof="Under even attention row j gives 1/j to each token, so s_i = (H_L - H_(i-1)) / (L-i+1) "
              "(counted from 1), the mean of 1/j over j >= i, which falls with i: the top gamma L tokens are "
              "the first ones. With row j scaled by j every score is 1. A token with half of every row scores 1/2, and "
              "the first one less from L = 4 on.",
        example="""
L = 10
attention = [[1 / (j + 1) if t <= j else 0 for t in range(L)] for j in range(L)]   # no token is preferred
s = [sum(row[t] for row in attention) / (L - t) for t in range(L)]                 # Eq. 16
print([round(x, 2) for x in s])
assert s == sorted(s, reverse=True) and s[0] > 2.5 * s[-1]
"""),
    Claim(
        id="D1.norm", paper="DGA", place="Section 5.2, Eq. 16", check=check_norm, printed=printed_norm, formula=True,
        quote="which will be L-i+1 for the decoder-only based transformer",
        reading="Column i of causal attention has L - i + 1 non-zero entries [counted from 1; of all L queries, in "
                "real numbers].",
        verdict=Verdict.HOLDS, strength=Strength.PROOF,
        proof="Rows i to L see token i, and a softmax weight is positive. For the sampled queries of Eq. 17, which "
              "have fewer rows, it is the number of sampled queries from i on; Eq. 17 prints no mask, and needs one."),
)
