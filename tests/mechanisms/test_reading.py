"""What rows read, found from outside: against what each mechanism says of itself, and against its columns."""

import pytest
import torch

from cca_lab.attention import visible_mask
from cca_lab.mechanisms import MECHANISMS, cca
from cca_lab.mechanisms.reading import columns_of_row, held
from tests.mechanisms import bench
from tests.mechanisms.test_every_mechanism import CASES, label, linear

CASES = [case for case in CASES if linear(*case)]
POOLING = {"cca", "dga", "lococo", "mean_pooling"}


@pytest.mark.parametrize(("name", "options"), CASES, ids=label)
def test_what_is_held_is_what_is_represented(name, options):
    q, k, _ = bench.inputs(11)
    mechanism, past = MECHANISMS[name], torch.ones(11, 11, dtype=torch.bool).tril()
    wanted = past.expand(2, -1, -1) if mechanism.represented is None else mechanism.represented(q, k, **options)[0]
    got = held(mechanism, q, k, **options)
    assert torch.equal(got > 0, wanted)
    if name in POOLING:
        assert (got <= 1 + 1e-12).all() and (got.diagonal(dim1=-2, dim2=-1) == 1).all()
    else:
        bench.assert_close(got, wanted.double(), "held")


def cca_columns(q: torch.Tensor, k: torch.Tensor, group: int, window: int) -> tuple[torch.Tensor, torch.Tensor]:
    """P (C + L, L) and visible (L, C + L) of head 0, from the module's own parts."""
    _, _, phi = cca.columns(q, k, k, group, window, None, None, False, "softmax", return_phi=True)
    cores = cca.core_count(11, group, window)
    pools = torch.cat([cca.pooling_matrix(phi[0, 0], 11), torch.eye(11, dtype=phi.dtype)])
    return pools, visible_mask(cca.intervals(11, group, window), cores + 11)[0, 0]


@pytest.mark.parametrize(("group", "window"), [(2, 4), (3, 2), (4, 1)])
def test_cca_s_columns_are_found(group, window):
    q, k, _ = bench.inputs(11)
    pools, visible = cca_columns(q, k, group, window)
    options = {"group": group, "window": window}
    bench.assert_close(held(MECHANISMS["cca"], q, k, **options)[0], visible.double() @ pools, "held")
    for row in range(11):
        got = columns_of_row(MECHANISMS["cca"], q, k, row, **options)
        bench.assert_close(got, pools[visible[row]], f"columns of row {row}", 1e-9)


@pytest.mark.parametrize("name", ["h2o", "vertical_slash", "block_sparse", "a_shape"])
def test_without_pooling_each_column_is_a_token(name):
    q, k, _ = bench.inputs(11)
    options = dict(next(options for case, options in CASES if case == name))
    read = MECHANISMS[name].represented(q, k, **options)[0, 1, 10].nonzero().flatten()
    wanted = torch.eye(11, dtype=torch.float64)[read]
    bench.assert_close(columns_of_row(MECHANISMS[name], q, k, 10, head=1, **options), wanted, "columns")
