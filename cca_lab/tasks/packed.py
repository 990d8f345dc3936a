"""Examples of a task as training rows: prompt and answer, one after another, until a row is full."""

import random
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cca_lab.settings import check_integers
from cca_lab.tasks.examples import answer_ids, prompt_ids
from cca_lab.tasks.prompts import AnyTask

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

HALVINGS = 3  # the shortest examples have an eighth of the longest one's tokens


class PackedExamples:
    """The examples of a task, in the form in which `Mixture` reads questions.

    An example that is filled up to a length gets one of up to four: `longest`, a half, a quarter and an eighth of it,
    as far as the task allows. Those of a file have the lengths that they have.

    Args:
        task: the task.
        tokenizer: a transformers tokenizer.
        longest: tokens of an example with the room for its answer, at most. Rows should be longer by the text that may
            stand before it.

    Raises:
        ValueError: if no example is as short.
    """

    def __init__(self, task: AnyTask, tokenizer: "PreTrainedTokenizerBase", longest: int) -> None:
        check_integers(1, longest=longest)
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

    @property
    def name(self) -> str:
        """The task with its difficulty, which distinguishes the rows of one run from those of another."""
        return str(self.task)

    def interleaved_batch(self, rows: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw rows of examples; the last one is cut at the end of its row.

        Args:
            rows: B, number of rows.
            length: L, tokens of a row.
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
            fitting = [size for size in self.lengths if size <= length - len(ids)] or self.lengths[-1:]
            (example,) = self.task.examples(self.tokenizer, 1, length=draw.choice(fitting), seed=draw.getrandbits(32))
            prompt = prompt_ids(self.tokenizer, example.prompt)
            answer = answer_ids(self.tokenizer, example.prompt, example.continuations[0])
            ids += [*prompt, *answer, *self.separator]
            marks += [False] * len(prompt) + [True] * len(answer) + [False] * len(self.separator)
        return ids[:length], marks[:length]
