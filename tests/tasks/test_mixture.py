"""What finetuning reads: its shares, where documents stand in it, and what a batch depends on."""

import json

import pytest
import torch

from cca_lab.tasks.mixture import SHIFT, Mixture
from cca_lab.tasks.multi_document_qa import MultiDocumentQA, VariedDocumentQA
from tests.studies import small


def one_length():
    return MultiDocumentQA(small.tokenizer())


def varied():
    return VariedDocumentQA(small.tokenizer())


def mixture(**changes):
    settings = dict(stream=small.stream(),
                    tasks=(one_length(), ), length=128, rows=4, text_share=0.5, seed=0)
    return Mixture(**settings | changes)


def test_no_kind_is_silently_left_out():
    assert mixture(rows=2, text_share=0.75).text_rows == 1  # and one row of questions
    for rows in (2, 3, 8):
        for share in (0.01, 0.25, 0.5, 0.99):
            text_rows = mixture(rows=rows, text_share=share).text_rows
            assert 1 <= text_rows <= rows - 1 and abs(text_rows - share * rows) < 1


def test_text_rows_come_first_and_every_token_of_theirs_is_predicted():
    mixed = mixture(rows=2, text_share=0.75, shift=0)
    ids, known = mixed.batch(0)
    assert ids.shape == known.shape == (2, 128)
    assert not torch.isin(ids[0], mixed.tasks[0].first).any() and known[0].all()
    assert torch.isin(ids[1], mixed.tasks[0].first).any() and not known[1].all()


def test_shares_of_all_and_nothing():
    for rows in (1, 3):
        assert mixture(rows=rows, text_share=1.0).text_rows == rows
        assert mixture(rows=rows, text_share=0.0).text_rows == 0
        assert mixture(rows=rows, text_share=0.3, tasks=()).text_rows == rows
        text, known = mixture(rows=rows, text_share=1.0).batch(0)
        assert text.shape == (rows, 128) and known.all()
        questions, known = mixture(rows=rows, text_share=0.0).batch(0)
        assert questions.shape == (rows, 128) and not known.any(dim=0).all()


def test_one_row_cannot_be_mixed():
    with pytest.raises(ValueError, match="rows: got 1, wanted 2 or more"):
        mixture(rows=1, text_share=0.75)


@pytest.mark.parametrize(
    "changes, message", [({"text_share": 1.5}, "text_share: got 1.5"),
                         ({"shift": 128}, "shift: got 128, wanted 0 to 127"),
                         ({"length": 10**6}, "stream: got .* tokens, wanted at least the 1000000")])
def test_a_wrong_mixture_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        mixture(**changes)


def test_text_alone_may_be_shorter_than_the_shift_of_questions():
    """Nobody who gave no questions and no shift is told that the shift is wrong."""
    text, known = mixture(tasks=(), text_share=1.0, length=SHIFT // 2).batch(0)
    assert text.shape == (4, SHIFT // 2) and known.all()


def document_starts(mixed, steps=10):
    """Return the place at which every whole document of the question rows begins, row by row."""
    task = mixed.tasks[0]
    found = []
    for step in range(steps):
        for row in mixed.batch(step)[0][mixed.text_rows:]:
            found.append([end + 1 - task.document_length
                          for end in (row == task.end[-1]).nonzero().flatten().tolist()])
    return found


def test_shifted_documents_begin_anywhere_in_a_group_of_eight():
    """Without the shift, as finetuning read before, all of them begin at multiples of 8."""
    def residues(mixed):
        return {start % 8 for starts in document_starts(mixed) for start in starts}

    assert mixture().shift == SHIFT
    assert residues(mixture(rows=8)) == set(range(8))
    assert residues(mixture(rows=8, shift=0)) == {0}


def test_each_row_is_shifted_by_its_own_0_to_shift_tokens():
    def firsts(**changes):
        return {starts[0] for starts in document_starts(
            mixture(text_share=0.0, rows=32, **changes), steps=1)}

    assert firsts(shift=3) == {0, 1, 2, 3}
    assert 0.8 * SHIFT < max(firsts()) <= SHIFT


def test_a_row_begins_with_text_and_goes_on_with_its_documents():
    """Only the end of what the task drew is lost."""
    class Fixed(MultiDocumentQA):
        def interleaved_batch(self, rows, length, generator):
            return 5000 + torch.arange(length).expand(rows, -1), torch.ones(
                rows, length, dtype=torch.bool)

    mixed = mixture(tasks=(Fixed(small.tokenizer()),), text_share=0.0, rows=8)
    for row, marks in zip(*mixed.batch(0), strict=True):
        before = int((row < 5000).sum())
        assert torch.equal(row[before:], 5000 + torch.arange(128 - before))
        assert torch.equal(marks, torch.arange(128) >= before)
        assert any(torch.equal(row[:before], window)
                   for window in mixed.stream.unfold(0, max(before, 1), 1)) or before == 0


def test_batches_depend_on_step_and_seed_only():
    drawn = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        drawn.append(mixture().batch(5))
    assert all(torch.equal(first, second) for first, second in zip(*drawn, strict=True))
    mixed, fresh = mixture(), mixture()
    mixed.batch(4)
    assert torch.equal(mixed.batch(5)[0], fresh.batch(5)[0])  # whatever was read before
    drawn = {one.batch(step)[0].numpy().tobytes() for one in (mixed, mixture(seed=1))
             for step in range(3)}
    assert len(drawn) == 6


class Constant:
    """A kind of question that is one token all over, so that its rows can be counted."""

    def __init__(self, token):
        self.token = token

    def interleaved_batch(self, rows, length, generator):
        return torch.full((rows, length), self.token), torch.zeros(rows, length, dtype=torch.bool)


def rows_of_kinds(question_rows, steps, kinds=2):
    mixed = mixture(tasks=tuple(Constant(7000 + index) for index in range(kinds)),
                    rows=question_rows, text_share=0.0, shift=0)
    return [tuple(int((mixed.batch(step)[0][:, 0] == 7000 + index).sum()) for index in range(kinds))
            for step in range(steps)]


def test_kinds_of_questions_share_their_rows():
    assert rows_of_kinds(4, 3) == [(2, 2)] * 3
    for rows, larger in ((1, 1), (3, 2)):
        found = rows_of_kinds(rows, 4)
        assert found in ([(larger, rows - larger), (rows - larger, larger)] * 2,
                         [(rows - larger, larger), (larger, rows - larger)] * 2)
    thirds = rows_of_kinds(4, 3, kinds=3)
    assert all(sorted(each) == [1, 1, 2] for each in thirds)
    assert [sum(kind) for kind in zip(*thirds, strict=True)] == [4, 4, 4]


def test_the_identity_changes_with_what_changes_the_batches():
    same = mixture().identity()
    assert same == mixture().identity() == json.loads(json.dumps(same))
    for changes in ({"shift": 5}, {"tasks": ()}, {"tasks": (varied(), )}, {
            "tasks": (one_length(), varied())
    }, {"seed": 1}, {"length": 100}, {"rows": 5}, {"text_share": 0.25},
            {"stream": small.stream()[:-1]}):
        assert mixture(**changes).identity() != same, changes
