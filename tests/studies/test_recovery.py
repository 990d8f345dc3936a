"""The shipped finetuned model answers wherever documents begin; one trained aligned does not.

The score is the defence: the first recipe of this lab passed for a recovery because it was scored
where it was trained.
"""

import copy
from functools import lru_cache

import pytest
import torch

from cca_lab.attention import pool_groups
from cca_lab.files import models_folder
from cca_lab.mechanisms import CCA as CCAAttention
from cca_lab.mechanisms import mechanism_of
from cca_lab.models import attention_of, load_pretrained, swap_attention
from cca_lab.models.evaluate import exact_match
from cca_lab.models.finetune import Finetuner
from cca_lab.models.pretrain import tokenize
from cca_lab.models.recipe import FinetuneConfig
from cca_lab.tasks.corpus import load_corpus
from cca_lab.tasks.mixture import Mixture
from cca_lab.tasks.multi_document_qa import MultiDocumentQA, VariedDocumentQA

LENGTH, CCA = 512, {"group": 8, "window": 64}
WORST, MEAN = 0.6, 0.8  # what a recovery has to reach: at the worst offset, and over all of them


@lru_cache(maxsize=1)
def held_out():
    return tokenize(load_corpus().validation, load_pretrained(models_folder() / "gpt2-mini")[1])


def recovered(model, task) -> bool:
    """Whether answers come back at each of 8 offsets of the text, with 20 questions each."""
    found = exact_match(model, task, length=LENGTH, text=held_out(), offsets=8, questions=32)
    return found.overall.value > MEAN and min(share.value for share in found.by_offset()) > WORST


def aligned_recipe(base, tokenizer):
    """The mutant: half questions, documents as long as a group, and always at the same places."""
    reading = Mixture(tokenize(load_corpus().train, tokenizer), (MultiDocumentQA(tokenizer), ),
                      LENGTH, rows=8, text_share=0.5, shift=0)
    model = swap_attention(copy.deepcopy(base), "cca", **CCA)
    Finetuner(model, reading,
              FinetuneConfig(steps=80, learning_rate=2e-3, grow=0.0, precision="float32")).run()
    return model


@pytest.mark.parametrize("kind", [MultiDocumentQA, VariedDocumentQA])
def test_the_shipped_model_answers_at_every_offset(kind):
    model, tokenizer = load_pretrained(models_folder() / "gpt2-mini-cca")
    assert attention_of(model) == mechanism_of("cca", CCA)
    assert recovered(model, kind(tokenizer))


def test_a_model_trained_on_aligned_documents_is_found_out():
    torch.manual_seed(0)
    base, tokenizer = load_pretrained(models_folder() / "gpt2-mini")
    mutant, task = aligned_recipe(base, tokenizer), MultiDocumentQA(tokenizer)
    aligned = exact_match(mutant, task, length=LENGTH, offsets=1, questions=16)
    assert aligned.overall.value > MEAN  # the score that it was taken for a recovery by
    assert not recovered(mutant, task)
    assert not recovered(swap_attention(base, "cca", **CCA), task)


@pytest.mark.slow
def test_a_judge_from_the_next_document_weighs_the_answer_least(monkeypatch):
    """Groups that begin with a surname are judged by the next first name: the weakest phase.

    Mutant: plain means as cores, for which all phases are alike.
    """
    model, tokenizer = load_pretrained(models_folder() / "gpt2-mini-cca")
    task, weights = MultiDocumentQA(tokenizer), []
    attend = CCAAttention.attention

    def recording(self, query, key, value, **keywords):
        weights.append(pool_groups(query, key, key, self.group, scale=keywords["scale"],
                                   return_phi=True, backend="torch")[2])
        return attend(self, query, key, value, **keywords)

    monkeypatch.setattr(CCAAttention, "attention", recording)
    shares = []
    for offset in range(8):  # of a document's last tokens before the others
        weights.clear()
        documents = task.batch(4, 480, torch.Generator().manual_seed(offset), 0.5).input_ids
        model(torch.cat([documents[:, 8 - offset:8], documents], dim=1))
        # of the surname, a document's sixth token, in groups of documents alone, in layer 1
        shares.append(float(weights[1][:, :, 2:40, (offset + 5) % 8].mean().detach()))
    assert shares.index(min(shares)) == 3 and shares[3] < 0.6 < sorted(shares)[1]
