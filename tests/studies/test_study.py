"""Studies.

What a trial's row holds, which trials are run again, how seeds become one line, and which a sweep
tries.
"""

import json

import numpy as np
import pytest

from cca_lab.mechanisms import mechanism_of
from cca_lab.models import attention_of, save_pretrained, swap_attention
from cca_lab.models.evaluate import window_losses
from cca_lab.models.recipe import Diverged, FinetuneConfig
from cca_lab.studies import sweep as sweeping
from cca_lab.studies.recover import Recover
from cca_lab.studies.study import label
from cca_lab.studies.summary import Spread, Summary, spoken, summaries
from cca_lab.studies.trials import Trial, Trials
from cca_lab.tasks.reading import Reading
from tests.studies import small

CCA = {"group": 4, "window": 8}
TRAINED = FinetuneConfig(steps=2, learning_rate=1e-2, warmup=1,
                         precision="float32"), Reading(length=64, rows=2)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    (folder / "text.txt").write_text(small.corpus().train[0] * 3)
    save_pretrained(small.model(), folder / "base", small.tokenizer())
    return folder


def new_study(home, out, kind=Trials, **changes):
    """A study of windows of text alone, which is measured in no time."""
    settings = dict(length=64, windows=4, questions=0, text=str(home / "text.txt"))
    return kind(model=str(home / "base"), out=out, **settings | changes)


# ---------------------------------------------------------------- rows

def test_the_base_itself_has_a_ratio_of_exactly_one(home, tmp_path):
    exact = {"value": 1.0, "low": 1.0, "high": 1.0, "samples": 4}
    assert new_study(home, tmp_path / "a").run_trials({"full": Trial("full")
                                                       })["full"]["perplexity_ratio"] == exact


def test_only_a_trained_mechanism_is_also_read_in_full(home, tmp_path):
    trials = {"full": Trial("full"), "swapped": Trial("cca", CCA),
              "control": Trial("full", {}, *TRAINED), "trained": Trial("cca", CCA, *TRAINED)}
    study = new_study(home, tmp_path / "study.json")
    rows = study.run_trials(trials)
    assert [name for name, row in rows.items() if "read_in_full" in row] == ["trained"]
    assert len({row["perplexity_ratio"]["value"] for row in rows.values()}) == 4
    assert json.loads((tmp_path / "study.json").read_text())["trials"] == rows

    model, records = study.train(trials["trained"],
                                 "again")  # what the row says, worked out by hand
    assert attention_of(model) == mechanism_of("cca", CCA) and len(records) == 2

    def ratio(model):
        losses = window_losses(model, study.evaluation.stream, length=64, windows=4)
        return np.exp(losses.mean() - study.base_losses.mean())

    assert rows["trained"]["perplexity_ratio"]["value"] == pytest.approx(ratio(model), rel=1e-12)
    assert rows["trained"]["read_in_full"]["value"] == pytest.approx(
        ratio(swap_attention(model, "full")), rel=1e-12)
    assert rows["trained"]["read_in_full"]["value"] != rows["trained"]["perplexity_ratio"]["value"]


def test_a_trial_does_not_depend_on_those_before_it(home, tmp_path):
    """One that trained the base itself would go on where the last one stopped."""
    first, last = (Trial("cca", CCA, *TRAINED) for _ in range(2))
    rows = new_study(home, tmp_path / "a").run_trials(
        {"first": first, "between": Trial("full", {}, *TRAINED), "last": last})
    assert rows["first"]["perplexity_ratio"] == rows["last"]["perplexity_ratio"]


# ---------------------------------------------------------------- which trials are run

def made_up(monkeypatch, fails=None):
    """Measure nothing; return the list of the titles that were asked for.

    The trial `fails` cannot be measured.
    """
    asked = []

    def measure(self, trial, title):
        if title == fails:
            raise RuntimeError("no memory")
        asked.append(title)
        measured = dict.fromkeys(("value", "low", "high"), float(len(asked)))
        return {"perplexity": measured, "perplexity_ratio": measured}

    monkeypatch.setattr(Trials, "measure", measure)
    return asked


def test_a_stopped_study_goes_on_where_it_stood(home, tmp_path, monkeypatch):
    trials = {"a": Trial("full"), "b": Trial("cca", CCA), "c": Trial("cca")}
    asked = made_up(monkeypatch, fails="b")
    with pytest.raises(RuntimeError):
        new_study(home, tmp_path / "study.json").run_trials(trials)
    assert asked == ["a"]
    asked = made_up(monkeypatch)
    study = new_study(home, tmp_path / "study.json")
    rows = study.run_trials(trials)
    assert asked == ["b", "c"] and list(rows) == ["a", "b", "c"]
    assert study.run_trials({"c": trials["c"]}) == {"c": rows["c"]
                                                    } and len(asked) == 2  # the rows asked for only


def test_a_trial_of_the_same_name_that_trains_otherwise_is_refused_before_any_training(
        home, tmp_path, monkeypatch):
    """A row that is written over would be lost: another seed's mean would mix two recipes."""
    asked = made_up(monkeypatch)
    study = new_study(home, tmp_path / "study.json")
    study.run_trials({"a": Trial("cca", CCA, *TRAINED)})
    before = (tmp_path / "study.json").read_bytes()
    with pytest.raises(
            ValueError,
            match="holds 'a' trained otherwise; give the same options, or name another file"):
        study.run_trials(
            {"b": Trial("full"), "a": Trial("cca", CCA, TRAINED[0], Reading(length=64, rows=4))})
    assert asked == ["a"] and (tmp_path / "study.json").read_bytes() == before


def test_a_file_of_another_study_is_refused(home, tmp_path, monkeypatch):
    made_up(monkeypatch)
    new_study(home, tmp_path / "study.json").run_trials({"a": Trial("full")})
    before = (tmp_path / "study.json").read_bytes()
    with pytest.raises(ValueError, match="holds a study with another length; name another file"):
        new_study(home, tmp_path / "study.json", length=96).run_trials({})
    assert (tmp_path / "study.json").read_bytes() == before


def test_a_file_of_another_model_whose_folder_has_the_same_name_is_refused(
        home, tmp_path, monkeypatch):
    made_up(monkeypatch)
    for seed, folder in enumerate(("first", "second")):
        save_pretrained(small.model(seed=seed), tmp_path / folder / "base", small.tokenizer())
    settings = dict(length=64, windows=4, questions=0, text=str(home / "text.txt"))
    Trials(model=str(tmp_path / "first" / "base"), out=tmp_path / "study.json",
           **settings).run_trials({"a": Trial("full")})
    with pytest.raises(ValueError, match="holds a study with another weights"):
        Trials(model=str(tmp_path / "second" / "base"), out=tmp_path / "study.json",
               **settings).run_trials({})


def test_a_trial_that_lost_its_model_is_said_to_have_diverged_and_not_kept(
        home, tmp_path, monkeypatch):
    monkeypatch.setattr(Trials, "measure",
                        lambda self, trial, title: {"perplexity": {"value": float("inf")}})
    with pytest.raises(Diverged, match="lost: the perplexity is inf; lower the learning rate"):
        new_study(home, tmp_path / "study.json").run_trials({"lost": Trial("full")})
    assert not (tmp_path / "study.json").exists()


# ---------------------------------------------------------------- seeds

def estimate(value, width=0.1):
    return {"value": value, "low": value - width, "high": value + width, "samples": 10}


def row(value, **more):
    """A made-up measurement; each of its numbers is another function of one value."""
    def match(share):
        return {"0.0": estimate(share), "0.5": estimate(share / 2), "all": estimate(share / 4),
                "documents": 7, "by_offset": [estimate(share), estimate(share / 8)]}

    return {"perplexity": estimate(10 * value), "perplexity_ratio": estimate(2 * value),
            "exact_match": match(value), "varied_match": match(value / 2), **more}


def test_seeds_are_averaged_between_the_lowest_and_the_highest():
    seeds = Summary([row(0.4), row(0.8), row(0.6)])
    assert seeds.perplexity == Spread(pytest.approx(6.0), 4.0, 8.0)
    assert seeds.ratio == Spread(pytest.approx(1.2), 0.8, 1.6)
    assert seeds.fixed == Spread(pytest.approx(0.15), 0.1, 0.2)
    assert seeds.varied == Spread(pytest.approx(0.075), 0.05, 0.1)


def test_the_worst_offset_is_that_of_each_seed():
    """Mutant: the worst of the mean, which is better than any seed's where theirs differ."""
    seeds = Summary([row(0.4), row(0.8)])
    seeds.rows[0]["exact_match"]["by_offset"] = [estimate(0.2), estimate(0.8)]
    seeds.rows[1]["exact_match"]["by_offset"] = [estimate(0.9), estimate(0.4)]
    assert seeds.worst == "30 % [20, 40]"


def test_a_single_seed_keeps_its_interval():
    assert Summary([row(0.4)]).perplexity == Spread(4.0, 3.9, 4.1)
    assert Summary([row(0.4)]).fixed == Spread(0.1, 0.0, 0.2)


def test_reading_in_full_is_of_the_rows_that_have_it():
    assert Summary([row(0.4)]).read_in_full is None
    assert Summary([row(0.4, read_in_full=estimate(1.5))]).read_in_full == Spread(1.5, 1.4, 1.6)
    both = Summary([row(0.4, read_in_full=estimate(1.5)), row(0.4, read_in_full=estimate(2.5))])
    assert both.read_in_full == Spread(2.0, 1.5, 2.5)


def test_trials_that_differ_in_their_seed_only_are_gathered_and_stand_with_their_attention():
    names = ["full", "cca, full, seed 0", "full, full, seed 0", "cca, full, seed 1",
             "cca, full, seed 12", "cca, 2 x 8, seed 0"]
    found = summaries({name: row(index / 10) for index, name in enumerate(names)})
    assert {name: len(mean.rows) for name, mean in found.items()} == {
        "full": 1, "full, full": 1, "cca, full": 3, "cca, 2 x 8": 1}
    assert list(found) == ["full", "full, full", "cca, full", "cca, 2 x 8"]
    assert [one["perplexity"]["value"] for one in found["cca, full"].rows] == [1.0, 3.0, 4.0]


# ---------------------------------------------------------------- names

@pytest.mark.parametrize("name, words", [
    ("full", "full attention"), ("full, full", "full attention, finetuned, the control"),
    ("cca group=8 window=64", "CCA g 8, s 64, swapped"), ("cca group=8 window=64, "
                                                          "full", "CCA g 8, s 64, finetuned"),
    ("cca group=8 window=64, qkv", "CCA g 8, s 64, finetuned, W^Q W^K W^V only"),
    ("cca group=8 window=64, aligned", "CCA g 8, s 64, finetuned on aligned documents"),
    ("dga group=16 gamma=0.1", "Dynamic Group Attention g 16, gamma 0.1, swapped"),
    ("lococo slots=8 segment=9, compressor", "LoCoCo slots 8, segment 9, finetuned, its own "
                                             "weights only")])
def test_a_trial_in_words(name, words):
    assert spoken(name) == words


def test_a_label_is_short():
    assert label("full", {}) == "full"
    assert label("cca", CCA) == "cca group=4 window=8"
    assert label("dga", {"group": 16, "gamma": 1 / 3}) == "dga group=16 gamma=0.333"
    assert label("cca", {**CCA, "pooling": "mean"}) == "cca group=4 window=8 pooling=mean"


# ---------------------------------------------------------------- recovery

def test_another_mechanism_keeps_as_many_entries_as_cca_with_its_sinks(home, tmp_path):
    kept = []
    for sinks in (0, 6):
        study = new_study(home, tmp_path / "recovery", Recover, group=(4,), window=(8,), seeds=1,
                          option=(f"sinks={sinks}",), mechanism=("streaming_llm",))
        entries = {trial.attention: mechanism_of(trial.attention, trial.options).cache_entries(
            study.evaluation.length) for trial in study.trials().values() if trial.options}
        assert entries["streaming_llm"] == entries["cca"]
        kept.append(entries["cca"])
    assert kept[1] > kept[0]


def test_recipes_have_names_of_their_own_and_read_the_same_number_of_tokens():
    """A third of a run with the defaults."""
    recipes = sweeping.RECIPES
    assert len({recipe.name
                for recipe in recipes}) == len(recipes) and set(sweeping.CLOSE) <= set(recipes)
    assert {recipe.steps * recipe.rows
            for recipe in recipes} <= {FinetuneConfig().steps * Reading().rows // 3}
    for recipe in recipes:
        trial = recipe.trial("cca", CCA, 5)
        config, reading = trial.config, trial.reading
        assert (config.learning_rate, config.steps, config.grow, config.optimizer,
                reading.text_share, reading.rows,
                reading.seed) == (recipe.learning_rate, recipe.steps, recipe.grow, recipe.optimizer,
                                  recipe.text_share, recipe.rows, 5)
