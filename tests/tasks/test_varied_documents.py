"""Documents of 5 to 20 tokens: lengths, places, answers, and contexts longer than all names."""

from collections import Counter

import pytest
import torch

from cca_lab.tasks.multi_document_qa import CLOSINGS, OPENINGS, MultiDocumentQA, VariedDocumentQA
from tests.studies import small


@pytest.fixture(scope="module")
def task():
    return VariedDocumentQA(small.tokenizer())


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def pieces(row, task):
    """Cut a context after each line end: documents, the first perhaps cut, and what follows."""
    ends = (row == task.end[-1]).nonzero().flatten() + 1
    return [piece.tolist() for piece in row.tensor_split(ends)]


def names_of(document, task):
    """Return the first name and the surname of a whole document; None of one that is cut."""
    for opening, closing in task.frames.get(len(document), []):
        at, rest = len(opening), [*closing, *task.end.tolist()]
        if document[:at] == opening and document[at + 2:] == rest:
            return document[at], document[at + 1]
    return None


def lengths_are_even(task):
    """Whether every length of a document is within 20 % of its share of some 5000 documents."""
    ids, _ = task.interleaved_batch(64, 1024, generator(), most_questions=0.0)
    counts = Counter(len(document) for row in ids for document in pieces(row, task)[:-1])
    share = sum(counts.values()) / len(task.frames)
    assert counts.keys() == task.frames.keys()
    return all(0.8 * share < count < 1.2 * share for count in counts.values())


def test_lengths_are_those_of_the_tokenizer_drawn_evenly(task):
    texts = [f"{opening} Marta Keller{closing}.\n" for opening in OPENINGS for closing in CLOSINGS]
    lengths = {len(small.tokenizer().encode(text)) for text in texts}
    assert max(lengths) > 20  # so some are left out
    assert list(task.frames) == sorted(length for length in lengths if 5 <= length <= 20)
    assert (task.document_length, len(task.frames) > 10) == (20, True)
    assert lengths_are_even(task)


def check_answers(task, length, position=None):
    """The documents of a context tell each first name once, the one asked for with its answer."""
    batch = task.batch(32, length, generator(1), position)
    assert batch.input_ids.shape == (32, length) and batch.answers.shape == (32,)
    for row, answer in zip(batch.input_ids, batch.answers.tolist(), strict=True):
        *documents, question = pieces(row, task)
        facts = [names for names in (names_of(document, task) for document in documents) if names]
        assert len(facts) >= len(documents) - 1  # only the first may be cut
        assert len(dict(facts)) == len(facts)
        assert dict(facts).get(question[-1]) == answer


@pytest.mark.parametrize("length, position", [(40, None), (120, 0.0), (512, 0.5), (1024, 1.0)])
def test_a_context_holds_its_answer(task, length, position):
    check_answers(task, length, position)


def places_asked_for(task, position):
    """Return the place of each row's answering document among the whole ones, and their number."""
    batch = task.batch(64, 256, generator(2), position)
    seen = []
    for row in batch.input_ids:
        *documents, question = pieces(row, task)
        names = [names[0] for document in documents if (names := names_of(document, task))]
        seen.append((names.index(question[-1]), len(names)))
    return seen


@pytest.mark.parametrize("position", [0.0, 0.5, 1.0])
def test_the_answer_stands_where_it_was_asked_for(task, position):
    seen = places_asked_for(task, position)
    assert seen == [(round(position * (count - 1)), count) for _, count in seen]


def test_without_a_position_every_document_is_asked_for_alike(task):
    relative = [place / (count - 1) for place, count in places_asked_for(task, None)]
    assert min(relative) < 0.15 < 0.4 < sum(relative) / len(relative) < 0.65 < 0.85 < max(relative)


def marks_are_the_told_answers(task, length=256):
    """Whether exactly the surnames whose first name stood earlier are marked."""
    ids, is_answer = task.interleaved_batch(16, length, generator(3))
    assert ids.shape == is_answer.shape == (16, length) and is_answer.dtype == torch.bool
    assert is_answer.any(dim=1).sum() >= 14
    for row, marks in zip(ids, is_answer, strict=True):
        told, expected = {}, []
        for place in torch.isin(row, task.first).nonzero().flatten().tolist():
            if place + 1 == length:
                continue
            first, answer = row[place:place + 2].tolist()
            if first in told:
                assert told[first] == answer
                expected.append(place + 1)
            told[first] = answer
        if marks.nonzero().flatten().tolist() != expected:
            return False
    return True


def test_training_contexts_mark_answers_that_they_hold(task):
    assert marks_are_the_told_answers(task)


def starts(ids, task):
    """Return the places in their contexts at which whole documents begin."""
    seen = []
    for row in ids:
        ends = (row == task.end[-1]).nonzero().flatten().tolist()
        seen += [end + 1 for end in ends if end + 1 < len(row)]
    return seen


@pytest.mark.parametrize("kind", ["batch", "interleaved_batch"])
def test_documents_begin_anywhere_in_a_group_of_eight(task, kind):
    """Documents of one length, 8 tokens, all begin where a group of 8 does."""
    def residues(task):
        drawn = getattr(task, kind)(64, 256, generator())
        return Counter(start % 8
                       for start in starts(drawn.input_ids if kind == "batch" else drawn[0], task))

    seen, aligned = residues(task), MultiDocumentQA(small.tokenizer())
    assert seen.keys() == set(range(8)) and min(seen.values()) > 0.7 * sum(seen.values()) / 8
    assert aligned.document_length == 8 and residues(aligned).keys() == {0}


def test_past_the_last_name_are_questions_only(task):
    aligned = MultiDocumentQA(small.tokenizer())
    ids, marks = aligned.interleaved_batch(1, 2048, generator())
    assert ids.shape == marks.shape == (1, 2048)
    slots = marks.view(-1, aligned.document_length)
    assert slots[128:, aligned.question_length].all() and slots.sum(dim=1).max() == 1
    assert marks_are_the_told_answers(aligned, 2048)
    assert marks_are_the_told_answers(task, 2048)
    ids, marks = task.interleaved_batch(4, 3000, generator(), most_questions=0.0)
    for row, held in zip(ids, marks, strict=True):
        surnames = torch.isin(row, task.last).nonzero().flatten()
        assert not held[surnames[:128]].any() and len(surnames) > 140 and held[surnames[128:]].all()


def test_the_generator_decides_everything(task):
    def drawn(seed):
        batch = task.batch(3, 128, generator(seed))
        return [batch.input_ids, batch.answers, *task.interleaved_batch(3, 128, generator(seed))]

    torch.manual_seed(1)
    first = drawn(5)
    torch.manual_seed(2)
    assert all(torch.equal(*pair) for pair in zip(first, drawn(5), strict=True))
    assert not any(torch.equal(*pair) for pair in zip(first[::2], drawn(6)[::2], strict=True))


def test_tokenized_text_equals_the_tokens(task):
    """What is drawn token by token is what the tokenizer would read from the text."""
    ids = task.interleaved_batch(1, 300, generator())[0][0]
    whole = [token for piece in pieces(ids, task)[:-1] for token in piece]
    assert small.tokenizer().encode(small.tokenizer().decode(whole)) == whole
