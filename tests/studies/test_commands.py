"""Training commands and every study of a model, each one run of two steps, and its table."""

import json
import subprocess
import sys

import pytest

from cca_lab.files import repository
from cca_lab.mechanisms import CCA, MECHANISMS
from cca_lab.models import attention_of, load_pretrained, save_pretrained, swap_attention
from cca_lab.models.recipe import FinetuneConfig
from cca_lab.models.run_folder import read_log
from cca_lab.studies import compare, heads, needles, retrieval
from cca_lab.studies.evaluate import Evaluate
from cca_lab.studies.finetune import Finetune
from cca_lab.studies.lengths import Lengths
from cca_lab.studies.recover import Recover
from cca_lab.studies.registry import COMMANDS, STUDIES
from cca_lab.studies.sweep import Sweep, SweepRecipe
from cca_lab.tasks.reading import Reading
from tests.studies import small

HELP = """
import sys, tyro
from importlib import import_module
from cca_lab.options import parsed
from cca_lab.studies.registry import COMMANDS, STUDIES
for name, address in (STUDIES | COMMANDS).items():
    module, _, kind = address.partition(":")
    try:
        parsed(getattr(import_module(module), kind), ["--help"], name)
    except SystemExit:
        pass
print([name for name in ("torch._dynamo", "scipy", "matplotlib", "pandas", "seaborn", "triton")
       if name in sys.modules])
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a text, a model, and one under CCA."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "text.txt").write_text(small.corpus().train[0] * 3)
    save_pretrained(small.model(context=600), folder / "base", small.tokenizer())
    save_pretrained(swap_attention(small.model(seed=1, context=600), "cca", group=4, window=8),
                    folder / "tuned", small.tokenizer())
    return folder


@pytest.fixture
def text(home):
    """The settings that all studies of a text share."""
    return {"model": str(home / "base"), "text": str(home / "text.txt")}


def written(path):
    return json.loads(path.read_text())


def test_no_help_imports_what_takes_seconds():
    run = subprocess.run([sys.executable, "-c", HELP], cwd=repository(), capture_output=True,
                         text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"
    assert run.stdout.count("usage: ") == len(STUDIES | COMMANDS)


# ---------------------------------------------------------------- finetune, evaluate, pretrain

def finetune(text, out, **more):
    config = FinetuneConfig(steps=2, warmup=1, precision="float32", save_every=1)
    return Finetune(**text, out=out, group=4, window=8, **{
        "config": config, "reading": Reading(length=64, rows=2)} | more)


def test_finetune_then_resume_then_evaluate(text, tmp_path, capsys):
    records = finetune(text, tmp_path / "run").run()
    assert [record["step"] for record in records] == [1, 2]
    assert list(read_log(tmp_path / "run")) == records
    assert "cca attention, float32; 2 steps of 2 x 64 tokens" in " ".join(
        capsys.readouterr().err.split())
    with pytest.raises(ValueError, match="holds a run already; continue it with --resume"):
        finetune(text, tmp_path / "run").run()
    assert finetune(text, tmp_path / "run", resume=True).run() == []
    assert attention_of(load_pretrained(tmp_path / "run" / "model")[0]) == CCA(group=4, window=8)
    found = Evaluate(model=str(tmp_path / "run" / "model"), text=text["text"], length=64, windows=2,
                     questions=0, out=tmp_path / "found.json").run()
    assert written(tmp_path / "found.json") == found and found["attention"] == "cca"
    assert found["model"] == "run"  # every run's folder of the model has the same name
    assert "cca, group 4, window 8" in capsys.readouterr().out


@pytest.mark.parametrize("more, told", [
    ({"config": FinetuneConfig(rank=8, strategy="qkv")}, "rank: has no effect without --strategy"),
    ({"config": FinetuneConfig(strategy="none", optimizer="muon")}, "optimizer: has no effect"),
    ({"config": FinetuneConfig(grow=0.5), "attention": "full"}, "grow: has no effect"),
    ({"task": ("niah_single",), "reading": Reading(text_share=1.0)}, "task: given with")])
def test_options_without_effect_are_refused(text, tmp_path, more, told):
    with pytest.raises(ValueError, match=told):
        finetune(text, tmp_path / "run", **more).run()
    assert not (tmp_path / "run").exists()


def test_a_log_of_somebody_else_is_not_replaced(text, tmp_path):
    """The log of a run that stopped before its first checkpoint is."""
    log = tmp_path / "log.jsonl"
    log.write_text("mine\n")
    with pytest.raises(ValueError, match="log.jsonl is not the log of a run"):
        finetune(text, tmp_path).run()
    assert log.read_text() == "mine\n"
    log.write_text('{"step": 7}\n')
    finetune(text, tmp_path).run()
    assert [record["step"] for record in read_log(tmp_path)] == [1, 2]


def test_longlora_with_groups_of_a_share_is_trained(text, tmp_path):
    """The paper's setting; its groups do not grow."""
    study = finetune(text, tmp_path / "run", attention="longlora")
    parts = {**vars(study), "group": 0.25, "window": None}
    assert len(Finetune(**parts).run()) == 2


def test_evaluate_scores_tasks_and_files(text, home, tmp_path, capsys):
    (tmp_path / "own.jsonl").write_text(
        '{"prompt": "One, two. Which?", "answer": "One"}\n'
        + json.dumps({"prompt": "word " * 500, "answer": "x"}) + "\n")
    found = Evaluate(**text, length=128, windows=2, questions=2, attention="cca", group=4, window=8,
                     task=("niah_single", str(tmp_path / "own.jsonl")), difficulty=("digits=3",),
                     ).run()
    needle, own = found["tasks"].values()
    assert needle["exact"]["samples"] == 10 and own["exact"]["samples"] == 1
    shown = capsys.readouterr()
    assert "1 of 2 questions of own.jsonl have more than 128 tokens" in shown.err
    assert "niah_single digits=3" in shown.out


def test_files_that_are_no_text_are_named(home, tmp_path, capsys):
    (tmp_path / "good.txt").write_text(small.corpus().train[0])
    (tmp_path / "old.txt").write_bytes("größer ".encode("latin-1") * 500)
    Evaluate(model=str(home / "base"), text=str(tmp_path), length=64, windows=1, questions=0).run()
    assert "note: 1 file(s) of" in (told := capsys.readouterr().err) and "old.txt" in told


def test_heads_of_another_model_are_noted(text, tmp_path, capsys):
    path = tmp_path / "heads.json"
    path.write_text(json.dumps({"best": "gain", "scores": {"gain": [[0.1, 0.9], [0.5, 0.2]]},
                                "model": "another"}))
    Evaluate(**text, attention="cca", group=4, window=8, heads=path, keep=1, length=64, windows=1,
             questions=0).run()
    assert "ranks the heads of another" in capsys.readouterr().err


# ---------------------------------------------------------------- studies

def test_recover_adds_to_its_file_and_measures_nothing_twice(text, tmp_path, capsys):
    study = dict(**text, out=tmp_path / "r.json", windows=2, questions=16, length=64, window=(8,),
                 steps=2, rows=2, seeds=1)
    Recover(**study, group=(4,), aligned=True).run()
    first = written(tmp_path / "r.json")["trials"]
    assert list(first) == ["full", "cca group=4 window=8", "full, full, seed 0",
                           "cca group=4 window=8, full, seed 0",
                           "cca group=4 window=8, aligned, seed 0"]
    assert "read_in_full" in first["cca group=4 window=8, full, seed 0"]
    assert "cca group=4 window=8, full" in capsys.readouterr().out
    Recover(**study, group=(4, 8), aligned=True).run()
    more = written(tmp_path / "r.json")["trials"]
    assert list(more)[:5] == list(first) and all(more[name] == first[name] for name in first)
    assert set(more) - set(first) == {"cca group=8 window=8", "cca group=8 window=8, full, seed 0"}


def test_a_sweep_tries_each_recipe_on_cca_and_on_the_control(text, tmp_path, monkeypatch):
    recipe = SweepRecipe(steps=2, rows=2)
    monkeypatch.setattr("cca_lab.studies.sweep.RECIPES", (recipe,))
    monkeypatch.setattr("cca_lab.studies.sweep.CLOSE", (recipe,))
    Sweep(**text, out=tmp_path / "s.json", group=4, window=8, seeds=1, windows=2, questions=16,
          length=64).run()
    rows = written(tmp_path / "s.json")["trials"]
    assert list(rows) == ["full", "cca", f"cca, {recipe.name}, seed 0",
                          f"full, {recipe.control}, seed 0"]
    assert rows[f"full, {recipe.control}, seed 0"]["trial"]["config"]["grow"] == 0


def test_compare_has_a_row_for_every_mechanism_that_runs_at_inference(text, tmp_path, monkeypatch,
                                                                      capsys):
    monkeypatch.setattr(compare, "ROUNDS", 1)
    monkeypatch.setattr(compare, "DECODED", 2)
    found = compare.Compare(**text, entries=40, length=100, windows=1, questions=0,
                            out=tmp_path / "c.json").run()
    assert set(found["rows"]) == {name for name, each in MECHANISMS.items()
                                  if not (each.training_only or each.of_one_model)}
    assert written(tmp_path / "c.json") == found
    sizes = {name: row["cache_bytes"] for name, row in found["rows"].items() if row["cache_bytes"]}
    assert all(size < sizes["full"] for name, size in sizes.items() if name != "full"), sizes
    assert "40 entries a KV head" in capsys.readouterr().out


def test_bytes_are_those_after_the_prompt():
    model = swap_attention(small.model(), "streaming_llm", sinks=2, recent=6)
    ids = small.tokenizer()(small.corpus().train[0][:400], return_tensors="pt").input_ids[0, :40]
    found = compare.times(model, "streaming_llm", ids)
    assert found["cache_bytes"] == 2 * 8 * model.config.num_hidden_layers \
        * model.config.hidden_size * 4


def test_lengths_measures_mechanisms_and_finetuned_models_in_one_file(text, home, tmp_path):
    study = dict(**text, length=512, windows=2, entries=96, out=tmp_path / "l.json")
    first = Lengths(**study, attention=("full", "cca")).run()
    more = Lengths(**study, attention=("full",), trained=(f"mine={home / 'tuned'}",),
                   swapped=('sink={"name": "cca", "group": 4, "window": 8, "sinks": 1}',)).run()
    assert list(more["rows"]) == ["full", "cca", "sink", "mine"]
    assert more["rows"]["full"] == first["rows"]["full"] and not more["rows"]["mine"]["swapped"]
    assert more["rows"]["sink"]["options"]["sinks"] == 1
    with pytest.raises(ValueError, match="trained: got 'cca', the name of another row"):
        Lengths(**study, attention=("full",), trained=(f"cca={home / 'tuned'}",)).run()
    with pytest.raises(ValueError, match="holds 'sink' with the options"):
        Lengths(**study, attention=("full",), swapped=('sink={"name": "cca", "group": 8}',)).run()


def test_needles_asks_each_depth_and_length(text, tmp_path, capsys):
    found = needles.Needles(model=text["model"], length=(200, 100), depths=3, samples=2,
                            difficulty=("digits=2",), out=tmp_path / "n.json").run()
    assert [(cell["length"], cell["depth"]) for cell in found["cells"]] == [
        (length, depth) for length in (100, 200) for depth in (0.0, 0.5, 1.0)]
    assert {cell["exact"]["samples"] for cell in found["cells"]} == {2}
    assert written(tmp_path / "n.json") == found
    assert "| 50 %" in capsys.readouterr().out


def test_an_answer_at_one_depth_and_length_is_found_there(text, monkeypatch):
    """An oracle that answers only at depth 0.5 of the longer prompts."""
    from cca_lab.tasks.ruler import NiahSingle

    asked = NiahSingle(2).examples(small.tokenizer(), 2, length=200, seed=0, place=0.5)
    known = {example.prompt: example.answers[0] for example in asked}
    monkeypatch.setattr("cca_lab.models.evaluate.continuation",
                        lambda *given: known.get(given[2], ""))
    found = needles.Needles(model=text["model"], length=(200, 100), difficulty=("digits=2",),
                            depths=3, samples=2).run()
    assert needles.shares_of(found).tolist() == [[0, 0], [0, 1], [0, 0]]


def test_retrieval_scores_every_head_and_judges_the_choices(tmp_path, capsys):
    found = retrieval.Retrieval(model="data/models/gpt2-mini", group=8, window=16, steps=2,
                                task=("niah_single",), length=200, judged=2, count=(0, 1),
                                out=tmp_path / "h.json").run()
    assert set(found["scores"]) == {"attention", "loss", "gates", "gain"} == set(found["seconds"])
    assert sum(map(sum, found["scores"]["gain"])) == pytest.approx(1, abs=1e-3)
    for name in found["scores"]:
        none = found["losses"]["none kept"]["0"]["value"]
        assert found["losses"][name]["0"]["value"] == pytest.approx(none, rel=1e-5)
    assert written(tmp_path / "h.json") == found
    assert "| gates" in capsys.readouterr().out


def test_heads_of_every_layer_are_measured(text, tmp_path, capsys):
    found = heads.Heads(**text, texts=2, length=256, out=tmp_path / "h.json").run()
    assert len(found["k90"]) == 2 and all(len(layer) == 2 for layer in found["far"])
    assert "| sink" in capsys.readouterr().out
