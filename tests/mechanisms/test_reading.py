"""What rows read, by their outputs: against what each mechanism says, and its columns."""

import pytest
import torch

from cca_lab.mechanisms import CCA, MECHANISMS
from cca_lab.mechanisms.reading import held
from tests.mechanisms import bench
from tests.mechanisms.options import WHOLE_PAST
from tests.mechanisms.test_every_mechanism import CASES, label

# no module: all are linear
CASES = [(name, options) for name, options in CASES if options.get("pooling") != "max"]
POOLING = {"cca", "dga", "lococo", "mean_pooling", "kept_heads"}


@pytest.mark.parametrize(("name", "options"), CASES, ids=label)
def test_what_is_held_is_what_is_represented(name, options):
    q, k, _ = bench.inputs(11)
    mechanism, past = MECHANISMS[name](**options), torch.ones(11, 11, dtype=torch.bool).tril()
    wanted = past.expand(2, -1, -1) if name in WHOLE_PAST else mechanism.represented(q, k)[0]
    got = held(mechanism, q, k)
    assert torch.equal(got > 0, wanted)
    if name in POOLING:
        most = options["group"] if options.get("proportional") else 1  # columns count g times
        assert (got <= most + 1e-12).all() and (got.diagonal(dim1=-2, dim2=-1) == 1).all()
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
