"""Files of one's own questions: a line of another form is named by its number."""

import json

import pytest

from cca_lab.tasks.examples import Example, tokens_of
from cca_lab.tasks.own import own_questions
from cca_lab.tasks.prompts import chosen_tasks
from tests.studies import small

OWN = {"prompt": "The first day of the week is", "answer": " Monday "}


def written(folder, *lines):
    path = folder / "questions.jsonl"
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n"
                            for line in lines))
    return path


def only(folder, line):
    (example,) = own_questions(written(folder, line)).lines
    return example


def test_the_lab_s_own_form(tmp_path):
    assert only(tmp_path, OWN) == Example(OWN["prompt"], ("Monday",))
    several = only(tmp_path, {"prompt": "p", "answers": ["a", "b"], "place": 0.25})
    assert several == Example("p", ("a", "b"), 0.25)


@pytest.mark.parametrize("line, told", [
    ("{", "Expecting property name"), ("3", "not iterable"),
    ({"prompt": "p", "question": "q"}, "add what is missing"),
    ({"prompt": 4, "answer": "a"}, "prompt: got 4, wanted text"),
    ({"prompt": "p", "answer": ""}, "an answer is empty"),
    ({"prompt": "p", "answers": []}, "an answer is empty"),
    ({"prompt": "p", "answers": [1]}, "'int' object has no attribute"),
    ({"prompt": "p", "answer": "\ud800"}, "surrogates"),
])
def test_a_line_in_no_form_is_named(tmp_path, line, told):
    line = line + "\n" if isinstance(line, str) else line
    with pytest.raises(ValueError) as error:
        own_questions(written(tmp_path, OWN, "\n", line, OWN))
    assert "questions.jsonl, line 3: " in str(error.value) and told in str(error.value)


def test_windows_line_ends_and_a_mark_at_the_start_are_read(tmp_path):
    (tmp_path / "q").write_bytes(b"\xef\xbb\xbf" + b"\r\n".join([json.dumps(OWN).encode()] * 2))
    assert len(own_questions(tmp_path / "q").lines) == 2


def many(folder, count=20):
    return own_questions(written(folder, *(
        {"prompt": "the window keeps " * (index + 1) + "its", "answer": f"a{index}"}
        for index in range(count))))


def test_questions_that_fit_are_taken_in_order_and_some_of_many_by_the_seed(tmp_path):
    task, tokenizer = many(tmp_path), small.tokenizer()
    sizes = [tokens_of(tokenizer, example) for example in task.lines]
    read = task.examples(tokenizer, 100, length=sizes[9], seed=0)
    assert read == list(task.lines[:10])  # each is longer than the one before
    some = [task.examples(tokenizer, 4, length=sizes[9], seed=seed) for seed in (0, 0, 1)]
    assert some[0] == some[1] != some[2] and all(example in read for example in some[0])
    order = [read.index(example) for example in some[0]]
    assert order == sorted(order) and len(task.fitting(tokenizer, sizes[9] - 1)) == 9
    with pytest.raises(ValueError, match=f"wanted at least {sizes[0]} tokens for the shortest "
                       "question of questions.jsonl"):
        task.examples(tokenizer, 1, length=sizes[0] - 1, seed=0)


def test_a_file_is_a_task_and_its_content_is_its_identity(tmp_path):
    path = written(tmp_path, OWN)
    (task,) = chosen_tasks([path])
    assert (task.name, task.placed, str(task)) == ("questions.jsonl", False,
                                                   str(own_questions(path)))
    assert str(own_questions(written(tmp_path, OWN, OWN))) != str(task)
    with pytest.raises(ValueError, match="difficulty: got digits=3, wanted NAME=VALUE of a task"):
        chosen_tasks([str(path)], ["digits=3"])
    assert str(chosen_tasks([str(path), "niah_single"], ["digits=3"])[1]) == "niah_single digits=3"
