"""What rows read, by their outputs: against what each mechanism says, and its columns."""

import pytest
import torch

from cca_lab.mechanisms import CCA, MECHANISMS
from cca_lab.mechanisms.reading import columns_of_row, held
from tests.mechanisms import bench
from tests.mechanisms.options import WHOLE_PAST
from tests.mechanisms.test_every_mechanism import CASES, label

# no module: all are linear
CASES = [(name, options) for name, options in CASES if options.get("pooling") != "max"]
POOLING = {"cca", "dga", "lococo", "mean_pooling"}


@pytest.mark.parametrize(("name", "options"), CASES, ids=label)
def test_what_is_held_is_what_is_represented(name, options):
    q, k, _ = bench.inputs(11)
    mechanism, past = MECHANISMS[name](**options), torch.ones(11, 11, dtype=torch.bool).tril()
    wanted = past.expand(2, -1, -1) if name in WHOLE_PAST else mechanism.represented(q, k)[0]
    got = held(mechanism, q, k)
    assert torch.equal(got > 0, wanted)
    if name in POOLING:
        assert (got <= 1 + 1e-12).all() and (got.diagonal(dim1=-2, dim2=-1) == 1).all()
    else:
        bench.assert_close(got, wanted.double(), "held")


@pytest.mark.parametrize(("group", "window"), [(2, 4), (3, 2), (4, 1)])
def test_cca_s_columns_are_found(group, window):
    q, k, _ = bench.inputs(11)
    mechanism = CCA(group=group, window=window)
    (part,) = mechanism.columns(q, k, k, mechanism.call(q, k, k))
    # P (C + L, L) and (L, C + L) of head 0
    pools, visible = part.pooling()[0, 0], part.mask()[0, 0]
    bench.assert_close(held(mechanism, q, k)[0], visible.double() @ pools, "held")
    for row in range(11):
        bench.assert_close(columns_of_row(mechanism, q, k, row), pools[visible[row]],
                           f"columns of row {row}", 1e-9)


@pytest.mark.parametrize("name", ["h2o", "vertical_slash", "block_sparse", "a_shape"])
def test_without_pooling_each_column_is_a_token(name):
    q, k, _ = bench.inputs(11)
    mechanism = MECHANISMS[name](**next(options for case, options in CASES if case == name))
    read = mechanism.represented(q, k)[0, 1, 10].nonzero().flatten()
    wanted = torch.eye(11, dtype=torch.float64)[read]
    bench.assert_close(columns_of_row(mechanism, q, k, 10, head=1), wanted, "columns")
