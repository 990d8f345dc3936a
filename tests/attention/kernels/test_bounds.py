"""No kernel reads or writes outside of its arguments; the sanitizer notices every missing mask."""

import itertools

import pytest
import torch

from cca_lab.attention.kernels import (
    decode,
    eviction,
    interval_backward,
    interval_forward,
    pooling_kernels,
    vertical_slash,
)
from cca_lab.attention.kernels.tile_language import Argument
from tests.attention.kernels import (
    sanitizer,
    test_decode,
    test_eviction,
    test_interval,
    test_pooling,
    test_vertical_slash,
)
from tests.attention.kernels.bench import DEVICE, check_interval_attention

pytestmark = pytest.mark.skipif(torch.cuda.is_available(),
                                reason="accesses are watched in the interpreter only")


def interval_attention() -> None:
    """Forward and both backward kernels: tables, edges, padded head dims, strides, heads."""
    for length, head_dim in ((1, 16), (17, 20), (50, 16)):
        check_interval_attention(*test_interval.cca_case(length, 3, 7, head_dim=head_dim), 0.3)
    check_interval_attention(*test_interval.grouped_sources(), 0.25)
    # the last columns in a block that all rows see
    everything = torch.tensor([[0, 32]]).expand(1, 1, 16, 1, 2)
    check_interval_attention(*test_interval.inputs(16, 32, head_dim=20), everything, 0.3)


def pooling() -> None:
    """Pooling and its gradients, with and without rotation, small groups, a ragged end."""
    for rotated, (length, group, head_dim) in itertools.product(
            (False, True), ((5, 5, 20), (17, 4, 16), (33, 7, 16))):
        test_pooling.check_pooling(length, group, rotated=rotated, head_dim=head_dim)


def decoding() -> None:
    """Split and merge, with a last split that is not full; several spans; pieces with a bias."""
    for keys, splits, heads in ((1, 2, (4, 2)), (70, 5, (6, 3)), (65, 3, (4, 2))):
        test_decode.check_decode(keys, splits, heads=heads, head_dim=20)
    test_decode.check_table(test_decode.TABLES["sinks and a window"])
    test_decode.check_pieces([(2, 70), (2, 3)], "added")


def vertical() -> None:
    """Chosen columns and diagonals, blocks that fill no tile."""
    for length, block, head_dim in ((9, 1, 16), (37, 5, 20), (50, 24, 16)):
        test_vertical_slash.check(length, block, head_dim=head_dim)
    test_vertical_slash.check(16, 8, head_dim=20, vertical=16, slash=1, forced_vertical=0,
                              forced_slash=0)


CAMPAIGNS = {decode: decoding, eviction: test_eviction.check_rows,
             interval_backward: interval_attention, interval_forward: interval_attention,
             pooling_kernels: pooling, vertical_slash: vertical}
KERNELS = {f"{module.__name__.rpartition('.')[2]}.{name}": (kernel, campaign)
           for module, campaign in CAMPAIGNS.items() for name, kernel in vars(module).items()
           if isinstance(kernel, type(decode.decode_split))
           and kernel.fn.__module__ == module.__name__}
HARMLESS = {("vertical_slash.attend_gathered",
             1): "a lane without a column has column 0, whose entry exists",
            ("eviction.h2o_rows",
             2): "a lane without an entry has token 0, whose logit exists"}
PLANTED = [(name, number) for name, (kernel, _) in KERNELS.items()
           for number in range(sanitizer.masked_accesses(kernel))]


@pytest.mark.parametrize("campaign", dict.fromkeys(CAMPAIGNS.values()),
                         ids=lambda campaign: campaign.__name__)
def test_nothing_outside_is_touched(campaign):
    with sanitizer.watched() as watch:
        campaign()
    assert watch.lanes > 1000


@pytest.mark.parametrize(("name", "number"), PLANTED)
def test_every_mask_that_is_left_out_is_found(name, number):
    kernel, campaign = KERNELS[name]
    noticed = False
    with sanitizer.watched(), sanitizer.unmasked(kernel, number):
        try:
            campaign()
        except IndexError:
            noticed = True
        except AssertionError:  # the result may be wrong before a lane is outside
            pass
    assert noticed == ((name, number) not in HARMLESS)


def test_a_view_does_not_allow_what_lies_around_it():
    x = torch.zeros(4, 6, device=DEVICE)[1:3, :4]
    assert len(Argument.of("x", x).memory) == 6 + 3 + 1
