"""The score of a model on prompts.

What it writes is what generation writes, and only that is scored.
"""

import json

import pytest
import torch

from cca_lab.mechanisms.caches import CACHES
from cca_lab.models import evaluate, load_pretrained, swap_attention
from cca_lab.models.evaluate import (
    Answer,
    Answers,
    answer_examples,
    continuation,
    share_right,
    task_examples,
)
from cca_lab.tasks.examples import Example, answer_room, prompt_ids
from cca_lab.tasks.own import own_questions
from cca_lab.tasks.ruler import NiahSingle
from tests.studies import small

PROMPT = ("Return the number of items in the list.\n    A map drawn by Marta Keller.\n"
          "    A song written by")
MECHANISMS = {"full": {}, "cca": {"group": 4, "window": 8}, "dga": {"group": 4},
              "streaming_llm": {"recent": 12}, "longlora": {"group": 16},
              "a_shape": {"sinks": 4, "window": 16}}


def answer_task(model, tokenizer, task, **given):
    return answer_examples(model, tokenizer, task_examples(model, tokenizer, task, **given))


@pytest.fixture(scope="module")
def shipped():
    return load_pretrained("data/models/gpt2-mini")


@pytest.fixture
def model(shipped):
    yield shipped[0]
    swap_attention(shipped[0], "full")


def step_by_step(model, tokenizer, prompt, tokens):
    """The most probable token again and again, from the whole text each time."""
    ids = torch.tensor([prompt_ids(tokenizer, prompt)])
    start = ids.shape[1]
    with torch.no_grad():
        for _ in range(tokens):
            ids = torch.cat([ids, model(ids, use_cache=False).logits[:, -1:].argmax(-1)], dim=1)
    return tokenizer.decode(ids[0, start:])


@pytest.mark.parametrize("prompt", [PROMPT, "def main(", "the"])
def test_full_attention_writes_what_generate_writes(model, shipped, prompt):
    tokenizer = shipped[1]
    found = continuation(model, tokenizer, prompt, 12)
    ids = tokenizer(prompt, return_tensors="pt")
    own = model.generate(**ids, max_new_tokens=12, do_sample=False)
    assert found == tokenizer.decode(own[0, ids.input_ids.shape[1]:]) == step_by_step(
        model, tokenizer, prompt, 12)


def test_opt_writes_what_generate_writes():
    opt, tokenizer = load_pretrained("data/models/opt-mini")
    assert continuation(opt, tokenizer, PROMPT, 8) == step_by_step(opt, tokenizer, PROMPT, 8)


@pytest.mark.parametrize("name", [name for name in MECHANISMS if name != "full"])
def test_a_mechanism_writes_with_its_own_cache_or_without_one(model, shipped, name, monkeypatch):
    tokenizer, made = shipped[1], []
    swap_attention(model, name, **MECHANISMS[name])
    if name in CACHES:
        monkeypatch.setitem(CACHES, name,
                            lambda model, make=CACHES[name]: made.append(make(model)) or made[-1])
    found = continuation(model, tokenizer, PROMPT, 10)
    assert len(made) == (name in CACHES)
    ids = tokenizer(PROMPT, return_tensors="pt")
    past = {"past_key_values": CACHES[name](model)} if name in CACHES else {"use_cache": False}
    own = model.generate(**ids, max_new_tokens=10, do_sample=False, **past)
    assert found == tokenizer.decode(own[0, ids.input_ids.shape[1]:])


def test_settings_of_the_model_s_own_generation_change_nothing(model, shipped):
    before, kept = continuation(model, shipped[1], PROMPT, 12), model.generation_config.to_dict()
    model.generation_config.update(do_sample=True, temperature=5.0, repetition_penalty=5.0,
                                   num_beams=3)
    try:
        assert continuation(model, shipped[1], PROMPT, 12) == before
    finally:
        model.generation_config.update(**kept)


def questions(model, tokenizer):
    """Examples that the model answers, does not, and half answers, by what it writes."""
    wanted = continuation(model, tokenizer, PROMPT, 4).strip()
    first = wanted.split()[0]
    return {"right": Example(PROMPT, (wanted, )),
            "in the prompt": Example(PROMPT, ("Marta Keller", )),
            "only its beginning": Example(PROMPT, (f"{first} and others", )),
            "half": Example(PROMPT, (wanted.upper(), "zzz"))}


def scores(model, tokenizer):
    asked = questions(model, tokenizer)
    found = answer_examples(model, tokenizer, list(asked.values()))
    return {name: (answer.share, answer.exact)
            for name, answer in zip(asked, found.each, strict=True)}


EXPECTED = {"right": (1, True), "in the prompt": (0, False), "only its beginning": (0, False),
            "half": (0.5, False)}


def test_the_score_is_what_the_continuation_contains(model, shipped):
    assert scores(model, shipped[1]) == EXPECTED


def test_the_continuation_leaves_room_for_the_longest_answer(model, shipped, monkeypatch):
    tokenizer, asked = shipped[1], []
    monkeypatch.setattr(evaluate, "continuation", lambda *given: asked.append(given[3]) or "")
    example = Example(PROMPT, ("1", "1234567"))
    answer_examples(model, tokenizer, [example])
    assert asked == [answer_room(tokenizer, example)
                     ] and asked[0] >= len(tokenizer.encode(" 1, 1234567")) + 2


def written(shares, places):
    return Answers(tuple(Answer("", share, share == 1, place)
                         for share, place in zip(shares, places, strict=True)))


def test_estimates_over_all_and_by_place():
    found = written([1.0, 0.5, 0.0, 1.0, 0.5], [0.0, 0.1, 0.3, 1.0, None])
    assert found.share.value == pytest.approx(0.6) and found.share.low < 0.6 < found.share.high
    hits = torch.tensor([True, False, False, True, False]).numpy()
    assert found.exact == share_right(hits)
    places = found.by_place()
    assert {place: len(own.each) for place, own in places.items()} == {0.0: 2, 0.25: 1, 1.0: 1}
    assert places[0.0].share.value == 0.75 and places[0.0].exact.value == 0.5
    shown = json.loads(json.dumps(found.as_json()))
    assert shown["by_place"]["0.25"]["share"]["value"] == 0.0 and shown["exact"]["samples"] == 5
    assert written([1.0], [None]).as_json()["by_place"] == {}


def test_the_same_is_asked_of_every_model_at_every_place(monkeypatch):
    model, seen = small.model(context=512), []
    monkeypatch.setattr(evaluate, "continuation", lambda *given: seen.append(given[2]) or "")
    for _ in range(2):
        found = answer_task(model, small.tokenizer(), NiahSingle(3), length=200, each=2)
    assert seen[:10] == seen[10:] and len(set(seen)) == 10
    assert [answer.place
            for answer in found.each] == [0.0, 0.0, 0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1.0, 1.0]


def test_a_file_is_asked_as_often_as_it_has_questions(tmp_path, monkeypatch):
    (tmp_path / "q").write_text('{"prompt": "the group", "answer": "pools"}\n' * 3)
    monkeypatch.setattr(evaluate, "continuation", lambda *given: " pools its keys")
    found = answer_task(small.model(), small.tokenizer(), own_questions(tmp_path / "q"), length=64,
                        each=2)
    assert len(found.each) == 3 and found.exact.value == 1


def test_the_model_keeps_its_mode(model, shipped):
    model.train()
    continuation(model, shipped[1], "the", 2)
    assert model.training
    model.eval()
