"""Notebook 16: DeepSeek-V4 equals transformers' module; what is read is counted."""

import random
import sys
from dataclasses import dataclass
from importlib import import_module

import pytest
import torch
from transformers import DynamicCache
from transformers.models.deepseek_v4.configuration_deepseek_v4 import DeepseekV4Config
from transformers.models.deepseek_v4.modeling_deepseek_v4 import (
    DeepseekV4Attention,
    DeepseekV4RotaryEmbedding,
)

from cca_lab.attention import visible_mask
from cca_lab.files import repository
from cca_lab.mechanisms.indices import read_twice, unread

sys.path.append(str(repository() / "notebooks"))
production = import_module("production")  # beside notebook 16
KINDS = ("sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention")
TOLERANCE = 1e-5  # float32: sums of a few dozen terms near 1, six projections, three norms
CAMPAIGN = 200


@dataclass
class Trial:
    """One module of random weights, and a text for it."""

    module: DeepseekV4Attention
    hidden: torch.Tensor
    tables: dict

    @property
    def rotation(self):
        return self.tables[self.module.rope_layer_type]

    def rows(self, start, stop):
        return self.hidden[:, start:stop], tuple(table[:, start:stop] for table in self.rotation)


def trial(seed):
    draw = random.Random(seed)
    heads, dim = draw.choice([1, 2, 4]), draw.choice([8, 12, 16])
    share = draw.choice([0.5, 1.0])
    rope = {name: {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": share}
            for name, theta in (("main", 10000.0), ("compress", 160000.0))}
    config = DeepseekV4Config(
        vocab_size=32, hidden_size=draw.choice([16, 24]), num_hidden_layers=1,
        num_attention_heads=heads, head_dim=dim, q_lora_rank=8,
        o_groups=draw.choice([g for g in (1, 2, 4) if heads % g == 0]), o_lora_rank=4,
        layer_types=[KINDS[seed % 3]], sliding_window=draw.choice([2, 3, 5, 8, 16]),
        index_n_heads=2, index_head_dim=dim,
        compress_rates={KINDS[1]: draw.choice([1, 2, 3, 4]), KINDS[2]: draw.choice([2, 5, 8])},
        index_topk=draw.choice([1, 2, 4, 100]), rope_parameters=rope)
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    module = DeepseekV4Attention(config, 0).eval()
    for weight in module.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    length, batch = draw.choice([1, 2, 3, 7, 16, 33]), draw.choice([1, 2])
    positions = torch.arange(length).expand(batch, -1)
    rotary, hidden = DeepseekV4RotaryEmbedding(config), torch.randn(batch, length,
                                                                    config.hidden_size)
    tables = {name: rotary(hidden, position_ids=positions, layer_type=name) for name in rope}
    return Trial(module, hidden, tables)


def theirs(case, cache=None, start=0, stop=None):
    """What transformers' module returns for some rows, with the mask of its sliding window."""
    hidden, stop = case.hidden, stop or case.hidden.shape[1]
    window = case.module.sliding_window
    first = max(0, start + 1 - window) if cache is not None else 0
    column, row = torch.arange(first, stop), torch.arange(start, stop)[:, None]
    mask = torch.zeros(stop - start, stop - first).masked_fill(
        (column > row) | (column <= row - window), float("-inf"))
    tables = {name: tuple(table[:, start:stop] for table in pair)
              for name, pair in case.tables.items()}
    places = torch.arange(start, stop).expand(len(hidden), -1)
    return case.module(hidden[:, start:stop], tables, places, mask.expand(len(hidden), 1, -1, -1),
                       past_key_values=cache)[0]


def gap(one, other):
    return float((one - other).detach().abs().max())


def gaps(case):
    """Return the largest differences of prefill, of decoding in two ways, and of gradients."""
    length = case.hidden.shape[1]
    leaves = [case.hidden.requires_grad_(), *case.module.parameters()]
    wanted, got = theirs(case), production.layer_output(case.module, case.hidden, case.rotation)
    loss = torch.randn_like(wanted)
    # the indexer's choice has no gradient
    ours, others = (torch.autograd.grad((x * loss).sum(), leaves, allow_unused=True,
                                        materialize_grads=True) for x in (got, wanted))
    gradient = max(map(gap, ours, others)) / max(1.0, *(float(x.abs().max()) for x in others))
    decoded = 0.0
    with torch.no_grad():
        cuts = sorted({0, length // 3, *range(length // 2, length + 1)})
        cache, state = DynamicCache(config=case.module.config), production.State()
        for start, stop in zip(cuts, cuts[1:], strict=False):
            other = theirs(case, cache, start, stop)
            ours = production.layer_output(case.module, *case.rows(start, stop), state)
            decoded = max(decoded, gap(ours, other))
    size = max(1.0, float(wanted.detach().abs().max()))
    return gap(got, wanted) / size, decoded / size, gradient


@pytest.mark.parametrize("seed", range(6))
def test_prefill_decode_and_gradients_are_those_of_transformers(seed):
    assert max(gaps(trial(seed))) < TOLERANCE


@pytest.mark.nightly
def test_the_campaign():
    """Two hundred random configurations; the largest difference is printed."""
    found = [gaps(trial(seed)) for seed in range(6, CAMPAIGN)]
    worst = [max(column) for column in zip(*found, strict=True)]
    print("prefill, decode, gradients:", *(f"{value:.1e}" for value in worst))
    assert max(worst) < TOLERANCE


# ---------------------------------------------------------------- the parts

@pytest.mark.parametrize("length, group", [(0, 3), (3, 4), (4, 4), (13, 3), (5, 1)])
@pytest.mark.parametrize("overlap", [False, True])
def test_pooling_equals_the_loops(length, group, overlap):
    torch.manual_seed(length)
    values, gates = (torch.randn(2, length, 6, dtype=torch.float64) for _ in range(2))
    bias = torch.randn(group, 6, dtype=torch.float64)
    found = production.pool(values, gates, bias, group, overlap=overlap)
    assert found.shape == (2, length // group, 3 if overlap else 6)
    wanted = production.pool_by_loops(values, gates, bias, group, overlap=overlap)
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)
    if not overlap:  # weights of each feature sum to 1
        torch.testing.assert_close(production.pool(torch.ones_like(values), gates, bias, group),
                                   torch.ones_like(found))


@pytest.mark.parametrize("backend", ["dense", "blocked"])
def test_attention_equals_the_loops(backend):
    torch.manual_seed(0)
    length, window, group = 19, 5, 4
    q, columns = torch.randn(2, 3, length, 8).double(), torch.randn(2, 1, length + length // group,
                                                                    8).double()
    sinks, table = torch.randn(3).double(), production.intervals(length, window, group)
    mask = visible_mask(table, columns.shape[2])
    wanted = production.attend_by_loops(q, columns, mask, sinks)
    for visible in (table, mask):
        assert gap(production.attend(q, columns, visible, sinks, backend=backend), wanted) < 1e-12
    # a sink takes a share
    assert gap(production.attend(q, columns, table, sinks - 1e9), wanted) > 1e-2


def test_finite_edits_leave_earlier_rows_as_they_were():
    for seed in range(6):
        case = trial(seed + 30)
        before = production.layer_output(case.module, case.hidden, case.rotation)
        for cut in range(case.hidden.shape[1]):
            changed = case.hidden.detach().clone()
            changed[:, cut + 1 :] = 3.0
            after = production.layer_output(case.module, changed, case.rotation)
            assert gap(after[:, : cut + 1], before[:, : cut + 1]) < 1e-6


def test_scores_and_choice_by_hand():
    queries = torch.tensor([[[[1.0, 0.0]], [[1.0, 0.0]], [[1.0, 0.0]]]])  # three rows, one head
    keys, weights = torch.tensor([[[2.0, 0.0], [-1.0, 0.0], [4.0, 5.0]]]), torch.ones(1, 3, 1)
    scores = production.index_scores(queries, keys, weights) * 2**0.5
    assert scores[0, 0].tolist() == pytest.approx([2.0, 0.0, 4.0])
    assert production.chosen_entries(scores, group=1, count=1).tolist() == [
        [[True, False, False], [True, False, False], [False, False, True]]]


@pytest.mark.parametrize("window, group", [(1, 1), (4, 4), (8, 3), (3, 8), (5, 2), (1, 7)])
def test_what_is_read_twice_and_what_is_not(window, group):
    length = 40
    counts = production.times_read(length, window, group)
    for i in range(length):
        past = counts[i, : i + 1]
        assert (counts[i, i + 1 :] == 0).all()
        assert int((past == 2).sum()) == read_twice(i, window, group)
        assert int((past == 0).sum()) == unread(i, window, group)
        if i + 1 >= window + group:
            rest = (i + 1) % group
            assert (read_twice(i, window, group),
                    unread(i, window, group)) == (max(0, window - rest), max(0, rest - window))
    overlapping = production.times_read(length, window, group, overlap=True)
    assert int(overlapping.max()) == (3 if window > group else 2)
    seen = production.intervals(length, window, group)
    table = visible_mask(seen, length + length // group)[0, 0]
    members = torch.zeros(length + length // group, length, dtype=torch.int64)
    members[:length] = torch.eye(length, dtype=torch.int64)
    for p in range(length // group):
        members[length + p, p * group : (p + 1) * group] = 1
    # the intervals that attention uses read as counted
    assert torch.equal(table.long() @ members, counts)
