"""Recall by memory.

The sizes that are compared, the training run, and the file that a later call continues.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from cca_lab.cli import app
from cca_lab.mechanisms import MECHANISMS, Full, StreamingLLM
from cca_lab.mechanisms.caches import CACHES
from cca_lab.mechanisms.caching.base import CacheSizes
from cca_lab.models import swap_attention
from cca_lab.models.recipe import Diverged
from cca_lab.studies import mqar as experiment
from cca_lab.studies import mqar_training as training
from cca_lab.studies.mqar import NAMES, Recall, choices, largest_bytes, lines, points, within
from cca_lab.studies.mqar_training import RecallRecipe, Run, accuracy, asked, learn, new_model
from cca_lab.tasks.mqar import MQAR, UNASKED
from cca_lab.views.figures.recall import COLOURS, frontier

TASK = MQAR(length=16, pairs=2, vocabulary=16)
TINY = {"length": 16, "pairs": 2, "vocabulary": 16}
SHORT = RecallRecipe(steps=4, rows=8, every=2, tests=16, width=8)


# ---------------------------------------------------------------- sizes

CONFIG = new_model(MQAR(vocabulary=16), SHORT).config
SIZES = CacheSizes.of(CONFIG)
CELLS = [(name, entries) for name in NAMES for entries in (8, 16, 32, 48)]


def at_the_end(mechanism, length, sizes):
    """Mutant: the bytes after the last token, which may have closed a block or a segment."""
    return CACHES[mechanism.name].bytes_of(mechanism, length, sizes)


@pytest.mark.parametrize("name", NAMES)
def test_the_bytes_are_those_of_a_cache_at_its_largest(name):
    mechanism = within(CONFIG, name, 32, 64)[0]
    model = swap_attention(new_model(MQAR(vocabulary=16), SHORT), mechanism).eval()
    cache, seen = CACHES[name](model), []
    with torch.no_grad():
        for token in range(64):
            model(input_ids=torch.tensor([[token % 16]]), past_key_values=cache, use_cache=True)
            seen.append(cache.nbytes())
    transient = 2 * SIZES.entries(
        1) if name == "lococo" else 0  # a full segment is compressed before `forward` ends
    assert max(seen) + transient == largest_bytes(mechanism, 64, SIZES)


def test_the_bytes_at_the_end_would_be_too_few():
    smaller = {name for name, entries in CELLS for one in within(CONFIG, name, entries, 64)
               if at_the_end(one, 64, SIZES) < largest_bytes(one, 64, SIZES)}
    assert smaller == {"dga", "lococo"}


@pytest.mark.parametrize("name, entries", CELLS)
def test_no_choice_exceeds_the_budget_and_none_is_left_out(name, entries):
    budget = 2 * SIZES.entries(entries)
    found = within(CONFIG, name, entries, 64)
    assert all(largest_bytes(one, 64, SIZES) <= budget for one in found)
    fitting = [one for one in choices(name, entries, 64) if largest_bytes(one, 64, SIZES) <= budget]
    assert bool(found) == bool(fitting)
    if found and name != "dga":
        assert largest_bytes(found[-1], 64,
                             SIZES) == max(largest_bytes(one, 64, SIZES) for one in fitting)


def test_full_attention_keeps_every_token_and_groups_are_the_smallest_and_the_widest_choice():
    assert largest_bytes(Full(), 64, SIZES) == 2 * SIZES.entries(64)
    assert [(one.group, one.window) for one in within(CONFIG, "cca", 32, 64)] == [(2, 1), (8, 19)]
    assert [(one.group, one.window) for one in within(CONFIG, "cca", 16, 64)] == [(8, 3)]
    assert within(CONFIG, "cca", 8, 64) == []


def test_dga_reads_no_later_token():
    [dga] = within(CONFIG, "dga", 32, 64)
    assert dga.choose == "blocks" and dga.focal_count(dga.block) >= 1


def test_another_mechanism_is_refused():
    with pytest.raises(ValueError, match="^attention: got 'longlora'"):
        within(CONFIG, "longlora", 32, 64)


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


@pytest.mark.slow
def test_memory_decides_what_is_recalled():
    recipe = RecallRecipe(steps=400, rows=64, tests=250, width=32)
    narrow = StreamingLLM(sinks=1, recent=1)
    full, window = (learn(TASK, mechanism, recipe, 0).accuracy for mechanism in (Full(), narrow))
    assert full >= 0.95 and window < 0.7, (full, window)


@pytest.mark.parametrize("options, named",
                         [({"steps": 0}, "steps"), ({"rate": float("nan")}, "rate"),
                          ({"solved": 2.0}, "solved"), ({"heads": 3}, "heads")])
def test_a_bad_recipe_is_refused(options, named):
    with pytest.raises(ValueError, match=f"^{named}: "):
        RecallRecipe(**options)


# ---------------------------------------------------------------- the file

def mqar(out, **options):
    return Recall(**{**TINY, "steps": 4, "recipe": SHORT, "out": out, **options}).run()


@pytest.fixture
def trained(monkeypatch):
    """Training replaced by a note of what was trained.

    Accuracy is the window's share of 16 tokens.
    """
    seen = []

    def note(task, mechanism, recipe, seed, report):
        seen.append((str(mechanism), seed))
        report(recipe.steps, 0.5)
        return Run(getattr(mechanism, "window", 16) / 16, [(recipe.steps, 0.5)], 1.0)

    monkeypatch.setattr(experiment, "learn", note)
    return seen


def test_a_trial_is_run_once_and_more_can_be_added(trained, tmp_path):
    out = tmp_path / "mqar.json"
    first = mqar(out, attention=["cca"], entries=[12])
    assert json.loads(out.read_text()) == first
    assert trained == [("full", 0), ("cca, group 2, window 5", 0), ("cca, group 4, window 7", 0)]
    del trained[:]
    assert mqar(out, attention=["cca"], entries=[12]) == first and trained == []
    more = mqar(out, attention=["streaming_llm"], entries=[12], seeds=2)
    assert trained == [("streaming_llm, sinks 4, recent 8", 0), ("full", 1),
                       ("streaming_llm, sinks 4, recent 8", 1)]
    assert list(more["trials"])[:3] == list(first["trials"])


def test_an_interrupted_command_keeps_what_it_has_trained(trained, tmp_path, monkeypatch):
    out, note = tmp_path / "mqar.json", experiment.learn

    def stopped(task, mechanism, *rest):
        if mechanism.name == "cca":
            raise KeyboardInterrupt
        return note(task, mechanism, *rest)

    monkeypatch.setattr(experiment, "learn", stopped)
    with pytest.raises(KeyboardInterrupt):
        mqar(out, attention=["cca"], entries=[12])
    assert list(json.loads(out.read_text())["trials"]) == ["full, seed 0"]


def test_a_trial_says_how_it_was_made(trained, tmp_path):
    result = mqar(tmp_path / "mqar.json", attention=["h2o", "cca"], entries=[4, 12])
    row = result["trials"]["h2o heavy=5 recent=6, seed 0"]
    assert row["entries"] == 12 and row["seed"] == 0 and row["selecting"] and row["curve"] == [
        [4, 0.5]]
    assert row["state_bytes"] == 2 * 11 * (
        2 * 8 + 1) * 4  # layers, entries, a key and a value of width 8, a score
    assert {"command", "device", "machine", "versions", "seconds", "steps"} <= set(row)
    assert not result["trials"]["full, seed 0"]["selecting"]
    assert result["too_small"] == ["cca, 4 entries"]


@pytest.mark.parametrize("changed, named", [({"pairs": 3}, "task"), ({"steps": 5}, "recipe")])
def test_a_file_of_other_trials_is_refused(trained, tmp_path, changed, named):
    mqar(tmp_path / "mqar.json", attention=["cca"], entries=[12])
    with pytest.raises(ValueError, match=f"^out: .* with another {named};"):
        mqar(tmp_path / "mqar.json", attention=["cca"], entries=[12], **changed)


@pytest.mark.parametrize("options, named", [
    ({"seeds": 0}, "seeds"), ({"entries": [17]}, "entries"), ({"entries": [3]}, "entries"),
    ({"attention": ["minference"]}, "attention")])
def test_bad_arguments_are_refused_before_any_training(trained, tmp_path, options, named):
    with pytest.raises(ValueError, match=f"^{named}: "):
        mqar(tmp_path / "mqar.json", **options)
    assert trained == [] and not list(tmp_path.iterdir())


def test_budgets_that_lead_to_one_choice_are_one_cell():
    cells, _ = Recall(**TINY, attention=("dga",), entries=(14, 15, 16)).planned
    assert list(cells) == [cell.name
                           for cell in cells.values()] and len(set(cells.values())) == len(cells)


def test_quick_trains_two_mechanisms_at_half_of_the_tokens(trained, tmp_path):
    result = mqar(tmp_path / "mqar.json", quick=True, length=64, pairs=4)
    assert {(row["attention"], row["entries"]) for row in result["trials"].values()} == {
        ("full", None), ("cca", 32), ("streaming_llm", 32)}


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


def test_the_command_trains_and_draws(tmp_path):
    words = ["study", "mqar", "--length", 16, "--pairs", 2, "--vocabulary", 16, "--steps", 1,
             "--attention", "cca", "--entries", 12, "--out", tmp_path / "mqar.json", "--figure",
             tmp_path / "mqar.png"]
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    assert "cca group=4 window=7" in done.stdout and (tmp_path / "mqar.png").stat().st_size > 5000
    assert len(json.loads((tmp_path / "mqar.json").read_text())["trials"]) == 3


@pytest.mark.parametrize("words, told",
                         [(["--length", 63], "length: got 63"), (["--steps", 0], "steps: got 0"),
                          (["--attention", "longlora"], "attention: got"),
                          (["--attention", "dga", "--entries", 4], "fits into none of 4 entries"),
                          (["--vocabulary", 9], "vocabulary: got 9")])
def test_the_command_refuses_bad_numbers_in_one_line(tmp_path, words, told):
    done = CliRunner().invoke(app, ["study", "mqar", "--out", str(tmp_path / "m.json"),
                                    *map(str, words)])
    assert done.exit_code == 2 and len(
        done.stderr.splitlines()) == 1 and told in done.stderr, done.output
    assert not list(tmp_path.iterdir())
