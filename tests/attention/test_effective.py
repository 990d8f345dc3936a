"""The effective attention E = A P: against the outputs it must explain, and what does not fit it."""

import pytest
import torch

from cca_lab.attention import (
    causal_intervals,
    effective_attention,
    interval_attention,
    pool_groups,
    pooling_matrix,
    visible_mask,
)
from tests.attention import bench
from tests.mechanisms.bench import assert_close, inputs

LENGTH, GROUP, WINDOW = 23, 4, 6


def pooled_inputs(per_query_head: bool):
    """q, raw v, and the columns [cores ; raw] of a CCA attention: keys, values, P and intervals."""
    q, k, v = inputs(LENGTH, batch=2, heads=4, kv_heads=2)
    table = bench.window_table(LENGTH, WINDOW, GROUP, cores=True)
    count = int(table[-1, 0, 1])
    core_k, core_v, phi = pool_groups(q, k, v, GROUP, count=count, per_query_head=per_query_head,
                                      return_phi=True)
    if per_query_head:
        k, v = (x.repeat_interleave(2, dim=1) for x in (k, v))
    identity = torch.eye(LENGTH, dtype=q.dtype).expand(2, k.shape[1], -1, -1)
    pooling = torch.cat([pooling_matrix(phi, LENGTH), identity], dim=2)
    return q, v, torch.cat([core_k, k], dim=2), torch.cat([core_v, v], dim=2), pooling, table[None, None]


@pytest.mark.parametrize("per_query_head", [False, True])
def test_effective_attention_times_the_raw_values_is_the_output(per_query_head):
    q, v, keys, values, pooling, intervals = pooled_inputs(per_query_head)
    effective = effective_attention(q, keys, intervals, pooling)
    wanted = interval_attention(q, keys, values, intervals, backend="dense")
    assert effective.shape == (2, 4, LENGTH, LENGTH)
    assert_close(effective @ v.repeat_interleave(4 // v.shape[1], dim=1), wanted, "E v against the output")
    assert_close(effective.sum(-1), torch.ones(2, 4, LENGTH, dtype=q.dtype), "row sums of E")
    assert torch.equal(effective > 0, visible_mask(causal_intervals(LENGTH), LENGTH).expand(effective.shape))


def test_identity_pooling_gives_the_attention_matrix_and_scale_is_passed_on():
    q, k, _ = inputs(9, heads=2)
    identity = torch.eye(9, dtype=q.dtype)[None, None]
    for scale in (None, 1.7):
        effective = effective_attention(q, k, causal_intervals(9), identity, scale=scale)
        values = torch.eye(9, dtype=q.dtype)[None, None]
        wide = [torch.nn.functional.pad(x, (0, 5)) for x in (q, k)]
        wanted = interval_attention(*wide, values, causal_intervals(9), scale=0.5 if scale is None else scale)
        assert_close(effective, wanted, "E against V = identity")


@pytest.mark.parametrize("shape", [(1, 1, 9, 8), (1, 3, 9, 9), (2, 1, 9, 9), (9, 9)], ids=str)
def test_pooling_that_does_not_fit_is_named(shape):
    q, k, _ = inputs(9, heads=2)
    with pytest.raises(ValueError, match="pooling: got shape"):
        effective_attention(q, k, causal_intervals(9), torch.zeros(shape))


def test_bad_intervals_are_named():
    q, k, _ = inputs(9, heads=2)
    with pytest.raises(ValueError, match="intervals: got shape"):
        effective_attention(q, k, causal_intervals(8), torch.zeros(1, 1, 9, 9))
