"""Recall by memory.

The sizes that are compared, the training run, and the file that a later call continues.
"""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
import torch

from cca_lab.mechanisms import MECHANISMS, Full
from cca_lab.mechanisms.caches import CACHES
from cca_lab.mechanisms.caching.base import CacheSizes
from cca_lab.models import swap_attention
from cca_lab.models.recipe import Diverged
from cca_lab.studies import mqar_training as training
from cca_lab.studies.mqar import NAMES, Recall, choices, largest_bytes, lines, points, within
from cca_lab.studies.mqar_training import RecallRecipe, accuracy, asked, learn, new_model
from cca_lab.tasks.mqar import MQAR, UNASKED
from cca_lab.views.figures.recall import COLOURS, frontier

TASK = MQAR(length=16, pairs=2, vocabulary=16)
TINY = {"length": 16, "pairs": 2, "vocabulary": 16}
SHORT = RecallRecipe(steps=4, rows=8, every=2, tests=16, width=8)


# ---------------------------------------------------------------- sizes

@lru_cache(maxsize=1)
def config():
    return new_model(MQAR(vocabulary=16), SHORT).config


@lru_cache(maxsize=1)
def sizes():
    return CacheSizes.of(config())


CELLS = [(name, entries) for name in NAMES for entries in (8, 16, 32, 48)]


def at_the_end(mechanism, length, sizes):
    """Mutant: the bytes after the last token, which may have closed a block or a segment."""
    return CACHES[mechanism.name].bytes_of(mechanism, length, sizes)


@pytest.mark.parametrize("name", NAMES)
def test_the_bytes_are_those_of_a_cache_at_its_largest(name):
    mechanism = within(config(), name, 32, 64)[0]
    model = swap_attention(new_model(MQAR(vocabulary=16), SHORT), mechanism).eval()
    cache, seen = CACHES[name](model), []
    with torch.no_grad():
        for token in range(64):
            model(input_ids=torch.tensor([[token % 16]]), past_key_values=cache, use_cache=True)
            seen.append(cache.nbytes())
    transient = 2 * sizes().entries(
        1) if name == "lococo" else 0  # a full segment is compressed before `forward` ends
    assert max(seen) + transient == largest_bytes(mechanism, 64, sizes())


def test_the_bytes_at_the_end_would_be_too_few():
    smaller = {name for name, entries in CELLS for one in within(config(), name, entries, 64)
               if at_the_end(one, 64, sizes()) < largest_bytes(one, 64, sizes())}
    assert smaller == {"dga", "lococo"}


@pytest.mark.parametrize("name, entries", CELLS)
def test_no_choice_exceeds_the_budget_and_none_is_left_out(name, entries):
    budget = 2 * sizes().entries(entries)
    found = within(config(), name, entries, 64)
    assert all(largest_bytes(one, 64, sizes()) <= budget for one in found)
    fitting = [one for one in choices(name, entries, 64)
               if largest_bytes(one, 64, sizes()) <= budget]
    assert bool(found) == bool(fitting)
    if found and name != "dga":
        largest = max(largest_bytes(one, 64, sizes()) for one in fitting)
        assert largest_bytes(found[-1], 64, sizes()) == largest


def test_full_attention_keeps_every_token_and_groups_are_the_smallest_and_the_widest_choice():
    assert largest_bytes(Full(), 64, sizes()) == 2 * sizes().entries(64)
    assert [(one.group, one.window) for one in within(config(), "cca", 32, 64)] == [(2, 1), (8, 19)]
    assert [(one.group, one.window) for one in within(config(), "cca", 16, 64)] == [(8, 3)]
    assert within(config(), "cca", 8, 64) == []


def test_dga_reads_no_later_token():
    [dga] = within(config(), "dga", 32, 64)
    assert dga.choose == "blocks" and dga.focal_count(dga.block) >= 1


def test_another_mechanism_is_refused():
    with pytest.raises(ValueError, match="^attention: got 'longlora'"):
        within(config(), "longlora", 32, 64)


# ---------------------------------------------------------------- training

def one_early(model, input_ids, targets):
    """Mutant of `asked`.

    The logits of the token before each query, as with a language model's shifted labels.
    """
    return asked(model, input_ids, targets.roll(-1, dims=1))


def test_the_logits_are_those_of_the_queries():
    torch.manual_seed(0)
    model = new_model(TASK, SHORT)
    input_ids, targets = TASK.batch(5, torch.Generator().manual_seed(0))
    whole = model(input_ids).logits[targets != UNASKED]
    logits, answers = asked(model, input_ids, targets)
    assert torch.allclose(logits, whole, atol=1e-5) and torch.equal(answers,
                                                                    targets[targets != UNASKED])
    assert not torch.allclose(one_early(model, input_ids, targets)[0], whole, atol=1e-2)


class Knows(torch.nn.Module):
    """A model that answers as `table` says: logits are one-hot at its token."""

    device = torch.device("cpu")

    def __init__(self, table):
        super().__init__()
        self.table, self.lm_head = table, torch.nn.Identity()

    def transformer(self, input_ids, use_cache):
        hidden = torch.nn.functional.one_hot(self.table(input_ids), TASK.vocabulary).float()
        return type("Output", (), {"last_hidden_state": hidden})


def second_value(input_ids):
    return input_ids[:, 3:4].expand_as(input_ids)


def looked_up(input_ids):
    keys, values = input_ids[:, 0:4:2], input_ids[:, 1:4:2]
    which = (input_ids[:, :, None] == keys[:, None]).float().argmax(-1)
    return values.gather(1, which)


@pytest.mark.parametrize("table, share",
                         [(looked_up, 1.0), (second_value, 0.5), (torch.zeros_like, 0.0)])
def test_accuracy_is_the_share_of_the_queries(table, share):
    tests = TASK.batch(600, torch.Generator().manual_seed(1))  # more than fit into one batch
    assert accuracy(Knows(table), *tests) == share


def test_the_model_has_attention_alone():
    model = new_model(TASK, SHORT)
    names = {name.split(".", 3)[-1]
             for name, _ in model.transformer.h.named_parameters(prefix="transformer.h")}
    assert names == {"ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias",
                     "attn.c_proj.weight", "attn.c_proj.bias"}
    assert model.lm_head.weight is model.transformer.wte.weight


def test_a_seed_gives_a_run_and_another_seed_another_one():
    first, again, other = (learn(TASK, MECHANISMS["lococo"](slots=4, segment=4), SHORT, seed)
                           for seed in (0, 0, 1))
    assert first.curve == again.curve and [step for step, _ in first.curve] == [2, 4]
    assert first.curve != other.curve


def test_training_stops_once_the_task_is_solved():
    reported = []
    run = learn(TASK, Full(), replace(SHORT, solved=0.0), 0,
                lambda *measured: reported.append(measured))
    assert run.curve == reported and len(run.curve) == 1 and run.curve[0][0] == 2


def test_a_run_that_diverges_is_refused(monkeypatch):
    def broken(task, recipe):
        model = new_model(task, recipe)
        model.transformer.wte.weight.data.fill_(float("inf"))
        return model

    monkeypatch.setattr(training, "new_model", broken)
    with pytest.raises(Diverged, match="the loss is nan at step 1"):
        learn(TASK, Full(), SHORT, 0)


def test_budgets_that_lead_to_one_choice_are_one_cell():
    cells, _ = Recall(**TINY, attention=("dga",), entries=(14, 15, 16)).planned()
    assert list(cells) == [cell.name
                           for cell in cells.values()] and len(set(cells.values())) == len(cells)


# ---------------------------------------------------------------- the frontier

def row(attention, options, size, seed, share, entries=8):
    return {"attention": attention, "options": options, "entries": entries, "state_bytes": size,
            "seed": seed, "accuracy": share}


TRIALS = (row("full", {}, 65536, 0, 1.0, None), row("cca", {"group": 2, "window": 1}, 8192, 0, 0.5),
          row("cca", {"group": 8, "window": 9}, 8000, 0,
              0.9), row("cca", {"group": 2, "window": 1}, 8192, 1,
                        0.7), row("cca", {"group": 8, "window": 9}, 8000, 1,
                                  0.1), row("cca", {"group": 2, "window": 9}, 16384, 0, 0.8, 16))
RESULT = {"task": {"pairs": 4, "length": 64, "vocabulary": 16}, "published": {"accuracy": 0.99},
          "trials": dict(enumerate(TRIALS))}


def test_the_best_choice_of_a_budget_is_that_of_the_best_mean():
    assert points(RESULT) == {"full": {65536: [1.0]}, "cca": {8192: [0.5, 0.7], 16384: [0.8]}}
    assert [line.accuracies for line in lines(RESULT)] == [[1.0], [0.5, 0.7], [0.9, 0.1], [0.8]]


def test_the_figure_draws_means_seeds_and_levels():
    found = points(RESULT)
    axes = frontier(found, {name: name for name in found}, published=0.99, guess=0.25).axes[0]
    drawn = {line.get_label(): line for line in axes.get_lines()
             if not line.get_label().startswith("_")}
    assert np.allclose(drawn["cca"].get_xydata(), [[8, 60], [16, 80]])
    assert drawn["full"].get_linestyle() == "None" and np.allclose(drawn["full"].get_xydata(),
                                                                   [[64, 100]])
    levels = {line.get_linestyle(): line.get_ydata()[0] for label, line in drawn.items()
              if label not in found}
    assert levels == {"--": 99, ":": 25}
    dots = [line for line in axes.get_lines() if line.get_marker() == "."]
    assert sorted(float(y) for line in dots for y in line.get_ydata()) == pytest.approx([50, 70, 80,
                                                                                         100])


def test_every_mechanism_has_a_colour():
    assert set(COLOURS) == {"full", *NAMES}
