"""DGA's choice of focal tokens (Eq. 16) reads the future, prefers the first tokens, and has a causal variant.

The score of a token is its mean attention weight over all later queries: editing the last token can change which
tokens are focal, and so any earlier output. The checks judge the package's own `DGA`, whose masks are causal: with
choose="prompt", Eq. 16 as printed, and with choose="blocks", where the focal tokens of each block are chosen by its
own queries and keys.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction

import torch
from torch import Tensor

from cca_lab.mechanisms import DGA, full
from cca_lab.theory.causality import Attend, edit_leak, jacobian_leak
from cca_lab.theory.claim import Claim, Finding, Strength, Verdict

Matrix = Sequence[Sequence[Fraction]]
LENGTH, PREFIX = 24, 16
SIZES = {"group": 4, "gamma": 0.0, "floor": 4}  # 4 focal tokens at every length; groups of 4
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


def check_bias(score: Callable[[Matrix], list[Fraction]]) -> Finding:
    """Judge whether all tokens score the same under uniform attention, where none is preferred: L = 2 .. 24, exact."""
    for length in range(2, 25):
        scores = score(uniform_attention(length))
        if len(set(scores)) > 1:
            falling = all(a > b for a, b in zip(scores, scores[1:], strict=False))
            return Finding(False, f"L={length}, uniform attention: scores {', '.join(map(str, scores))}"
                                  f"{'; falling, so the top ones are the first tokens' if falling else ''}")
    return Finding(True, "equal scores under uniform attention for L = 2 .. 24")


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


CLAIMS = (
    Claim(
        id="D1.eq16", paper="DGA", place="Eq. 16; Algorithm 1, steps 1-2", check=check_choice,
        statement="focal tokens by mean attention over all queries, in a causal model",
        printed=attend_prompt, corrected=attend_blocks, verdict=Verdict.FALSE, strength=Strength.SPOT,
        repair="choose in blocks: a row reads its own block raw, finished blocks compressed by their own "
               "queries and keys",
        proof="s_t sums over later queries, and the choice of the top r compares all tokens, so a later "
              "token can move a token from focal to pooled in an earlier row. The choice is piecewise "
              "constant, so all derivatives are 0: only a finite edit shows it. In blocks, what a row reads "
              "is a function of tokens up to its own."),
    Claim(
        id="D1.bias", paper="DGA", place="Eq. 16", check=check_bias, printed=exact_mean, corrected=rescaled_mean,
        statement="s_i = sum_j A_ji / ||A_.i||_0 measures importance (so equal tokens score alike)",
        verdict=Verdict.DEPENDS, strength=Strength.EXACT,
        repair="scale row j by j before the mean: the expected score no longer depends on the position (its "
               "variance does)",
        proof="Under uniform attention row j gives 1/j to each token, so s_i = (H_L - H_(i-1)) / (L-i+1) "
              "(counted from 1), the mean of 1/j over j >= i, which falls with i: the top gamma L tokens are "
              "the first ones. With row j scaled by j every score is 1."),
)
