"""Mean pooling and random tokens: what they share with CCA-Attention, and wrong versions."""

from collections import Counter

import pytest
import torch

from cca_lab.mechanisms import MeanPooling, RandomTokens
from cca_lab.mechanisms.cca import groups
from cca_lab.mechanisms.cca.baselines import kept_tokens
from tests.mechanisms import bench
from tests.mechanisms.forms import form
from tests.mutants import baselines as wrong

G3S4 = {"group": 3, "window": 4}
MEAN, RANDOM = form(MeanPooling, "loops"), form(RandomTokens, "loops")


# ---------------------------------------------------------------- mean pooling

@pytest.mark.parametrize("check", [bench.check_window, bench.check_rope_middle])
def test_groups_and_their_places_are_those_of_cca(check):
    check(MEAN, G3S4)


def check_plain_mean(implementation, options):
    """Members of a pooled group weigh the same in every row, whatever the queries."""
    q, k, _ = bench.inputs(12, heads=4, kv_heads=2)
    matrix = bench.read_matrix(implementation, q, k, options)
    for row, p, core in bench.visible_cores_of(matrix, options):
        even = core.mean(-1, keepdim=True).expand(core.shape)
        bench.assert_close(core, even, f"weights of group {p} as row {row} sees it")


@pytest.mark.parametrize(("mutant", "check", "reason"), [
    (wrong.sum_of_the_group, bench.check_partition_of_unity, "row sums"),
    (wrong.weighted_pooling, check_plain_mean, "weights of group 0"),
    (wrong.keys_averaged_as_they_come, bench.check_rope_middle, "logit of core 0"),
], ids=lambda value: getattr(value, "__name__", None))
def test_mean_pooling_mutants_are_killed(mutant, check, reason):
    with pytest.raises(AssertionError, match=reason):
        check(mutant, G3S4)
    check(MEAN, G3S4)


# ---------------------------------------------------------------- random tokens

def test_a_longer_text_keeps_the_same_tokens():
    for seed in (0, 1):
        longest = kept_tokens(50, 5, seed)
        assert all(kept_tokens(count, 5, seed) == longest[:count] for count in range(50))
        assert [token // 5 for token in longest] == list(range(50))
    assert kept_tokens(50, 5, 0) != kept_tokens(50, 5, 1)


def test_each_member_of_a_group_is_drawn_equally_often():
    """1200 draws of 4: 300 each, standard deviation 15."""
    drawn = Counter(token % 4 for token in kept_tokens(1200, 4, 0))
    assert sorted(drawn) == [0, 1, 2, 3] and all(abs(count - 300) < 60 for count in drawn.values())


def test_a_row_holds_as_many_entries_as_cca():
    q, k, _ = bench.inputs(23)
    held = RandomTokens(**G3S4).represented(q, k)[0, 0].sum(-1)
    starts, ends = groups.intervals(23, **G3S4)[0, 0].unbind(-1)
    assert torch.equal(held, (ends - starts).sum(-1))


def check_same_each_time(implementation, options):
    q, k, v = bench.inputs(12)
    first, second = (implementation(q, k, v, **options) for _ in range(2))
    bench.assert_close(second, first, "called again")


@pytest.mark.parametrize(("mutant", "check", "reason"), [
    (wrong.drawn_from_the_end, bench.check_right_padding, "padded on the right"),
    (wrong.drawn_again_for_each_call, check_same_each_time, "called again"),
], ids=lambda value: getattr(value, "__name__", None))
def test_random_tokens_mutants_are_killed(mutant, check, reason):
    with torch.random.fork_rng(), pytest.raises(AssertionError, match=reason):
        torch.manual_seed(0)
        check(mutant, G3S4)
    check(RANDOM, G3S4)
