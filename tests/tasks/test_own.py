"""Files of one's own questions: every accepted form, and a line in none is named by its number."""

import json

import pytest

from cca_lab.tasks.examples import Example, tokens_of
from cca_lab.tasks.own import own_questions
from cca_lab.tasks.prompts import chosen_task, chosen_tasks
from tests.studies import small

OWN = {"prompt": "The first day of the week is", "answer": " Monday "}
PAIRS = [[f"key {index}", f"value {index}"] for index in range(5)]
QA = {"question": "who drew the map?", "answers": ["Keller", "Marta Keller"],
      "nq_annotated_gold": {},
      "ctxs": [{"title": "Songs", "text": "Omar wrote one."}, {"title": "", "text": "Nothing."},
               {"title": "Maps", "text": "Marta Keller.", "isgold": True}]}
LONG = {"context": "A long text.", "input": "What is it?", "answers": ["a text", "text"],
        "length": 3, "_id": "x"}


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
    assert several == Example("p", ("a", "b"), 0.25, one_is_enough=False)


def test_the_form_of_ruler(tmp_path):
    line = {"index": 0, "input": "text", "outputs": ["1", "2"], "length": 5}
    assert only(tmp_path, line) == Example("text", ("1", "2"))
    assert only(tmp_path, line | {"answer_prefix": " The answer is"}).prompt == "text The answer is"


def test_the_form_of_longbench(tmp_path):
    read = only(tmp_path, LONG)
    assert read.prompt == "A long text.\n\nWhat is it?\n\nAnswer:" and read.one_is_enough
    assert only(tmp_path, LONG | {"input": ""}).prompt == "A long text.\n\nAnswer:"  # a summary


def test_the_key_values_of_lost_in_the_middle(tmp_path):
    read = only(tmp_path, {"ordered_kv_records": PAIRS, "key": "key 3", "value": "value 3"})
    assert read.answers == ("value 3",) and read.place == 0.75
    shown = read.prompt[read.prompt.index("{"):read.prompt.index("}") + 1]
    assert json.loads(shown) == dict(PAIRS)
    assert read.prompt.endswith('"key 3": "')


def test_the_documents_of_lost_in_the_middle(tmp_path):
    read = only(tmp_path, QA)
    assert read.answers == ("Keller", "Marta Keller") and read.one_is_enough and read.place == 1
    places = [read.prompt.index(text) for text in ("Omar", "[2] \nNothing", "[3] Maps")]
    assert places == sorted(places)
    assert read.prompt.endswith("Question: who drew the map?\nAnswer:")
    unknown = QA | {"ctxs": [{"title": "Maps", "text": "Marta Keller."}]}
    assert only(tmp_path, unknown).place is None


@pytest.mark.parametrize("line, told", [
    ("{", "Expecting property name"), ("3", "not iterable"),
    ({"prompt": "p", "question": "q"},
     "got none of the forms prompt, answers; prompt, answer; ordered_kv_records, key, value; "),
    ({"prompt": 4, "answer": "a"}, "prompt: got 4, wanted text"),
    ({"prompt": "p", "answer": ""}, "an answer is empty"),
    ({"prompt": "p", "answers": []}, "an answer is empty"),
    ({"prompt": "p", "answers": [1]}, "'int' object has no attribute"),
    ({"prompt": "p", "answer": "\ud800"}, "surrogates"),
    ({"ordered_kv_records": PAIRS, "key": "key 3", "value": "value 2"}, "is not in list"),
    (QA | {"ctxs": [{"title": "t"}]}, "text: got None"),
])
def test_a_line_in_no_form_is_named(tmp_path, line, told):
    line = line + "\n" if isinstance(line, str) else line
    with pytest.raises(ValueError) as error:
        own_questions(written(tmp_path, OWN, "\n", line, OWN))
    assert "questions.jsonl, line 3: " in str(error.value) and told in str(error.value)


@pytest.mark.parametrize("content, told", [
    (b"", "holds no questions"), (b"\n \n", "holds no questions"),
    (json.dumps(OWN).encode() + "\n{\"prompt\": \"é\"".encode("latin-1"),
     "is not UTF-8 (byte 0xe9 at 77) in line 2"),
    (json.dumps(OWN).encode("utf-16"), "it looks like UTF-16: save it as UTF-8"),
    (b"\x1f\x8b\x08\x00" + b"\x9c" * 20, "it looks like a gzip file"),
    (b"{}\0", "holds NUL characters")])
def test_a_file_that_is_no_text_is_named(tmp_path, content, told):
    (tmp_path / "q").write_bytes(content)
    with pytest.raises(ValueError) as error:
        own_questions(tmp_path / "q")
    assert told in str(error.value), error.value


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
                       "question of questions.jsonl, line 1"):
        task.examples(tokenizer, 1, length=sizes[0] - 1, seed=0)
    with pytest.raises(ValueError, match="place: got 0.5 for questions.jsonl"):
        task.examples(tokenizer, 1, length=512, seed=0, place=0.5)


def test_a_file_is_a_task_and_its_content_is_its_identity(tmp_path):
    path = written(tmp_path, OWN)
    task = chosen_task(path)
    assert (task.name, task.placed, str(task)) == ("questions.jsonl", False,
                                                   str(own_questions(path)))
    assert str(own_questions(written(tmp_path, OWN, OWN))) != str(task)
    with pytest.raises(ValueError, match="difficulty: got '3' for a file"):
        chosen_tasks([str(path), "niah_single"], ["3"])
    assert str(chosen_tasks([str(path), "niah_single"], ["digits=3"])[1]) == "niah_single digits=3"
