"""The shipped finetuned model answers wherever documents begin, not only where groups do."""

from cca_lab.files import models_folder
from cca_lab.mechanisms import mechanism_of
from cca_lab.models import attention_of, load_pretrained, swap_attention
from cca_lab.models.evaluate import exact_match
from cca_lab.models.pretrain import tokenize
from cca_lab.tasks.corpus import load_corpus
from cca_lab.tasks.multi_document_qa import VariedDocumentQA

LENGTH, CCA = 512, {"group": 8, "window": 64}
WORST, MEAN = 0.5, 0.8  # what a recovery has to reach: at the worst offset, and over all of them


def recovered(model, task, text) -> bool:
    """Whether answers come back at each of 8 offsets of the text, with 10 questions each."""
    found = exact_match(model, task, length=LENGTH, text=text, offsets=8, questions=16)
    return found.overall.value > MEAN and min(share.value for share in found.by_offset()) > WORST


def test_the_shipped_model_answers_at_every_offset():
    """Mutant: the base, which is swapped and not finetuned."""
    model, tokenizer = load_pretrained(models_folder() / "gpt2-mini-cca")
    base, _ = load_pretrained(models_folder() / "gpt2-mini")
    task, text = VariedDocumentQA(tokenizer), tokenize(load_corpus().validation, tokenizer)
    assert attention_of(model) == mechanism_of("cca", CCA)
    assert recovered(model, task, text)
    assert not recovered(swap_attention(base, "cca", **CCA), task, text)
