"""Wrong measurements: caches filled with too little, masks that read too much, kernels that compute
something else."""

import torch
from torch import Tensor

from cca_lab.studies.benchmarks import flex

RIGHT_MASK = flex.cca_mask


def window_without_the_open_group(right):
    """Fill CCA's cache with the tokens of the window alone, without those of the group that is
    still open."""
    def fill(state, length, heads, draw) -> None:
        right(state, length, heads, draw)
        state.raw_key, state.raw_value = (x[:, :, -state.window :]
                                          for x in (state.raw_key, state.raw_value))

    return fill


def mask_one_token_early(group: int, window: int, cores: int):
    """Read the last token of the newest core raw as well, as the k that the paper prints does."""
    right = RIGHT_MASK(group, window, cores)
    return lambda batch, head, row, column: (right(batch, head, row, column)
                                             | right(batch, head, row, column - 1))


def forgets_the_last_row(out: Tensor) -> Tensor:
    """Leave the last row as the memory was."""
    stored = torch.empty_like(out)
    stored[:, :, :-1] = out[:, :, :-1]
    return stored


def drops_a_thousandth_of_the_mean(out: Tensor) -> Tensor:
    """Miss a little of what all rows have in common."""
    return out - 1e-3 * out.mean(dim=2, keepdim=True)


def a_thousandth_too_large(out: Tensor) -> Tensor:
    """Normalise by a sum that is a little too small."""
    return 1.001 * out


KERNELS = (forgets_the_last_row, drops_a_thousandth_of_the_mean, a_thousandth_too_large)
