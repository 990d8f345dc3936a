"""The lab's tokenizer: byte-level BPE, trained on the corpus and the text of the task together."""

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from cca_lab.tasks.corpus import Corpus
from cca_lab.tasks.multi_document_qa import sample_text

END_OF_TEXT = "<|endoftext|>"
TASK_DOCUMENTS = 20_000
TASK_REPEATS = 30  # so that each name is as frequent as a common word, and becomes one token


def train_tokenizer(corpus: Corpus, vocabulary: int = 2048, seed: int = 0) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer on the training side of a corpus and on task text.

    Args:
        corpus: only its training documents are used.
        vocabulary: number of tokens, including the 256 bytes and the end-of-text token.
        seed: seed of the task text.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=[END_OF_TEXT],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    task = sample_text(TASK_DOCUMENTS, torch.Generator().manual_seed(seed))
    tokenizer.train_from_iterator([*corpus.train, *[task] * TASK_REPEATS], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END_OF_TEXT,
                                   bos_token=END_OF_TEXT, pad_token=END_OF_TEXT)
