"""The training data of finetuning: windows of text and question contexts, drawn by the step."""

import hashlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from cca_lab.settings import check_numbers
from cca_lab.tasks.examples import answer_ids, prompt_ids
from cca_lab.tasks.prompts import AnyTask
from cca_lab.tasks.reading import SHIFT

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

HALVINGS = 3  # the shortest examples have an eighth of the longest one's tokens


class Questions(Protocol):
    """A kind of question rows: `MultiDocumentQA`, or the `PackedExamples` of a task."""

    @property
    def name(self) -> str:
        """What distinguishes its rows from those of another kind."""

    def interleaved_batch(self, rows: int, length: int,
                          generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw rows of token ids, (rows, length), and the mask of their answers."""


def random_windows(text: Tensor, rows: int, length: int, generator: torch.Generator) -> Tensor:
    """Return windows of `length` tokens of a text, (n,), at random places: (rows, length)."""
    start = torch.randint(len(text) - length + 1, (rows, 1), generator=generator)
    return text[start + torch.arange(length)]


@dataclass(frozen=True)
class Mixture:
    """Text and questions in fixed shares.

    A batch depends only on its step, so a resumed run reads the same batches as an uninterrupted
    one, and several processes or micro-steps divide the same batch.

    Attributes:
        stream: (n,) token ids of the text.
        tasks: kinds of questions, with equal shares of the question rows; empty for text alone.
        length: tokens per sequence.
        rows: sequences per step.
        text_share: share of the rows that are text, 0 to 1.
        seed: seed of every draw.
        shift: the most tokens of text before the documents of a question row, drawn row by row.
            With 0, documents of one length stand at the same places in every context, and a
            mechanism that pools may learn those places instead of the documents.
    """

    stream: Tensor
    tasks: tuple[Questions, ...]
    length: int
    rows: int
    text_share: float
    seed: int = 0
    shift: int = SHIFT

    def __post_init__(self) -> None:
        check_numbers(0, 1, text_share=self.text_share)
        if len(self.stream) < self.length:
            raise ValueError(f"stream: got {len(self.stream)} tokens, wanted at least the "
                             f"{self.length} of a sequence; give more text or a shorter length")
        if self.tasks and self.rows == 1 and 0 < self.text_share < 1:
            raise ValueError("rows: got 1, wanted 2 or more to hold text and questions in shares "
                             f"of {self.text_share}; give more rows, or text_share 0 or 1")
        if self.tasks and self.shift >= self.length:
            raise ValueError(f"shift: got {self.shift}, wanted 0 to {self.length - 1}, less than "
                             "the length")

    def identity(self) -> dict[str, Any]:
        """Return what two mixtures must share to draw the same batches, as JSON values."""
        return {"length": self.length, "rows": self.rows, "text_share": self.text_share,
                "seed": self.seed, "shift": self.shift,
                "questions": [task.name for task in self.tasks],
                "text": hashlib.sha256(self.stream.numpy().tobytes()).hexdigest()[:16]}

    @property
    def text_rows(self) -> int:
        """Rows of text in a batch; text and questions have one or more unless a share is 0."""
        if not self.tasks or self.text_share in (0, 1):
            return self.rows if not self.tasks or self.text_share == 1 else 0
        return min(max(round(self.text_share * self.rows), 1), self.rows - 1)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return input_ids (rows, length), text rows first, and the mask of tokens to predict."""
        state = np.random.SeedSequence([self.seed, step]).generate_state(1, np.uint64)
        generator = torch.Generator().manual_seed(int(state[0] >> 1))
        ids = [random_windows(self.stream, self.text_rows, self.length, generator)]
        known = [torch.ones_like(ids[0], dtype=torch.bool)]
        for index, task in enumerate(self.tasks):
            # rows that remain after the division go to the kinds in rotation, step by step
            kinds = len(self.tasks)
            rows = (self.rows - self.text_rows + (index + step) % kinds) // kinds
            if rows:
                drawn = task.interleaved_batch(rows, self.length, generator)
                questions, answers = self._shifted(*drawn, generator)
                ids.append(questions)
                known.append(answers)
        return torch.cat(ids), torch.cat(known)  # (rows, length) both

    def _shifted(self, ids: Tensor, known: Tensor,
                 generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Put 0 to `shift` tokens of text before each row, and cut the row at its end."""
        if self.shift == 0:
            return ids, known
        rows, length = ids.shape
        text = random_windows(self.stream, rows, length, generator)
        before = torch.randint(self.shift + 1, (len(ids), 1), generator=generator)
        moved = torch.arange(self.length) - before  # (rows, length), negative where text stands
        at = moved.clamp(min=0)
        return torch.where(moved < 0, text, ids.gather(1, at)), (moved >= 0) & known.gather(1, at)


class PackedExamples:
    """The examples of a task, in the form in which `Mixture` reads questions.

    An example that is filled up to a length gets one of up to four: `longest`, a half, a quarter
    and an eighth of it, as far as the task allows. Those of a file have the lengths that they have.

    Args:
        task: the task.
        tokenizer: a transformers tokenizer.
        longest: tokens of an example with the room for its answer, at most. Rows should be longer
            by the text that may stand before it.

    Raises:
        ValueError: if no example is as short.
    """

    def __init__(self, task: AnyTask, tokenizer: "PreTrainedTokenizerBase", longest: int) -> None:
        self.name = str(task)  # with its difficulty, which tells the rows of two runs apart
        self.task, self.tokenizer, self.lengths = task, tokenizer, [longest]
        task.examples(tokenizer, 1, length=longest, seed=0)
        for halving in range(1, HALVINGS + 1 if task.filled else 1):
            try:
                task.examples(tokenizer, 1, length=max(1, longest >> halving), seed=0)
            except ValueError:  # too short for the task
                break
            self.lengths.append(longest >> halving)
        end = tokenizer.eos_token_id
        self.separator = tokenizer.encode("\n", add_special_tokens=False) if end is None else [end]

    def interleaved_batch(self, rows: int, length: int,
                          generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw rows of examples; the last one is cut at the end of its row.

        Args:
            rows, length: B rows of L tokens.
            generator: random generator of all draws.

        Returns:
            input_ids (B, L) and a mask (B, L), true at the tokens of answers.
        """
        ids, marks = zip(*(self._row(length, generator) for _ in range(rows)), strict=True)
        return torch.tensor(ids), torch.tensor(marks)

    def _row(self, length: int, generator: torch.Generator) -> tuple[list[int], list[bool]]:
        ids: list[int] = []
        marks: list[bool] = []
        seed = int(torch.randint(2**31, (1,), generator=generator))
        while len(ids) < length:
            draw = random.Random(f"{seed} {len(ids)}")
            fitting = [size for size in self.lengths if size <= length - len(ids)]
            chosen, number = draw.choice(fitting or self.lengths[-1:]), draw.getrandbits(32)
            try:
                (example,) = self.task.examples(self.tokenizer, 1, length=chosen, seed=number)
            except ValueError:  # this one has longer names than that of seed 0
                (example,) = self.task.examples(self.tokenizer, 1, length=self.lengths[0],
                                                seed=number)
            prompt = prompt_ids(self.tokenizer, example.prompt)
            answer = answer_ids(self.tokenizer, example.prompt, example.continuation)
            ids += [*prompt, *answer, *self.separator]
            marks += [False] * len(prompt) + [True] * len(answer) + [False] * len(self.separator)
        return ids[:length], marks[:length]
