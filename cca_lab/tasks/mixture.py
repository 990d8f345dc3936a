"""What finetuning reads: windows of real text and question contexts, drawn by step number."""

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cca_lab.tasks.multi_document_qa import MultiDocumentQA


@dataclass(frozen=True)
class Mixture:
    """Text and questions in fixed shares.

    A batch depends on its step, micro-step and process only, so a resumed run
    reads what an uninterrupted one would have read, without any saved state.

    Attributes:
        stream: (n,) token ids of the text.
        task: the questions, or None for text alone.
        length: tokens of a sequence.
        rows: sequences a micro-step and process.
        text_share: share of the rows that are text.
        seed: of every draw.
    """

    stream: Tensor
    task: MultiDocumentQA | None
    length: int
    rows: int
    text_share: float
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ValueError(f"rows: got {self.rows}, wanted 1 or more")
        if not 0 <= self.text_share <= 1:
            raise ValueError(f"text_share: got {self.text_share}, wanted 0 to 1")

    def identity(self) -> dict:
        """Return what two mixtures must share to draw the same batches, as JSON values."""
        return {"length": self.length, "rows": self.rows, "text_share": self.text_share, "seed": self.seed,
                "questions": self.task is not None,
                "text": hashlib.sha256(self.stream.numpy().tobytes()).hexdigest()[:16]}

    @property
    def text_rows(self) -> int:
        """How many rows of a batch are text; the rest are questions."""
        return self.rows if self.task is None else round(self.text_share * self.rows)

    def batch(self, step: int, micro: int = 0, process: int = 0) -> tuple[Tensor, Tensor]:
        """Return input_ids (rows, length), text rows first, and the mask of tokens to predict."""
        state = np.random.SeedSequence([self.seed, step, micro, process]).generate_state(1, np.uint64)
        generator = torch.Generator().manual_seed(int(state[0] >> 1))
        start = torch.randint(len(self.stream) - self.length + 1, (self.text_rows, 1), generator=generator)
        ids = [self.stream[start + torch.arange(self.length)]]
        known = [torch.ones_like(ids[0], dtype=torch.bool)]
        if self.text_rows < self.rows:
            questions = self.task.interleaved_batch(self.rows - self.text_rows, self.length, generator)
            ids.append(questions[0])
            known.append(questions[1])
        return torch.cat(ids), torch.cat(known)  # (rows, length) both
