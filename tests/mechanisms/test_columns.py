"""Columns: the output, E = A P and what is represented, of one set and of several; refusals."""


import pytest
import torch
from torch import Tensor

from cca_lab.attention import (
    causal_intervals,
    interval_attention,
    pool_groups,
    pooling_matrix,
    visible_mask,
)
from cca_lab.attention.dense import expand_heads
from cca_lab.mechanisms import columns
from cca_lab.mechanisms.columns import Columns
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
    return q, v, torch.cat([core_k, k], dim=2), torch.cat([core_v, v], dim=2), pooling, table[None,
                                                                                              None]


@pytest.mark.parametrize("per_query_head", [False, True])
def test_effective_times_the_raw_values_is_the_output(per_query_head):
    q, v, keys, values, pooling, intervals = pooled_inputs(per_query_head)
    parts = [Columns(q, keys, values, intervals, lambda: pooling)]
    effective = columns.effective(parts, 0.5)
    assert_close(columns.attend(parts, 0.5, "blocked"), effective @ expand_heads(v, 4), "output")
    assert torch.equal(columns.represented(parts), effective > 0)
    wanted = interval_attention(q, keys, values, intervals, backend="dense")
    assert effective.shape == (2, 4, LENGTH, LENGTH)
    assert_close(effective @ v.repeat_interleave(4 // v.shape[1], dim=1), wanted,
                 "E v against the output")
    assert_close(effective.sum(-1), torch.ones(2, 4, LENGTH, dtype=q.dtype), "row sums of E")
    assert torch.equal(effective > 0,
                       visible_mask(causal_intervals(LENGTH), LENGTH).expand(effective.shape))


def test_columns_that_are_tokens_give_the_attention_matrix():
    q, k, _ = inputs(9, heads=2)
    identity = torch.eye(9, dtype=q.dtype)[None, None]
    for scale, pooling in ((0.5, None), (1.7, lambda: identity)):
        effective = columns.effective([Columns(q, k, k, causal_intervals(9), pooling)], scale)
        values = torch.eye(9, dtype=q.dtype)[None, None]
        wide = [torch.nn.functional.pad(x, (0, 5)) for x in (q, k)]
        wanted = interval_attention(*wide, values, causal_intervals(9), scale=scale)
        assert_close(effective, wanted, "E against V = identity")


def two_parts(first_row: int) -> tuple[list[Columns], Tensor, Tensor]:
    """Causal attention cut in two: each row's own half of the tokens, and the tokens before it."""
    q, k, v = inputs(9, batch=2, heads=4, kv_heads=2)
    ends = torch.arange(1, 10)
    own = torch.stack([torch.where(ends > first_row, first_row, 0), ends], dim=-1)[None, None, :,
                                                                                   None]
    far = torch.tensor([0, first_row]).expand(1, 1, 9 - first_row, 1, 2).contiguous()
    parts = [Columns(q, k, v, own), Columns(q[:, :, first_row:], k[:, :, :first_row],
                                            v[:, :, :first_row], far, first_row=first_row)]
    return parts, v, columns.effective([Columns(q, k, v, causal_intervals(9))], 0.5)


@pytest.mark.parametrize("first_row", [1, 4, 8])
def test_two_parts_are_one_softmax(first_row):
    parts, v, wanted = two_parts(first_row)
    assert_close(columns.effective(parts, 0.5), wanted, "effective")
    assert torch.equal(columns.represented(parts), wanted > 0)
    for backend in ("dense", "blocked"):
        assert_close(columns.attend(parts, 0.5, backend), wanted @ v.repeat_interleave(2, dim=1),
                     backend)
