"""A corpus, tokenizer and models small enough to train within a second."""

from functools import lru_cache
from unittest import mock

import torch

from cca_lab.models import mini
from cca_lab.models.mini import new_model, train_tokenizer
from cca_lab.models.pretrain import tokenize
from cca_lab.tasks.corpus import Corpus

VOCABULARY = 1200


@lru_cache(maxsize=1)
def corpus() -> Corpus:
    words = "the group pools its keys and the window keeps the last of them".split()
    text = " ".join(words[(index * index) % len(words)] for index in range(3000))
    return Corpus("small", (text,), (text[:4000],))


@lru_cache(maxsize=1)
def tokenizer():
    with mock.patch.object(mini, "TASK_REPEATS", 1):  # in 0.3 seconds, not in 5
        return train_tokenizer(corpus(), VOCABULARY)


@lru_cache(maxsize=1)
def stream() -> torch.Tensor:
    return tokenize(corpus().train, tokenizer())


def model(family: str = "gpt2", seed: int = 0, context: int = 128):
    torch.manual_seed(seed)
    return new_model(family, vocabulary=len(tokenizer()), context=context, width=32, layers=2,
                     heads=2, end_of_text=tokenizer().eos_token_id)
