"""Reachability of every mechanism: which tokens a row reads in one layer, and through several.

In a stack of layers token t reaches row i if there is a chain t = i_0 <= i_1 <= ... <= i_n = i in
which each row reads the one before it. A layer adds its input to its output, so every row reads
itself.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from cca_lab.mechanisms import Mechanism
from cca_lab.theory.claim import Outcome, Subjects

# length L, window w, kept initial tokens a, layers n
CASES = [(length, window, sinks, layers) for length in range(3, 17) for window in range(2, 7)
         for sinks in range(3) for layers in range(1, 6) if window + sinks < length]


def layer_reach(mechanism: Mechanism, length: int, seed: int = 0) -> Tensor:
    """Return which tokens each row of one layer reads, for random queries and keys: bool (L, L)."""
    generator = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, 1, 2, length, 8, generator=generator, dtype=torch.float64)
    return mechanism.represented(q, k)[0].any(dim=0)


def through(reach: Tensor, layers: int) -> Tensor:
    """Return which tokens reach each row through `layers` layers of one reach: bool (L, L)."""
    step = (reach | torch.eye(len(reach), dtype=torch.bool)).double()
    state = step
    for _ in range(layers - 1):
        state = ((state @ step) > 0).double()  # row to middle and middle to token, for some middle
    return state > 0


def layers_needed(reach: Tensor) -> Tensor:
    """Return after how many layers each token reaches each row, 0 if never: int64 (L, L)."""
    needed = torch.zeros(reach.shape, dtype=torch.int64)
    before = torch.zeros_like(reach)
    for layers in range(1, len(reach) + 1):
        now = through(reach, layers)
        if torch.equal(now, before):
            break
        needed[now & ~before] = layers
        before = now
    return needed


def window_reach(length: int, window: int, sinks: int = 0) -> Tensor:
    """Return which tokens a row reads, its nearest `window` and the first `sinks`: bool (L, L)."""
    reach = torch.ones(length, length, dtype=torch.bool).tril()
    return reach & (reach.triu(1 - window) | (torch.arange(length) < sinks))


def loses_some(length: int, window: int, sinks: int, layers: int) -> bool:
    """Whether a stack of windows leaves a token out of some later row: n (w - 1) < L - 1 - a."""
    return layers * (window - 1) < length - 1 - sinks


def check_depth(lost: Callable[[int, int, int, int], bool], most_layers: int = 5) -> Outcome:
    """Judge when some row gets nothing of some earlier token: L <= 16, w <= 6, a <= 2, n <= 5."""
    cases = [case for case in CASES if case[-1] <= most_layers]
    for length, window, sinks, layers in cases:
        past = torch.ones(length, length, dtype=torch.bool).tril()
        left_out = bool((past & ~through(window_reach(length, window, sinks), layers)).any())
        if lost(length, window, sinks, layers) != left_out:
            return Outcome(False, f"L={length}, windows of {window}, {sinks} kept initial tokens, "
                           f"{layers} layers: some row gets "
                           f"{'nothing of some token' if left_out else 'every earlier token'}")
    return Outcome(True, f"right in {len(cases)} cases; 32 layers of windows of 2000 reach "
                   f"{32 * 1999} tokens back, less than 128K and more than 32K")


SUBJECTS = {"P1.depth": Subjects(partial(check_depth, most_layers=1), lambda *case: True)}
