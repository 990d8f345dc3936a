"""CCA attention: indices by brute force, pooling, rotation, and a row worked by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cca_lab.mechanisms import CCA, full
from cca_lab.mechanisms.cca import groups
from tests.mechanisms import bench
from tests.mechanisms.forms import form

DENSE = form(CCA, "attention", backend="dense")
small, few = st.integers(1, 12), st.integers(0, 9)


# ---------------------------------------------------------------- which columns a row reads

@settings(max_examples=60, deadline=None)
@given(length=st.integers(1, 40), group=small, window=small, sinks=few)
def test_intervals_read_each_past_token_once(length, group, window, sinks):
    """Any g, s, S, L: raw or in one core, never twice, never the future; the s nearest are raw."""
    first = min(sinks, length)
    count = groups.core_count(length - first, group, window)
    token = torch.arange(length)
    held_by_core = ((token >= first) & ((token - first) // group == torch.arange(count)[:, None]))
    raw = torch.eye(length, dtype=torch.long)
    held = torch.cat([held_by_core.long(), raw])                                    # (C + L, L)
    column = torch.arange(count + length)
    table = groups.intervals(length, group, window, sinks=sinks)
    starts, ends = table[0, 0].unbind(-1)                                  # (L, 2 or 3) each
    assert table.shape == (1, 1, length, 3 if sinks else 2, 2)
    visible = ((column >= starts[..., None]) & (column < ends[..., None])).sum(1)  # (L, C + L)
    past = (token <= token[:, None]).long()
    assert torch.equal(visible @ held, past)
    singly = visible[:, count:]                                                     # (L, L)
    assert torch.equal((singly * past).sum(1), singly.sum(1))
    kept = (token > token[:, None] - window) | (token < first)
    assert singly[kept & past.bool()].all()
    behind = groups.pairs(length - first, group, window) if first < length else 0
    assert int(visible.sum()) == behind + first * (length - first) + first * (first + 1) // 2


def test_the_published_sizes():
    """Table 9's setting at 128K: the paper's 4.5 GB of LLaMA2-7B's 64 GB (0.5 MiB a token)."""
    kept = groups.cache_tokens(131072, 16, 1024)
    assert 0.5 * kept / 1024 == pytest.approx(4.5, abs=0.05)


def test_no_sinks_are_no_option():
    """The paper's mechanism has none, and what was recorded before they existed stays the same."""
    assert CCA(sinks=0).options() == {"group": 16, "window": 64}
    assert CCA(sinks=4).options() == {"group": 16, "window": 64, "sinks": 4}
    assert CCA(group=3, window=2) == CCA(group=3, window=2, sinks=0)


# ---------------------------------------------------------------- a row worked by hand

def test_a_row_worked_by_hand():
    """g = 2, s = 1: row 2 sees one core, of tokens 0 and 1 judged by 1, and its own token."""
    q = torch.tensor([[0.0], [2.0], [3.0]], dtype=torch.float64)[None, None]
    k = torch.tensor([[1.0], [0.0], [1.0]], dtype=torch.float64)[None, None]
    v = torch.tensor([[1.0], [0.0], [5.0]], dtype=torch.float64)[None, None]
    # token 0 in the core: logits 2 * 1 and 2 * 0, so key = value = phi
    phi = 1 / (1 + math.exp(-2))
    own = 1 / (1 + math.exp(3 * phi - 3))  # token 2 in the row: logits 3 * 1 and 3 * phi
    got = CCA(group=2, window=1).loops(q, k, v)[0, 0, 2, 0].item()
    assert got == pytest.approx((1 - own) * phi + own * 5, abs=1e-12)


# ---------------------------------------------------------------- the bench's checks of pooling
# mechanisms

@pytest.mark.parametrize("check", [bench.check_window, bench.check_pooling_weights,
                                   bench.check_judge,
                                   bench.check_rope_middle, bench.check_rope_translation],
                         ids=lambda check: check.__name__.removeprefix("check_"))
def test_pooling_checks(check):
    for group, window, sinks in ((2, 4, 0), (3, 4, 2), (4, 2, 0), (3, 1, 2)):
        check(DENSE, {"group": group, "window": window, "sinks": sinks})
    if check is not bench.check_window:
        check(DENSE, {"group": 3, "window": 2, "per_query_head": True, "sinks": 1})


# ---------------------------------------------------------------- refusals


def test_a_maximum_has_no_effective_matrix():
    q, k, _ = bench.inputs()
    with pytest.raises(ValueError, match="'max'"):
        CCA(group=3, window=2, pooling="max").effective(q, k)


def test_a_window_of_everything_needs_no_core():
    assert groups.intervals(5, 2, 5).tolist() == [[[[[0, 0], [0, i + 1]] for i in range(5)]]]
    assert groups.pairs(5, 2, 5) == full.pairs(5)


@pytest.mark.parametrize("sinks", [0, 2])
def test_where_all_scores_are_equal_proportional_cores_are_full_attention(sinks):
    q, k, v = bench.inputs(17)
    for proportional in (False, True):
        cca = CCA(group=3, window=4, sinks=sinks, proportional=proportional)
        same = torch.allclose(cca.attention(0 * q, k, v), full.loops(0 * q, k, v), atol=1e-12)
        assert same == proportional
