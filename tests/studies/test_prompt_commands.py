"""Prompts on the command line: `evaluate --task`, `finetune --task` and `study needles`."""

import json

import matplotlib.image
import pytest
import torch
from typer.testing import CliRunner

from cca_lab.cli import app
from cca_lab.models import load_pretrained, save_pretrained
from cca_lab.models.run_folder import read_log
from cca_lab.studies import needles
from cca_lab.studies.finetune import mixture_for
from cca_lab.studies.needles import Needles
from cca_lab.tasks.mixture import PackedExamples
from cca_lab.tasks.prompts import TASKS, chosen_tasks
from cca_lab.tasks.reading import Reading
from cca_lab.tasks.ruler import NiahSingle
from tests.studies import small


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    (folder / "text.txt").write_text(small.corpus().train[0] * 3)
    save_pretrained(small.model(context=256), folder / "base", small.tokenizer())
    lines = [{"prompt": "the group " * count + "pools", "answer": "its keys"}
             for count in (2, 3, 300)]
    (folder / "own.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.parametrize("command", [["evaluate"], ["finetune"], ["study", "needles"]])
def test_the_help_names_the_tasks(command):
    shown = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "400",
                                                               "TERM": "dumb"}).output
    fitting = {name for name, task in TASKS.items() if task.placed or "needles" not in command}
    assert {name for name in TASKS if name in shown} == fitting


def evaluate(home, *more):
    return invoke("evaluate", "--model", home / "base", "--text", home / "text.txt", "--length",
                  128, "--windows", 2, "--questions", 2, *more)


def test_evaluate_scores_tasks_and_files(home, tmp_path):
    done = evaluate(home, "--task", "niah_single", "--task", home / "own.jsonl", "--difficulty",
                    "digits=3", "--attention", "cca", "--group", 4, "--window", 8, "--out",
                    tmp_path / "found.json")
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "found.json").read_text())
    needle, own = found["tasks"].values()
    assert next(iter(found["tasks"])) == "niah_single digits=3" and "perplexity" in found
    assert needle["exact"]["samples"] == 10 and own["exact"]["samples"] == 2
    assert list(needle["by_place"]) == ["0.0", "0.25", "0.5", "0.75", "1.0"
                                        ] and own["by_place"] == {}
    assert all(place["share"]["samples"] == 2 for place in needle["by_place"].values())
    assert "1 of 3 questions of own.jsonl have more than 128 tokens" in done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "niah_single digits=3" in line]
    assert line.split()[2:6] == ["10", "0", "%", "[0,"]


def test_evaluate_without_a_task_writes_what_it_wrote_before(home, tmp_path):
    done = evaluate(home, "--out", tmp_path / "found.json")
    assert done.exit_code == 0 and "tasks" not in json.loads((tmp_path / "found.json").read_text())
    assert "prompts of" not in done.stdout


def finetune(home, out, *more):
    return invoke("finetune", "--model", home / "base", "--text", home / "text.txt", "--group", 4,
                  "--window", 8, "--length", 128, "--steps", 2, "--rows", 2, "--precision",
                  "float32", "--out", out, *more)


def test_finetune_asks_what_it_is_told_and_resumes_only_the_same(home, tmp_path):
    run = ["--task", "niah_single", "--task", home / "own.jsonl", "--difficulty", "digits=2"]
    done = finetune(home, tmp_path / "run", *run)
    assert done.exit_code == 0, done.output
    assert done.stderr.count(
        "note: ") == 1 and "1 of 3 questions of own.jsonl have more than 112 tokens" in done.stderr
    assert all(record["task_loss"] is not None for record in read_log(tmp_path / "run"))
    given = json.loads((tmp_path / "run" / "state" / "progress.json").read_text())["run"]
    assert given["questions"][0] == "niah_single digits=2" and given["questions"][1].startswith(
        "own.jsonl ")
    assert finetune(home, tmp_path / "run", *run, "--resume").exit_code == 0
    other = finetune(home, tmp_path / "run", *run[:-1], "digits=3", "--resume")
    assert other.exit_code == 2 and "questions differ" in other.output


def test_the_built_in_questions_are_replaced_and_only_by_a_task(home):
    model, tokenizer = load_pretrained(home / "base")
    asked = mixture_for(Reading(length=128), model, tokenizer, small.corpus(),
                        chosen_tasks(["niah_single"]))
    assert [type(task) for task in asked.tasks] == [PackedExamples] and asked.shift == 128 // 8
    plain = mixture_for(Reading(length=128), model, tokenizer, small.corpus())
    assert len(
        plain.tasks) == 2 and not any(isinstance(task, PackedExamples) for task in plain.tasks)
    ids, known = asked.batch(0)
    (row,) = known[asked.text_rows:].any(dim=1).nonzero()[:1]
    marked = ids[asked.text_rows:][row][known[asked.text_rows:][row]]
    assert tokenizer.decode(marked).strip().isdigit() and known[: asked.text_rows].all()


def needle_words(home, *more):
    return ["study", "needles", "--model", home / "base", "--length", 100, "--length", 200,
            "--depths", 3, "--samples", 2, "--difficulty", 2, *more]


def test_needles_measures_draws_and_writes(home, tmp_path, monkeypatch):
    drawn, make = [], Needles.draw
    monkeypatch.setattr(Needles, "draw",
                        lambda study, result: drawn.append(result) or make(study, result))
    done = invoke(*needle_words(home, "--out", tmp_path / "n.json", "--figure", tmp_path / "n.png"))
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "n.json").read_text())
    assert (found["task"], found["attention"]) == ("niah_single digits=2", "full")
    assert (found["seed"], found["samples"]) == (0, 2)
    assert found["lengths"] == [100, 200] and found["depths"] == [0.0, 0.5, 1.0]
    assert [(cell["length"], cell["depth"]) for cell in found["cells"]] == [
        (length, depth) for length in (100, 200) for depth in (0.0, 0.5, 1.0)]
    assert {cell["exact"]["samples"] for cell in found["cells"]} == {2}
    assert found["versions"]["torch"] == torch.__version__ and {"command", "device", "machine"
                                                                } <= set(found)
    assert drawn == [found]  # from what is written
    assert matplotlib.image.imread(tmp_path / "n.png").shape[2] == 4
    again = invoke(*needle_words(home, "--out", tmp_path / "again.json"))
    same = json.loads((tmp_path / "again.json").read_text())
    assert again.exit_code == 0 and same["cells"] == found["cells"] and "50 %" in again.stdout


def test_each_cell_asks_its_own_depth_and_length(home, monkeypatch):
    """An oracle that answers only at depth 0.5 of the longer prompts is found out."""
    asked = NiahSingle(2).examples(small.tokenizer(), 2, length=200, seed=0, place=0.5)
    known = {example.prompt: example.answers[0] for example in asked}
    monkeypatch.setattr("cca_lab.models.evaluate.continuation",
                        lambda *given: known.get(given[2], ""))
    result = Needles(model=str(home / "base"), length=(200, 100), difficulty=("2", ), depths=3,
                     samples=2).run()
    assert needles.shares_of(result).tolist() == [[0, 0], [0, 1], [0, 0]]


def test_depths_are_even_and_lengths_have_a_default():
    assert needles.depths_of(1) == [0.5] and needles.depths_of(5) == [0, 0.25, 0.5, 0.75, 1]
    assert needles.default_lengths(512) == (128, 256, 512) and needles.default_lengths(8192) == (
        256, 512, 1024)


@pytest.mark.parametrize(
    "words, told",
    [(["evaluate", "--task", "nonsense"], "task: got 'nonsense', wanted one of niah_single"),
     (["evaluate", "--task", "niah_single", "--difficulty", "digits"],
      "difficulty: got 'digits', wanted a number"),
     (["evaluate", "--difficulty", "3"], "difficulty: got '3' without --task"),
     (["evaluate", "--task", "niah_single", "--questions", 0], "questions: got 0 with --task"),
     (["evaluate", "--task", "{home}/own.jsonl", "--out", "{home}/own.jsonl"],
      "is the file of questions itself"),
     (["evaluate", "--task", "{home}/text.txt"], "text.txt, line 1: is no JSON"),
     (["evaluate", "--task", "niah_single", "--length", 20], "length: got 20, wanted at least"),
     (["finetune", "--task", "niah_single", "--difficulty", "short=true", "--out", "{home}/run"],
      "'short' is none of"),
     (["finetune", "--task", "variable_tracking", "--length", 64, "--out", "{home}/run"],
      "length: got 56, wanted"),
     (["study", "needles", "--task", "common_words"],
      "task: got common_words, whose answers have no depth"),
     (["study", "needles", "--task", "{home}/own.jsonl"],
      "task: got own.jsonl, whose answers have no depth"),
     (["study", "needles", "--length", 257], "length: got 257 tokens, wanted at most 256"),
     (["study", "needles", "--depths", 0], "depths: got 0"),
     (["study", "needles", "--samples", -1], "samples: got -1"),
     (["study", "needles", "--out", "{home}/x.json", "--figure", "{home}/x.json"],
     "is also out, which it would replace")])
def test_a_wrong_option_is_one_line(home, words, told):
    own = [str(word).format(home=home) for word in words]
    more = [] if own[0] == "study" else ["--text", str(home / "text.txt")]
    length = [] if own[0] == "study" or "--length" in own else ["--length", "128"]
    before = sorted(home.iterdir())
    done = invoke(*own, "--model", home / "base", *more, *length)
    assert done.exit_code == 2 and told in done.stderr, done.output
    assert len([line for line in done.stderr.splitlines() if line.startswith("error: ")]) == 1
    assert sorted(home.iterdir()) == before
