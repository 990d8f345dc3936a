"""Reachability of every mechanism: which tokens a row reads in one layer, and through several.

In a stack of layers token t reaches row i if there is a chain t = i_0 <= i_1 <= ... <= i_n = i in which each
row reads the one before it. Chains are counted with boolean matrix powers. A layer adds its input to its
output, so every row reads itself.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from cca_lab.mechanisms import Mechanism
from cca_lab.theory.claim import Claim, Finding, Strength, Verdict

NEVER = 0  # the entry of a pair that no number of layers connects


def layer_reach(mechanism: Mechanism, length: int, *, heads: int = 2, head_dim: int = 8, seed: int = 0) -> Tensor:
    """Return which tokens each row of one layer reads, in any of its heads, for random queries and keys.

    Args:
        mechanism: with its options.
        length: L.
        heads, head_dim, seed: of the random q and k, float64.

    Returns:
        bool (L, L).
    """
    generator = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, 1, heads, length, head_dim, generator=generator, dtype=torch.float64)
    return mechanism.represented(q, k)[0].any(dim=0)


def through(reach: Tensor, layers: int) -> Tensor:
    """Return which tokens reach each row through `layers` equal layers.

    Args:
        reach: bool (L, L) of one layer.
        layers: at least 1.

    Returns:
        bool (L, L).
    """
    step = (reach | torch.eye(len(reach), dtype=torch.bool)).double()
    state = step
    for _ in range(layers - 1):
        state = ((state @ step) > 0).double()  # (row to middle) and (middle to token), for some middle
    return state > 0


def layers_needed(reach: Tensor) -> Tensor:
    """Return the number of layers after which each token reaches each row.

    Args:
        reach: bool (L, L) of one layer.

    Returns:
        int64 (L, L): 1 where one layer is enough, NEVER (0) where no number of layers is.
    """
    needed = torch.full(reach.shape, NEVER, dtype=torch.int64)
    before = torch.zeros_like(reach)
    for layers in range(1, len(reach) + 1):
        now = through(reach, layers)
        if torch.equal(now, before):
            break
        needed[now & ~before] = layers
        before = now
    return needed


def window_reach(length: int, window: int) -> Tensor:
    """Return which tokens a row reads in a window of the nearest tokens, its own included: bool (L, L)."""
    return torch.ones(length, length, dtype=torch.bool).tril().triu(1 - window)


def layers_of_window(distance: int, window: int) -> int:
    """Return the layers needed to span a distance with a window of w tokens: max(1, ceil(distance / (w - 1)))."""
    return max(1, -(-distance // (window - 1)))


def check_depth(needed: Callable[[int, int], int]) -> Finding:
    """Judge the claimed number of layers for each distance: L = 24, windows 2 .. 8, every pair of tokens."""
    length, pairs = 24, 0
    for window in range(2, 9):
        measured = layers_needed(window_reach(length, window))
        for i in range(length):
            for t in range(i + 1):
                pairs += 1
                if measured[i, t] != needed(i - t, window):
                    said = needed(i - t, window)
                    claimed = "one layer says never" if said == NEVER else f"claimed {said}"
                    return Finding(False, f"window {window}, distance {i - t}: reached after {int(measured[i, t])} "
                                          f"layers, {claimed}",
                                   {"window": window, "distance": i - t, "layers": int(measured[i, t])})
    return Finding(True, f"right for all {pairs} pairs; 4096 tokens back takes {needed(4096, 1024)} layers with a "
                         "window of 1024", {"pairs": pairs})


CLAIMS = (
    Claim(
        id="P1.depth", paper="CCA", place="Section 2", check=check_depth, strength=Strength.EXACT,
        statement="efficient attention such as a window can not ensure that each token has access to all preceding "
                  "tokens",
        printed=lambda distance, window: 1 if distance < window else NEVER, corrected=layers_of_window,
        verdict=Verdict.HOLDS_IF,
        repair="in one layer. A stack of n layers with windows of w tokens, the row's own included, reaches "
               "n (w - 1) tokens back",
        proof="A chain of n rows, each at most w - 1 tokens after the one before, spans at most n (w - 1) "
              "tokens, and spans them if each step is w - 1. What differs from CCA is that the token is read "
              "through other tokens' states. The window here has no initial tokens: kept ones are read in one layer, "
              "those between still need the chain."),
)
