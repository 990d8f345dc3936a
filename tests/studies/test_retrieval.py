"""`cca-lab study retrieval`, and the commands that keep the heads which it found."""

import json

import pytest
import torch

from cca_lab.mechanisms import CCA, KeptHeads
from cca_lab.mechanisms.kept_heads.mechanism import best_heads
from cca_lab.studies.evaluate import Evaluate
from cca_lab.studies.finetune import Finetune
from cca_lab.studies.lengths import Lengths
from cca_lab.studies.retrieval import Retrieval
from cca_lab.studies.study import ranked_heads, with_kept_heads

MODEL = "data/models/gpt2-mini"
SCORES = [[0.1, 0.9], [0.5, 0.2]]


def scores_file(folder, **changes):
    path = folder / "scores.json"
    path.write_text(json.dumps({"best": "gates", "scores": {"gates": SCORES}} | changes))
    return path


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("retrieval")
    study = Retrieval(model=MODEL, group=8, window=16, option=("sinks=1",), task=("niah_single",),
                      length=200, steps=2, judged=2, count=(0, 3), out=folder / "heads.json",
                      figure=folder / "heads.png")
    return study.run(), folder


@pytest.mark.slow
def test_every_head_has_four_scores(measured, capsys):
    result, folder = measured
    assert set(result["scores"]) == {"attention", "loss", "gates", "gain"} == set(result["seconds"])
    assert sum(map(sum, result["scores"]["gain"])) == pytest.approx(1, abs=1e-3)
    for name, scores in result["scores"].items():
        assert [len(layer) for layer in scores] == [4, 4, 4, 4], name
    assert (folder / "heads.png").stat().st_size > 1000
    assert json.loads((folder / "heads.json").read_text()) == result


@pytest.mark.slow
def test_no_head_kept_is_the_mechanism_alone(measured):
    losses = measured[0]["losses"]
    for name in measured[0]["scores"]:
        assert losses[name]["0"]["value"] == pytest.approx(losses["none kept"]["0"]["value"],
                                                           rel=1e-5)
        assert losses[name]["3"]["value"] != losses[name]["0"]["value"]
    assert measured[0]["best"] == min(measured[0]["scores"], key=lambda name: sum(
        each["value"] for each in losses[name].values()))


@pytest.mark.parametrize(("changes", "words"), [
    ({"score": ("luck",)}, "score: got 'luck', wanted one of attention, loss, gates"),
    ({"score": ("attention",), "task": ("text",)}, "score: got 'attention' for the task 'text'"),
    ({"score": ("gain",), "task": ("text",), "length": 16}, "length: prompts of text with 16"),
    ({"attention": "lococo", "group": None, "window": None}, "attention: got 'lococo', wanted one"),
    ({"count": (17,)}, "count: got 17"), ({"count": (-1, 2)}, "count: got -1"),
    ({"length": 5000}, "length"),
])
def test_wrong_settings_are_refused(changes, words):
    settings = {"model": MODEL, "group": 8, "window": 16, "steps": 1, "judged": 1} | changes
    with pytest.raises(ValueError, match=words):
        Retrieval(**settings).run()


def test_text_is_a_task_whose_second_half_is_the_answer():
    study = Retrieval(model=MODEL, group=8, window=16, length=100, task=("text", "niah_single"))
    text, question, again = study.prompts(3, 0)
    assert text.ids.shape == again.ids.shape == (1, 100) and not torch.equal(text.ids, again.ids)
    assert (text.answer, text.needle) == (50, []) and question.needle
    assert torch.equal(text.ids, study.prompts(1, 0)[0].ids)


def test_two_seeds_share_no_prompt():
    """Mutant: the seed is the number of the first prompt, so that two seeds share all but one."""
    one, other = (Retrieval(model=MODEL, group=8, window=16, length=200, seed=seed).prompts(4, 0)
                  for seed in (0, 1))
    assert not any(torch.equal(prompt.ids, again.ids) for prompt in one for again in other)


def test_the_best_heads_of_a_file_are_kept(tmp_path):
    path = scores_file(tmp_path)
    name, options = with_kept_heads("cca", {"group": 4, "window": 8}, path, 2)
    wanted = KeptHeads.around(CCA(group=4, window=8), [[1], [0]])
    assert (name, KeptHeads(**options)) == ("kept_heads", wanted)
    assert with_kept_heads("cca", {"group": 4}, None, None) == ("cca", {"group": 4})


@pytest.mark.parametrize(("heads", "keep", "attention", "words"), [
    (True, None, "cca", "heads, keep: got one without the other"),
    (None, 2, "cca", "heads, keep: got one without the other"),
    (True, 2, None, "heads: given without --attention"),
    (True, 5, "cca", "count: got 5, wanted 0 to 4"),
    (True, 2, "lococo", "others: got"),
])
def test_kept_heads_that_cannot_be(tmp_path, heads, keep, attention, words):
    path = scores_file(tmp_path) if heads else None
    with pytest.raises(ValueError, match=words):
        with_kept_heads(attention, {}, path, keep)


@pytest.mark.parametrize(("changes", "words"), [
    ({"best": "luck"}, "names 'luck' as its best score"), ({"best": 3}, "best"),
    ({"scores": {"gates": [["x"]]}}, "scores"), ({"scores": [1]}, "scores")])
def test_broken_scores_are_refused(tmp_path, changes, words):
    with pytest.raises(ValueError, match=f"heads: .*{words}"):
        ranked_heads(scores_file(tmp_path, **changes))
    with pytest.raises(ValueError, match="heads: .*missing.json is no file; write it with"):
        ranked_heads(tmp_path / "missing.json")


@pytest.mark.slow
def test_commands_keep_them(measured, tmp_path):
    heads = measured[1] / "heads.json"
    shown = Evaluate(model=MODEL, attention="cca", group=8, window=16, heads=heads, keep=3,
                     length=128, windows=2, questions=0).run()
    kept = best_heads(ranked_heads(heads), 3)
    assert shown["options"]["kept"] == kept
    (record,) = Finetune(model=MODEL, attention="cca", group=8, window=16, heads=heads, keep=3,
                         out=tmp_path / "run", **small_run()).run()
    assert record["step"] == 1
    saved = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert saved["cca_lab_attention"]["kept"] == kept


def small_run():
    from cca_lab.models.recipe import FinetuneConfig
    from cca_lab.tasks.reading import Reading

    return {"config": FinetuneConfig(steps=1, precision="float32", objective="attention"),
            "reading": Reading(rows=2, length=64)}


@pytest.mark.slow
def test_lengths_takes_a_mechanism_with_options_of_its_own(measured):
    words = json.dumps({"name": "cca", "group": 8, "sinks": 1})
    kept = json.dumps({"name": "cca", "heads": str(measured[1] / "heads.json"), "keep": 2})
    study = Lengths(model=MODEL, attention=("full",), length=256, windows=1,
                    swapped=(f"sink={words}", f"kept={kept}"))
    cells = study.cells()
    assert cells["sink"] == CCA(group=8, sinks=1)
    assert isinstance(cells["kept"], KeptHeads) and sum(map(len, cells["kept"].kept)) == 2
    for wrong, words in (("x", "NAME=JSON"), ("x=1", "an object"), ("cca={}", "an object"),
                         ('cca={"name": "cca"}', "name it otherwise"),
                         ('x={"name": "cca", "heads": 5, "keep": 1}', "as heads")):
        with pytest.raises(ValueError, match=f"swapped: got .*{words}"):
            Lengths(model=MODEL, attention=("full",), length=256, windows=1,
                    swapped=(wrong,)).cells()
