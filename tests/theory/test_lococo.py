"""LoCoCo's convolution and its memory, where the article and the claims do not run them."""

import pytest
import torch

from cca_lab.theory.compression import convolution, memory


@pytest.mark.parametrize(("count", "holds"), [(20, True), (22, False), (44, False)])
def test_equal_windows_begin_with_22_tokens(count, holds):
    """With fewer the padding tells the two tokens apart; eviction could then be imitated."""
    different = convolution.check_convolution(convolution.keys_and_values, count).numbers
    assert (different["different"] > 0) == holds


def test_the_convolution_equals_torch():
    channels = [[t % 5 - 2 for t in range(30)], [t % 3 for t in range(30)]]
    kernel = [[(tap * 7) % 5 - 2 for tap in range(21)], [(tap * 3) % 7 - 3 for tap in range(21)]]
    wanted = torch.conv1d(torch.tensor([channels]).float(), torch.tensor([kernel]).float(),
                          padding=10)[0, 0]
    assert [float(x) for x in convolution.convolution(channels, kernel)] == wanted.tolist()


def test_segments_by_hand():
    """M = 3, B = 2: filled with one segment, compressed from the second on."""
    assert memory.run(3, 2, 3) == [(4, 0, 2), (8, 12, 3), (10, 15, 3)]
    assert memory.run(3, 2, None) == [(4, 0, 2), (8, 0, 4), (12, 0, 6)]
