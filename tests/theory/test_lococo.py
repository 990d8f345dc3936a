"""LoCoCo's convolution and its memory, where the article and the claims do not run them."""

import pytest
import torch

from cca_lab.theory import compression


@pytest.mark.parametrize(("count", "holds"), [(20, True), (22, False), (44, False)])
def test_equal_windows_begin_with_22_tokens(count, holds):
    """With fewer the padding tells the two tokens apart; eviction could then be imitated."""
    assert (compression.separating(count) > 0) == holds


def test_the_convolution_equals_torch():
    channels = [[t % 5 - 2 for t in range(30)], [t % 3 for t in range(30)]]
    kernel = [[(tap * 7) % 5 - 2 for tap in range(21)], [(tap * 3) % 7 - 3 for tap in range(21)]]
    wanted = torch.conv1d(torch.tensor([channels]).float(), torch.tensor([kernel]).float(),
                          padding=10)[0, 0]
    assert [float(x) for x in compression.convolution(channels, kernel)] == wanted.tolist()
