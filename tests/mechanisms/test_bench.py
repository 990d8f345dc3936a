"""The bench's own checks notice tokens dropped or held wrongly, and scopes misdeclared."""

import pytest
import torch

from cca_lab.attention import masked_attention
from cca_lab.mechanisms import CCA, Full
from tests.mechanisms import bench
from tests.mechanisms.forms import form

OPTIONS = {"block": 4}


def select(q, k, *, block, own_rows):
    """Choose one token to drop: for all rows by the last query, or block by block."""
    token = torch.arange(q.shape[2])
    last = (token // block * block + block - 1).clamp(max=len(token) - 1)
    judges = last if own_rows else last[-1:]
    scores = torch.einsum("bhid,bgjd->bhij", q[:, :, judges], k)
    # (B, H, L or 1, 1)
    return scores.masked_fill(token > judges[:, None], float("inf")).argmin(-1, keepdim=True)


def mask(q, dropped):
    """Each row sees its past but the dropped token; itself always."""
    token = torch.arange(q.shape[2])
    past = token <= token[:, None]
    return past & ((token != dropped) | (token == token[:, None]))


def choosing(q, k, v, *, block, own_rows, selection=None, scale=None):
    """Attention to all past tokens but the one that `select` dropped."""
    dropped = select(q, k, block=block, own_rows=own_rows) if selection is None else selection
    return masked_attention(q, k, v, mask(q, dropped).expand(*q.shape[:2], -1, -1), scale=scale)


def represented(q, k, *, block, own_rows):
    return mask(q, select(q, k, block=block, own_rows=own_rows)).expand(*q.shape[:2], -1, -1)


SIZES = dict(length=10, heads=1)
whole_prompt, own_block = ({"block": 4, "own_rows": own} for own in (False, True))


def test_scopes_as_they_are():
    bench.check_whole_prompt(choosing, whole_prompt, select, **SIZES)
    bench.check_own_block(choosing, own_block, select, **SIZES)


@pytest.mark.parametrize("options", [whole_prompt, own_block], ids=["whole prompt", "own block"])
def test_a_choice_that_claims_to_be_causal_is_noticed(options):
    with pytest.raises(AssertionError, match="edits after token"):
        bench.check_causality(choosing, options, **SIZES)


def test_a_whole_prompt_that_claims_to_be_a_block_is_noticed():
    with pytest.raises(AssertionError, match="the first row of their block"):
        bench.check_own_block(choosing, whole_prompt, select, **SIZES)


def test_a_causal_mechanism_that_claims_to_choose_is_noticed():
    def causal(q, k, v, selection=None, **options):
        return Full().attention(q, k, v)

    with pytest.raises(AssertionError, match="no edit reaches an earlier row"):
        bench.check_whole_prompt(causal, whole_prompt, select, **SIZES)


def test_a_leak_beside_the_choice_is_noticed():
    def leaks(q, k, v, **options):
        return choosing(q, k, v, **options) + 1e-3 * v.mean(2, keepdim=True)

    with pytest.raises(AssertionError, match="edits after token"):
        bench.check_whole_prompt(leaks, whole_prompt, select, **SIZES)


@pytest.mark.parametrize("options", [whole_prompt, own_block], ids=["whole prompt", "own block"])
def test_represented_is_exactly_what_has_weight(options):
    bench.check_partition_of_unity(choosing, options, represented, **SIZES)

    def one_too_many(q, k, **kept):
        return represented(q, k, **kept) | torch.ones(10, 10, dtype=torch.bool).tril()

    def one_too_few(q, k, **kept):
        return represented(q, k, **kept) & (torch.arange(10) != 5)

    def future(q, k, **kept):
        return represented(q, k, **kept) | (torch.arange(10) == 9)

    for wrong, reason in ((one_too_many, "a past token has no weight"),
                          (future, "represented: a future token"),
                          (one_too_few, "a token that is dropped has weight")):
        with pytest.raises(AssertionError, match=reason):
            bench.check_partition_of_unity(choosing, options, wrong, **SIZES)


def test_a_pooled_token_is_not_a_raw_one():
    """A mechanism that drops tokens holds the others whole: a core of them is noticed."""
    pooled = form(CCA, "attention", group=3, window=2)

    def all_past(q, k, **kept):
        return torch.ones(*q.shape[:3], q.shape[2], dtype=torch.bool).tril()

    with pytest.raises(AssertionError, match="times a token is held"):
        bench.check_partition_of_unity(lambda q, k, v, **kept: pooled(q, k, v), {"group": 3},
                                       all_past)
