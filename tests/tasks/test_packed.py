"""Examples as training rows: marked is the answer to what stands before it, and rows are full."""

import json

import pytest
import torch

from cca_lab.tasks.mixture import Mixture, PackedExamples
from cca_lab.tasks.own import own_questions
from cca_lab.tasks.ruler import KeyValues, NiahMultivalue, NiahSingle
from tests.studies import small
from tests.tasks.test_prompts import READERS

ROW = 512


def drawn(task=None, rows=6, longest=448, seed=0):
    questions = PackedExamples(task or NiahSingle(), small.tokenizer(), longest)
    return questions.interleaved_batch(rows, ROW, torch.Generator().manual_seed(seed))


def pieces(ids, marks):
    """Divide a row into whole examples: (text before the answer, marked text, text after it)."""
    tokenizer, whole, start = small.tokenizer(), [], 0
    for end in (ids == tokenizer.eos_token_id).nonzero().flatten().tolist():
        marked = marks[start:end].nonzero().flatten().tolist() or [0]
        cuts = (start, start + marked[0], start + marked[-1] + 1, end)
        whole.append([tokenizer.decode(ids[a:b]) for a, b in zip(cuts, cuts[1:], strict=False)])
        start = end + 1
    return whole


@pytest.mark.parametrize("task", [NiahSingle(), NiahMultivalue(), KeyValues(short=True)], ids=str)
def test_exactly_the_answers_are_marked(task):
    ids, marks = drawn(task)
    assert ids.shape == marks.shape == (6, ROW) and marks.dtype == torch.bool
    for row, held in zip(ids, marks, strict=True):
        whole = pieces(row, held)
        assert whole, "a row without a whole example teaches nothing"
        for prompt, answer, after in whole:
            assert not after and answer.strip() == ", ".join(READERS[task.name](prompt))


def test_rows_hold_examples_of_several_lengths():
    questions = PackedExamples(NiahSingle(), small.tokenizer(), 448)
    assert questions.lengths == [448, 224, 112]  # 56 tokens are too few for these words and digits
    ids, marks = drawn(rows=20)
    counts = [len(pieces(row, held)) for row, held in zip(ids, marks, strict=True)]
    assert min(counts) >= 1 and max(counts) >= 3


def whole_in_mixture(longest):
    """The least number of whole examples in a row, with text before it."""
    packed = PackedExamples(NiahSingle(), small.tokenizer(), longest)
    mixed = Mixture(small.stream(), (packed,), ROW, 8, 0.0, 0, 64)
    return min(sum(bool(answer) for _, answer, _ in pieces(row, held))
               for step in range(3) for row, held in zip(*mixed.batch(step), strict=True))


def test_text_before_a_row_cuts_off_no_first_answer():
    assert whole_in_mixture(ROW - 64) >= 1


def test_the_generator_decides_everything():
    torch.manual_seed(1)
    first = drawn()
    torch.manual_seed(2)
    assert all(torch.equal(one, other) for one, other in zip(first, drawn(), strict=True))
    assert not torch.equal(first[0], drawn(seed=1)[0])
    assert len({tuple(row) for row in first[0].tolist()}) == len(first[0])


def test_a_file_s_questions_keep_their_lengths_and_long_ones_are_left_out(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text("".join(
        json.dumps({"prompt": "the last of them " * count + "is", "answer": f"w{count}"}) + "\n"
        for count in (3, 5, 400)))
    task = own_questions(path)
    ids, marks = drawn(task=task)
    found = [pieces(row, held) for row, held in zip(ids, marks, strict=True)]
    assert {answer for row in found for _, answer, _ in row} == {" w3", " w5"}
    assert all(prompt.count("last") == int(answer[2:])
               for row in found for prompt, answer, _ in row)
    assert PackedExamples(task, small.tokenizer(), 448).name.startswith("q.jsonl ")
    with pytest.raises(ValueError, match="the shortest question of q.jsonl"):
        PackedExamples(task, small.tokenizer(), 10)


def test_without_an_end_of_text_a_line_end_separates():
    class Endless:
        eos_token_id = None

        def __getattr__(self, name):
            return getattr(small.tokenizer(), name)

    questions = PackedExamples(NiahSingle(), Endless(), 112)
    ids, marks = questions.interleaved_batch(1, 300, torch.Generator().manual_seed(0))
    text = small.tokenizer().decode(ids[0])
    assert small.tokenizer().eos_token not in text and "\nRemember the codes" in text
    assert marks.any()


def test_names_distinguish_difficulties_and_lengths_are_checked():
    three, four = (PackedExamples(NiahSingle(digits), small.tokenizer(), 448) for digits in (3, 4))
    assert three.name != four.name
    with pytest.raises(ValueError, match="length: got 30, wanted at least"):
        PackedExamples(NiahSingle(), small.tokenizer(), 30)
