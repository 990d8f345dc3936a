"""The questions: one answer each, where it was asked for, told apart by the first name alone."""

import pytest
import torch

from cca_lab.tasks.multi_document_qa import MultiDocumentQA
from tests.studies import small


@pytest.fixture(scope="module")
def task():
    return MultiDocumentQA(small.tokenizer())


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def parse(text):
    """Return the documents (first name -> surname) and the first name asked for."""
    *lines, question = text.split("\n")
    facts = [line.rstrip(".").split()[-2:] for line in lines]
    return facts, question.split()[-1]


@pytest.mark.parametrize("position", [0.0, 0.5, 1.0])
def test_the_answer_stands_where_it_was_asked_for(task, position):
    batch = task.batch(8, 120, generator(), position)
    for ids, answer in zip(batch.input_ids, batch.answers, strict=True):
        facts, asked = parse(small.tokenizer().decode(ids))
        names = [first for first, _ in facts]
        assert len(set(names)) == len(names) == task.documents_in(120)
        assert names.index(asked) == round(position * (len(names) - 1))
        assert small.tokenizer().decode(answer).strip() == dict(facts)[asked]


@pytest.mark.parametrize("kind", ["training_batch", "interleaved_batch"])
def test_training_contexts_mark_answers_that_they_hold(task, kind):
    ids, is_answer = getattr(task, kind)(8, 128, generator(3))
    assert ids.shape == is_answer.shape == (8, 128)
    assert is_answer.any(dim=1).sum() >= 7
    for row, marks in zip(ids, is_answer, strict=True):
        for at in marks.nonzero().flatten().tolist():
            earlier = (row[:at - 1] == row[at - 1]).nonzero().flatten()
            assert len(earlier) >= 1 and (row[earlier + 1] == row[at]).all()


def test_only_interleaved_contexts_ask_for_documents_at_every_place(task):
    """What went wrong before: no question ever asked for a document in the last quarter."""
    def places_asked_for(kind):
        drawn = zip(*getattr(task, kind)(400, 128, generator()), strict=True)
        return {int((row[:at - 1] == row[at - 1]).nonzero()[0]) // task.document_length
                for row, marks in drawn for at in marks.nonzero().flatten().tolist()}

    slots = 128 // task.document_length
    assert places_asked_for("interleaved_batch") == set(range(slots - 1))
    assert max(places_asked_for("training_batch")) < 0.8 * slots


def test_a_tokenizer_without_the_names_is_refused():
    class Bytes:
        def encode(self, text, add_special_tokens=False):
            return list(text.encode())

    with pytest.raises(ValueError, match="first names are one token"):
        MultiDocumentQA(Bytes())
