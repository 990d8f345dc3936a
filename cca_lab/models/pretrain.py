"""Pretraining of the base models by a curriculum: copying, retrieval, text with retrieval.

A tiny model learns to retrieve abruptly, in this order: copying random tokens over a very short
context (induction is learned sooner if fewer tokens compete), then questions over longer and longer
contexts; real text is part of every stage and dominates the last one. A stage ends when the model
has mastered it or its budget of tokens is used up.

Such a model learns each position separately: a short sequence gets random positions within the
context, and in the last stage documents and questions are mixed and begin at random after some
text. Trained only on contexts that end in questions, it never finds what is in the last quarter.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from cca_lab.models.plugin import group_size
from cca_lab.models.training import make_optimizers
from cca_lab.tasks.corpus import Corpus
from cca_lab.tasks.mixture import random_windows
from cca_lab.tasks.multi_document_qa import MultiDocumentQA

# tokens of documents and questions after the text of an "interleaved" sequence, at least
SHORTEST = 64


@dataclass(frozen=True)
class Stage:
    """One stage of the curriculum.

    The task is "copy", "question" (documents, then questions) or "interleaved" (some text, then
    questions among documents).
    """

    task: str
    length: int  # tokens per sequence
    text_share: float  # of a step's sequences, 0 to 1
    tokens: float  # the budget of this stage
    until: float = 2.0  # it ends early at this running accuracy on known tokens; 2 is never


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of a pretraining run."""

    step_tokens: int = 8192
    learning_rate: float = 8e-3
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.02
    warmup_steps: int = 100
    decay_share: float = 0.6  # share of the last stage over which the rate falls to zero
    clip: float = 1.0


def curriculum(context: int, tokens: float, text_only: bool = False) -> list[Stage]:
    """Return the stages for a context and a budget of tokens; the last stage uses all that is left.

    `text_only` is one stage whose loss is that of text alone, to measure what the questions cost.
    """
    if text_only:
        return [Stage("interleaved", context, 1.0, tokens)]
    lengths = [length for length in (64, 128, 256, 512) if length < context]
    return [Stage("copy", 32, 0.25, 0.3 * tokens, 0.8),
            *(Stage("question", length, 0.5, 0.2 * tokens, 0.9) for length in lengths),
            Stage("interleaved", context, 0.75, tokens)]


def copy_batch(rows: int, length: int, vocabulary: int,
               generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw ids (B, L) that repeat with a period of each row, and a mask of what can be predicted.

    With one fixed period a model learns to attend a fixed distance back, which answers no question.
    """
    period = torch.randint(length // 8, length // 2 + 1, (rows, 1), generator=generator)
    column = torch.arange(length).expand(rows, -1)
    tokens = torch.randint(1, vocabulary, (rows, length), generator=generator)
    # the first token of the second repetition cannot be predicted yet
    return tokens.gather(1, column % period), column > period


def token_losses(model: PreTrainedModel, input_ids: Tensor, known: Tensor,
                 places: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return cross entropy and correctness of the marked tokens, (n,) each.

    Only they pass through the output matrix, a third of a small model's computation. `places`
    (B, L) are the positions, by default 0, 1, ...
    """
    hidden = model.base_model(input_ids=input_ids, position_ids=places,
                              use_cache=False).last_hidden_state
    target_mask = known[:, 1:]
    logits = model.get_output_embeddings()(hidden[:, :-1][target_mask])  # (n, V)
    target = input_ids[:, 1:][target_mask]  # (n,)
    return F.cross_entropy(logits, target, reduction="none"), logits.argmax(-1) == target


def tokenize(documents: tuple[str, ...], tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """Join documents into one stream of token ids, an end-of-text token before each."""
    if tokenizer is None or tokenizer.eos_token_id is None:
        raise ValueError(
            f"tokenizer: got {'none' if tokenizer is None else 'one without eos_token'}, wanted "
            "one with an end-of-text token; save the tokenizer beside the model")
    encoded = tokenizer(list(documents), add_special_tokens=False, verbose=False)["input_ids"]
    ids = [token for document in encoded for token in (tokenizer.eos_token_id, *document)]
    return torch.tensor(ids)


class Pretrainer:
    """Trains a model in place by a curriculum; `seed` is that of every random draw."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, corpus: Corpus,
                 recipe: Recipe, seed: int = 0) -> None:
        self.model, self.recipe = model, recipe
        self.generator = torch.Generator().manual_seed(seed)
        self.task = MultiDocumentQA(tokenizer)
        self.vocabulary = len(tokenizer)
        self.text = tokenize(corpus.train, tokenizer)[:-1]  # its last token was never drawn
        self.optimizers = make_optimizers(model, muon=True, learning_rate=recipe.learning_rate,
                                          betas=recipe.betas, weight_decay=recipe.weight_decay,
                                          fused=True)
        self.steps = self.tokens = 0

    def _task_batch(self, stage: Stage, rows: int) -> tuple[Tensor, Tensor]:
        if stage.task == "copy":
            return copy_batch(rows, stage.length, self.vocabulary, self.generator)
        if stage.task == "question":
            return self.task.training_batch(rows, stage.length, self.generator)
        most = max(1, stage.length - SHORTEST)
        before = int(torch.randint(most, (), generator=self.generator))  # tokens of text before it
        task, known = self.task.interleaved_batch(rows, stage.length - before, self.generator)
        text = random_windows(self.text, rows, before, self.generator)
        unknown = torch.zeros_like(text, dtype=torch.bool)
        return torch.cat([text, task], dim=1), torch.cat([unknown, known], dim=1)

    def _places(self, rows: int, length: int) -> Tensor:
        """Return random positions of each sequence within the context, (rows, length)."""
        context = self.model.config.max_position_embeddings
        first = torch.randint(context - length + 1, (rows, 1), generator=self.generator)
        return (first + torch.arange(length)).to(self.model.device)

    def _rate(self, stage: Stage, spent: float) -> float:
        warm = min(1.0, (self.steps + 1) / self.recipe.warmup_steps)
        last = stage.until > 1.0  # the stage without a target accuracy is the last one
        left = (1.0 - spent) / self.recipe.decay_share if last else 1.0
        return self.recipe.learning_rate * warm * min(1.0, left)

    def _step(self, stage: Stage, spent: float) -> dict[str, float]:
        rows = max(2, self.recipe.step_tokens // stage.length)
        # a mean over zero rows would be NaN
        text_rows = min(rows - 1, max(1, round(stage.text_share * rows)))
        text = random_windows(self.text, text_rows, stage.length, self.generator)
        task, known = self._task_batch(stage, rows - text_rows)
        input_ids = torch.cat([text, task]).to(self.model.device)  # (rows, length)
        marked = torch.cat([torch.ones_like(text, dtype=torch.bool), known]).to(self.model.device)
        loss, correct = token_losses(self.model, input_ids, marked, self._places(*input_ids.shape))
        cut = text_rows * (stage.length - 1)
        answers = max(1, len(loss) - cut)  # a batch of few documents may hold no question
        text_loss, task_loss = loss[:cut].mean(), loss[cut:].sum() / answers
        (stage.text_share * text_loss + (1 - stage.text_share) * task_loss).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self._rate(stage, spent)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        self.tokens += input_ids.numel()
        return {"text_loss": text_loss.item(), "task_loss": task_loss.item(),
                "accuracy": correct[cut:].float().sum().item() / answers}

    def run(self, stages: list[Stage], tokens: float) -> Iterator[dict[str, Any]]:
        """Train through the stages until `tokens` are used up; yield one record per step."""
        self.model.train()
        start = time.perf_counter()
        for index, stage in enumerate(stages):
            left, begin, running = len(stages) - 1 - index, self.tokens, 0.0
            budget = tokens - begin if left == 0 else min(stage.tokens, tokens - begin)
            while self.tokens - begin < budget and running < stage.until:
                # groups start small: full size in the last stage, half of it in the one before, ...
                def size(full: int, left: int = left) -> int:
                    return max(1, full >> left)

                with group_size(self.model, size):
                    record = self._step(stage, (self.tokens - begin) / budget)
                running = 0.95 * running + 0.05 * record["accuracy"]
                yield {"step": self.steps, "tokens": self.tokens, "stage": index,
                       "task": stage.task, "length": stage.length, "running_accuracy": running,
                       "seconds": time.perf_counter() - start, **record}
