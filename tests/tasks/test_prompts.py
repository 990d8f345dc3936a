"""The tasks as prompts: they fit, and hold the answer that they ask for where it was asked for."""

import json
import random
import re

import pytest
from tokenizers import Tokenizer, models, normalizers, processors
from transformers import PreTrainedTokenizerFast

from cca_lab.tasks import examples as filling
from cca_lab.tasks import ruler
from cca_lab.tasks.examples import Example, answer_ids, answer_room, prompt_ids, tokens_of
from cca_lab.tasks.prompts import TASKS, chosen_tasks, make_task
from cca_lab.tasks.ruler import (
    KeyValues,
    NiahMultikey,
    NiahMultivalue,
    NiahSingle,
    VariableTracking,
)
from tests.studies import small

ALL = [NiahSingle(), NiahMultikey(), NiahMultivalue(), VariableTracking(chains=2),
       KeyValues(), KeyValues(short=True), NiahMultikey(wording=1),
       NiahMultivalue(values=2, wording=1)]


def drawn(task, count=3, length=512, seed=0, place=None):
    return task.examples(small.tokenizer(), count, length=length, seed=seed, place=place)


def read_codes(prompt):
    return re.findall(r"(?:The code for|At noon) (\w+) (?:is|came by and showed ticket) (\d+)",
                      prompt)


def read_needles(prompt):
    asked = re.search(r"(?:codes? for|asked about) (\w+)(?: is| are|, he .*)$", prompt).group(1)
    return [value for key, value in read_codes(prompt) if key == asked]


def read_variables(prompt):
    """Carry out the assignments in the order of the text."""
    held = {}
    for name, source in re.findall(r"Set (\w+) to (\w+)\.", prompt):
        held[name] = source if source.isdigit() else held[source]
    wanted = re.search(r"with the value (\d+) are$", prompt).group(1)
    return [name for name, value in held.items() if value == wanted]


def read_pairs(prompt):
    body = re.search(r"\{.*\}", prompt, re.DOTALL).group()
    key = re.search(r'"([^"]*)": "$', prompt).group(1)
    return [json.loads(body)[key]]


READERS = {"niah_single": read_needles, "niah_multikey": read_needles,
           "niah_multivalue": read_needles, "variable_tracking": read_variables,
           "key_values": read_pairs}


def answers_follow(task, **settings):
    return all(sorted(READERS[task.name](example.prompt)) == sorted(example.answers)
               for example in drawn(task, **settings))


@pytest.mark.parametrize("task", ALL, ids=str)
@pytest.mark.parametrize("length", [300, 512])
def test_a_reader_of_the_prompt_finds_the_answers_and_no_others(task, length):
    assert answers_follow(task, length=length)
    assert all(answers_follow(task, length=length, place=place) for place in (0.0, 0.4, 1.0))


def with_one_more(task, example, seed=0):
    """The example that has one piece of filler more."""
    builds = [task.build(random.Random(f"{task} {seed} 0"), example.place, pieces)
              for pieces in range(300)]
    return builds[1 + max(index for index, build in enumerate(builds)
                          if build.prompt == example.prompt)]


def overhang(task, length):
    """Tokens by which an example is too long, and by which one with another piece would be."""
    (example,) = drawn(task, 1, length, place=0.5)
    return [tokens_of(small.tokenizer(), each) - length
            for each in (example, with_one_more(task, example))]


@pytest.mark.parametrize("task", ALL, ids=str)
def test_examples_fill_their_length_and_no_more(task):
    over, one_more_over = overhang(task, 377)
    assert over <= 0 < one_more_over


@pytest.mark.parametrize("task", ALL, ids=str)
def test_the_seed_decides_everything(task):
    random.seed(1)
    first = drawn(task)
    random.seed(2)
    assert first == drawn(task) and first != drawn(task, seed=1)
    assert len({example.answers for example in first}) == 3
    assert drawn(task, 2) == first[:2]


@pytest.mark.parametrize("task", ALL, ids=str)
def test_every_place_and_length_asks_the_same(task):
    examples = [drawn(task, 1, length, place=place)[0]
                for length in (300, 512) for place in (0.0, 1.0)]
    assert len({example.answers for example in examples}) == 1
    assert [example.place for example in examples] == [0.0, 1.0] * 2


def seen_at(task, place, length=512):
    """Where the answers stand in the middle line of a prompt, 0 (beginning) to 1 (end)."""
    found = []
    for example in drawn(task, 3, length, place=place):
        body = example.prompt[example.prompt.index("\n"):example.prompt.rindex("\n")]
        found += [body.index(answer) / len(body) for answer in example.answers]
    return found


def stands_there(task):
    return all(abs(seen - place) < 0.2
               for place in (0.0, 0.5, 1.0) for seen in seen_at(task, place, 1024))


@pytest.mark.parametrize("task", ALL, ids=str)
def test_answers_stand_where_they_were_asked_for(task):
    assert stands_there(task)


def test_two_wordings_share_no_sentence_and_the_first_keeps_its_examples():
    """Mutant: the number of the first wording in the seed: recorded prompts are drawn anew."""
    first, second = (drawn(NiahSingle(wording=number))[0].prompt for number in (0, 1))
    assert str(NiahSingle()) == "niah_single digits=7"
    assert str(NiahSingle(wording=1)) == "niah_single digits=7 wording=1"
    with pytest.raises(ValueError, match="wording: got -1"):
        NiahSingle(wording=-1)
    assert not set(re.split(r"[.\n]\s*", first)) & set(re.split(r"[.\n]\s*", second)) - {""}


def test_without_a_place_needles_stand_everywhere():
    places = [example.place for example in drawn(NiahSingle(), 40)]
    assert min(places) < 0.15 and max(places) > 0.85


def test_difficulties_are_what_they_say():
    assert len(read_codes(drawn(NiahMultikey(distractors=9))[0].prompt)) == 10
    assert len(drawn(NiahMultivalue(values=6))[0].answers) == 6
    assert len(drawn(VariableTracking(hops=2))[0].answers) == 3
    assert drawn(VariableTracking(chains=3), place=0.5)[0].prompt.count("Set ") == 15
    assert {len(answer) for answer in drawn(NiahSingle(digits=3))[0].answers} == {3}
    assert len(read_pairs(drawn(KeyValues(short=True))[0].prompt)[0]) == 6
    assert re.fullmatch(r"\w{8}-\w{4}-4\w{3}-\w{4}-\w{12}",
                        drawn(KeyValues(), length=600)[0].answers[0])


def test_no_word_of_the_wording_could_be_made_up():
    """The wording is what two prompts share; a made-up word has three open syllables."""
    made = re.compile(rf"(?:[{ruler.CONSONANTS}][{ruler.VOWELS}]){{3}}")
    for task in ALL:
        shared = set.intersection(*(set(re.findall(r"\w+", drawn(task, 1, seed=seed)[0].prompt))
                                    for seed in (0, 1)))
        assert len(shared) >= 9 and not any(map(made.search, shared))
    words = ruler.words(random.Random(0), 500)
    assert len(set(words)) == 500 and all(made.fullmatch(word) for word in words)
    assert ruler.words(random.Random(0), 20) == words[:20]


def test_answers_are_tokenized_as_generation_writes_them():
    """With a tokenizer that puts a space before a text and a token before a prompt, as Llama's."""
    words = ["<s>", "<unk>", "\u2581the", "\u2581code", "\u2581is", "\u258112", "\u2581", "12"]
    inner = Tokenizer(models.Unigram([(word, -1.0) for word in words], unk_id=1))
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"),
                                             normalizers.Replace(" ", "\u2581")])
    inner.post_processor = processors.TemplateProcessing(single="<s> $A",
                                                         special_tokens=[("<s>", 0)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>")
    example = Example("the code is", ("12",))
    text = example.continuation

    def read(ids):
        return [words[index] for index in ids]

    assert read(prompt_ids(tokenizer, example.prompt)) == ["<s>", *words[2:5]]
    assert read(answer_ids(tokenizer, example.prompt, text)) == ["\u258112"]
    alone = tokenizer.encode(text, add_special_tokens=False)  # mutant: the answer by itself
    assert read(alone) == ["\u2581", "\u258112"]


@pytest.mark.parametrize("prompt, wanted", [
    ("Answer:", " 1, 2"), ("Answer: ", "1, 2"), ("A:\n", "1, 2"), ('"key": "', "1, 2"),
    ('He said "hello"', " 1, 2"), ("f(", " 1, 2")])
def test_an_answer_follows_a_space_unless_the_prompt_has_one(prompt, wanted):
    assert Example(prompt, ("1", "2")).continuation == wanted


def test_the_room_is_that_of_all_answers():
    one, two = (answer_room(small.tokenizer(), Example("The code is", answers))
                for answers in (("1",), ("1", "22222")))
    assert filling.SPARE + 1 <= one < two


@pytest.mark.parametrize("call, told", [
    (lambda: make_task("niah"), "task: got 'niah', wanted one of niah_single, niah_multikey"),
    (lambda: drawn(VariableTracking(9999, 9999)), "words: got 99990000"),
    (lambda: drawn(NiahSingle(), length=20), "length: got 20, wanted at least"),
    (lambda: chosen_tasks(["niah_single"], ["digits=3", "digits=4"]), "difficulty: got digits=3"),
    (lambda: chosen_tasks(["niah_single"], ["digits="]), "difficulty: got digits=, wanted"),
    (lambda: chosen_tasks([], ["digits=3"]), "difficulty: got digits=3"),
    (lambda: chosen_tasks(["niah_single"] * 2), "task: got niah_single twice")])
def test_what_would_be_silently_wrong_is_named(call, told):
    with pytest.raises(ValueError) as error:
        call()
    assert told in str(error.value)


def test_tasks_are_chosen_by_name_and_difficulty():
    assert set(TASKS) == {task.name for task in ALL}
    assert all(make_task(name).name == name for name in TASKS)
    assert chosen_tasks(["niah_multikey"], ["distractors=5", "digits=3"]) == (NiahMultikey(5, 3),)
    assert chosen_tasks(["niah_single", "key_values", "variable_tracking"],
                        ["digits=3", "short=true"]) == (NiahSingle(3), KeyValues(True),
                                                        VariableTracking())
    assert str(NiahMultikey(5, 3)) == "niah_multikey distractors=5 digits=3"
