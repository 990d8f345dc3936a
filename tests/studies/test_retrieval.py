"""What `cca-lab study retrieval` asks, and the heads that its file keeps."""

import json

import pytest
import torch

from cca_lab.mechanisms import CCA, KeptHeads
from cca_lab.studies import retrieval
from cca_lab.studies.retrieval import Retrieval
from cca_lab.studies.study import ranked_heads, with_kept_heads
from tests.studies import small

MODEL = "data/models/gpt2-mini"
SCORES = [[0.1, 0.9], [0.5, 0.2]]


def scores_file(folder, **changes):
    path = folder / "scores.json"
    path.write_text(json.dumps({"best": "gates", "scores": {"gates": SCORES}} | changes))
    return path


@pytest.mark.parametrize(("changes", "words"), [
    ({"score": ("attention",), "task": ("text",)}, "score: got 'attention' for the task 'text'"),
    ({"score": ("gain",), "task": ("text",), "length": 16}, "length: prompts of text with 16"),
    ({"attention": "lococo", "group": None, "window": None}, "attention: got 'lococo', wanted one"),
    ({"count": (17,)}, "count: got 17"),
])
def test_wrong_settings_are_refused(changes, words, monkeypatch):
    monkeypatch.setattr(retrieval, "load_corpus", small.corpus)
    settings = {"model": MODEL, "group": 8, "window": 16, "steps": 1, "judged": 1} | changes
    with pytest.raises(ValueError, match=words):
        Retrieval(**settings).run()


def test_text_is_a_task_whose_second_half_is_the_answer(monkeypatch):
    monkeypatch.setattr(retrieval, "load_corpus", small.corpus)
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


@pytest.mark.parametrize("content", ["[]", "{}", '{"best": "luck", "scores": {}}'])
def test_another_file_is_named(tmp_path, content):
    (tmp_path / "scores.json").write_text(content)
    with pytest.raises(ValueError, match="heads: .*scores.json is no file of `cca-lab study retr"):
        ranked_heads(tmp_path / "scores.json")
