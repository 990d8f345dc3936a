"""What finetuning reads: windows of real text and question contexts, drawn by step number."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cca_lab.ranges import check_integers, check_numbers
from cca_lab.recipe import SHIFT
from cca_lab.tasks.multi_document_qa import MultiDocumentQA


def random_windows(text: Tensor, rows: int, length: int, generator: torch.Generator) -> Tensor:
    """Return windows of a text at random places, (rows, length).

    Args:
        text: (n,) token ids, at least `length` of them.
        rows, length: how many windows, of how many tokens.
        generator: the source of all randomness.
    """
    start = torch.randint(len(text) - length + 1, (rows, 1), generator=generator)
    return text[start + torch.arange(length)]


@dataclass(frozen=True)
class Mixture:
    """Text and questions in fixed shares.

    A batch depends on its step only, so a resumed run reads what an uninterrupted one would have
    read, and several processes, or several micro-steps, share the batch of one.

    Attributes:
        stream: (n,) token ids of the text.
        tasks: kinds of questions, which share the question rows evenly; none for text alone.
        length: tokens of a sequence.
        rows: sequences a step.
        text_share: share of the rows that are text.
        seed: of every draw.
        shift: the most tokens of text before the documents of a question row, drawn row by row. With 0,
            documents of one length stand at the same places of every context, and a mechanism that pools
            may learn those places instead of the documents.
    """

    stream: Tensor
    tasks: tuple[MultiDocumentQA, ...]
    length: int
    rows: int
    text_share: float
    seed: int = 0
    shift: int = SHIFT

    def __post_init__(self) -> None:
        check_integers(1, rows=self.rows, length=self.length)
        check_integers(0, seed=self.seed, shift=self.shift)
        check_numbers(0, 1, text_share=self.text_share)
        if not isinstance(self.stream, Tensor) or self.stream.ndim != 1 or len(self.stream) < self.length:
            got = tuple(getattr(self.stream, "shape", ())) or type(self.stream).__name__
            raise ValueError(f"stream: got {got}, wanted a tensor of token ids, (n,), at least the {self.length} of a "
                             "sequence; give more text or a shorter length")
        if self.tasks and self.rows == 1 and 0 < self.text_share < 1:
            raise ValueError(f"rows: got 1, wanted 2 or more to hold text and questions in shares of "
                             f"{self.text_share}; give more rows, or text_share 0 or 1")
        if self.tasks and not 0 <= self.shift < self.length:
            raise ValueError(f"shift: got {self.shift}, wanted 0 to {self.length - 1}, less than the length")

    def identity(self) -> dict[str, Any]:
        """Return what two mixtures must share to draw the same batches, as JSON values."""
        return {"length": self.length, "rows": self.rows, "text_share": self.text_share, "seed": self.seed,
                "shift": self.shift, "questions": [task.name for task in self.tasks],
                "text": hashlib.sha256(self.stream.numpy().tobytes()).hexdigest()[:16]}

    @property
    def text_rows(self) -> int:
        """How many rows of a batch are text; the rest are questions. Neither is none, unless its share is 0."""
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
            # rows left over by the division go to the kinds in turn, from step to step
            rows = (self.rows - self.text_rows + (index + step) % len(self.tasks)) // len(self.tasks)
            if rows:
                questions, answers = self._shifted(*task.interleaved_batch(rows, self.length, generator), generator)
                ids.append(questions)
                known.append(answers)
        return torch.cat(ids), torch.cat(known)  # (rows, length) both

    def _shifted(self, ids: Tensor, known: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Put 0 to `shift` tokens of text before each row, and cut its end."""
        if self.shift == 0:
            return ids, known
        rows, length = ids.shape
        text = random_windows(self.stream, rows, length, generator)
        before = torch.randint(self.shift + 1, (len(ids), 1), generator=generator)
        own = torch.arange(self.length) - before  # (rows, length), negative where text stands
        at = own.clamp(min=0)
        return torch.where(own < 0, text, ids.gather(1, at)), (own >= 0) & known.gather(1, at)
