"""The small base models, a GPT-2 and an OPT of about a million parameters, and their tokenizer."""

import math
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from cca_lab.tasks.corpus import Corpus
from cca_lab.tasks.multi_document_qa import sample_text

POSITION_SCALE = 0.1
EMBEDDING_STD = 0.1
END_OF_TEXT = "<|endoftext|>"
TASK_DOCUMENTS = 20_000
TASK_REPEATS = 30  # so that each name is as frequent as a common word, and becomes one token


def sinusoids(positions: int, width: int) -> Tensor:
    """Return the sinusoidal position embeddings of the original Transformer, (positions, width)."""
    frequency = torch.exp(-math.log(10_000.0) * torch.arange(0, width, 2) / width)
    angle = torch.arange(positions)[:, None] * frequency  # (positions, width/2)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :width]


def new_model(family: str, *, vocabulary: int, context: int, width: int = 128, layers: int = 4,
              heads: int = 4, end_of_text: int = 0) -> PreTrainedModel:
    """Build an untrained GPT-2 or OPT whose position embeddings start as sinusoids.

    With the usual random initialisation a model this small does not learn induction within millions
    of tokens; if neighbouring positions start with similar embeddings, it does. The GPT-2 uses
    OPT's activation (ReLU) and initialisation, so that the two families learn the same. The
    end-of-text token is bos, eos and pad; `context` is the longest sequence, in tokens.
    """
    ids: Any = dict(bos_token_id=end_of_text, eos_token_id=end_of_text, pad_token_id=end_of_text)
    model: GPT2LMHeadModel | OPTForCausalLM
    if family == "gpt2":
        gpt2 = GPT2Config(vocab_size=vocabulary, n_positions=context, n_embd=width, n_layer=layers,
                          n_head=heads, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                          activation_function="relu", **ids)
        model = GPT2LMHeadModel(gpt2)
        for name, weight in model.named_parameters():
            # transformers starts these smaller, by sqrt(2 * layers)
            if name.endswith("c_proj.weight"):
                nn.init.normal_(weight, std=gpt2.initializer_range)
        tables = model.transformer.wte.weight, model.transformer.wpe.weight
    elif family == "opt":
        opt = OPTConfig(vocab_size=vocabulary, max_position_embeddings=context, hidden_size=width,
                        word_embed_proj_dim=width, ffn_dim=4 * width, num_hidden_layers=layers,
                        num_attention_heads=heads, dropout=0.0, **ids)
        model = OPTForCausalLM(opt)
        tables = model.model.decoder.embed_tokens.weight, model.model.decoder.embed_positions.weight
    else:
        raise ValueError(f"family: got {family!r}, wanted 'gpt2' or 'opt'")
    token_table, position_table = tables
    with torch.no_grad():
        token_table.normal_(std=EMBEDDING_STD)
        position_table.copy_(POSITION_SCALE * sinusoids(*position_table.shape))
    model.config.loss_type = "ForCausalLM"
    return model


def train_tokenizer(corpus: Corpus, vocabulary: int = 2048,
                    seed: int = 0) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer on a corpus's training documents and on task text.

    The vocabulary includes the 256 bytes and the end-of-text token.
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
