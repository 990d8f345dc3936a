"""The two numbers.

Perplexity and exact match, against their definitions and on models with known scores.
"""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from transformers import GPT2Config, PreTrainedModel

from cca_lab.models.evaluate import (
    OFFSETS,
    Matches,
    bootstrap_mean,
    exact_match,
    perplexity,
    share_right,
    window_losses,
    window_starts,
)
from cca_lab.models.pretrain import tokenize
from cca_lab.tasks.multi_document_qa import MultiDocumentQA
from tests.studies import small


class Rule(PreTrainedModel):
    """A language model whose logits come from a function of the ids."""

    def __init__(self, rule):
        super().__init__(GPT2Config(n_positions=4096))
        self.rule, self.table = rule, nn.Embedding(len(small.tokenizer()), 1)

    def get_input_embeddings(self):
        return self.table

    def forward(self, input_ids, use_cache=False, logits_to_keep=0):
        logits = self.rule(input_ids)  # (B, L, V)
        return SimpleNamespace(logits=logits[:, -logits_to_keep:])


def look_up(ids):
    """Predict what followed the latest earlier occurrence of the current token.

    Perfect retrieval.
    """
    logits = torch.zeros(*ids.shape, len(small.tokenizer()))
    for row, line in enumerate(ids.tolist()):
        followed = {}
        for place, token in enumerate(line):
            if token in followed:
                logits[row, place, followed[token]] = 1.0
            if place:
                followed[line[place - 1]] = token
    return logits


def test_uniform_predictions_have_the_vocabulary_as_perplexity():
    stream = torch.randint(50, (400,))
    found = perplexity(Rule(lambda ids: torch.zeros(*ids.shape, 50)), stream, length=40)
    assert found.value == pytest.approx(50.0, rel=1e-6)
    assert found.samples == 10


def test_perplexity_is_exp_of_the_mean_loss():
    model, stream = small.model(), tokenize(small.corpus().validation, small.tokenizer())
    found = perplexity(model, stream, length=64, windows=3, batch=2)
    losses = []
    for start in torch.linspace(0, len(stream) - 64, 3).long().tolist():
        ids = stream[start:start + 64]
        log_p = model(ids[None]).logits[0].log_softmax(-1)
        losses += [-log_p[place - 1, ids[place]].item() for place in range(1, 64)]
    assert found.value == pytest.approx(math.exp(np.mean(losses)), rel=1e-4)
    assert found.low <= found.value <= found.high


def test_the_losses_of_windows_are_those_of_each_alone():
    """The perplexity is exp of their mean.

    Two models' losses of one window stand at the same place.
    """
    model, stream = small.model(), tokenize(small.corpus().validation, small.tokenizer())
    found = window_losses(model, stream, length=64, windows=5, batch=2)
    starts = window_starts(len(stream), 64, 5).tolist()
    wanted = [window_losses(model, stream[start:start + 64], length=64, windows=1)[0]
              for start in starts]
    assert found == pytest.approx(wanted, rel=1e-5) and np.ptp(found) > 1e-3
    assert perplexity(model, stream, length=64, windows=5, batch=2).value == np.exp(found.mean())


@pytest.mark.parametrize("tokens", [40, 400, 2**24 + 3 + 40, 2**26 + 5])
def test_windows_are_spread_evenly_and_end_within_the_stream(tokens):
    starts = window_starts(tokens, 40, min(7, tokens // 40))
    assert starts[0] == 0 and starts[-1] <= tokens - 40 and len(starts) == min(7, tokens // 40)
    gaps = starts.diff()
    assert len(gaps) == 0 or gaps.max() - gaps.min() <= max(1,
                                                            tokens // 2**23)  # float32 has 24 bits


def test_a_model_that_looks_up_answers_everything_at_every_position():
    task = MultiDocumentQA(small.tokenizer())
    found = exact_match(Rule(look_up), task, length=120, questions=5, offsets=1)
    assert found.hits.shape == (5, 1, 5) and found.hits.all()


def test_a_model_that_sees_the_last_documents_only_answers_the_last_position_only():
    task = MultiDocumentQA(small.tokenizer())

    def short_sighted(ids):
        visible = ids.clone()
        visible[:, :-3 * task.document_length] = 0
        return look_up(visible)

    found = exact_match(Rule(short_sighted), task, length=120, questions=5, offsets=1).by_position()
    assert found[1.0].value == 1.0 and found[0.0].value == found[0.5].value == 0.0


def test_questions_are_the_same_for_every_model():
    seen = []
    task = MultiDocumentQA(small.tokenizer())
    for _ in range(2):
        exact_match(Rule(lambda ids: seen.append(ids) or look_up(ids)), task, length=64,
                    questions=3, offsets=1, positions=(0.5, ))
    assert torch.equal(seen[0], seen[1])


def test_a_model_that_answers_on_aligned_documents_only_is_found_out():
    """What the first recipe had learnt: documents that begin on groups."""
    task = MultiDocumentQA(small.tokenizer())
    text = tokenize(small.corpus().validation, small.tokenizer())

    def aligned(ids):
        before = ids.shape[1] - task.question_length
        return look_up(ids) * (before % task.document_length == 0)

    found = exact_match(Rule(aligned), task, length=120, text=text, offsets=8, questions=8)
    assert [estimate.value for estimate in found.by_offset()] == [1.0] + 7 * [0.0]
    assert found.overall.value == 1 / 8
    assert exact_match(Rule(aligned), task, length=113, questions=8,
                       offsets=1).overall.value == 1.0  # the old score


def test_an_interval_stays_open_where_every_question_is_right():
    task = MultiDocumentQA(small.tokenizer())
    found = exact_match(Rule(look_up), task, length=120, questions=20, offsets=1).overall
    assert found.high == 1.0 and 0.9 < found.low < 1.0


@pytest.mark.parametrize("right, asked", [(0, 5), (1, 5), (40, 80), (79, 80), (80, 80)])
def test_a_share_s_interval_is_wilson_s(right, asked):
    """The shares p from which the one seen is 1.96 standard deviations away.

    (share - p)^2 = z^2 p (1 - p) / n.
    """
    hits = np.arange(asked) < right
    found, z = share_right(hits), 1.959964
    assert (found.value, found.samples) == (right / asked, asked)
    ends = np.roots([1 + z * z / asked, -2 * found.value - z * z / asked, found.value ** 2])
    assert (found.low, found.high) == pytest.approx(sorted(ends), abs=1e-6)
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_what_is_written_holds_every_place_and_every_offset():
    hits = np.zeros((2, OFFSETS, 3), dtype=bool)
    hits[1, 5] = True  # the last place, at one offset
    written = Matches(hits, (0.0, 1.0)).as_json()
    assert list(written) == ["0.0", "1.0", "all", "by_offset"] and len(
        written["by_offset"]) == OFFSETS
    assert [offset["value"]
            for offset in written["by_offset"]] == [0.5 * (index == 5) for index in range(OFFSETS)]
    assert {offset["samples"] for offset in written["by_offset"]} == {6}
    assert (written["0.0"]["value"], written["1.0"]["value"],
            written["all"]["value"]) == (0, 1 / 16, 1 / 32)


def test_the_model_keeps_its_mode():
    model = small.model().train()
    perplexity(model, torch.randint(50, (200,)), length=64)
    assert model.training


def test_bootstrap_interval_covers_the_mean_as_often_as_it_says():
    draws = np.random.default_rng(0)
    covered = [(lambda e: e.low <= 0.0 <= e.high)(bootstrap_mean(draws.normal(size=60)))
               for _ in range(100)]
    assert 88 <= sum(covered) <= 100  # 95 expected, sd 2.2; percentile intervals are a little short


def test_a_stream_shorter_than_a_window_is_named():
    with pytest.raises(ValueError, match="stream: got 64 texts of 64 tokens from 10"):
        perplexity(small.model(), torch.zeros(10, dtype=torch.long), length=64)
