"""A-shape heads of MInference: the first tokens of the text and a local window.

Jiang et al., "MInference 1.0: Accelerating Pre-filling for Long-Context LLMs via Dynamic Sparse
Attention", NeurIPS 2024 (Section 3). Rows and tokens count from 0; row i reads token t if

    t <= i   and   (t < sinks   or   i - t < window)

The window includes the row's own token, and a first token inside the window is read once. Nothing is
chosen: the mask is the same for every text. Positions are the original ones. The mask equals StreamingLLM's
with recent = window - 1 and LM-Infinite's with local = window.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from cca_lab.mechanisms.base import Call, Mechanism
from cca_lab.mechanisms.columns import Columns
from cca_lab.mechanisms.inputs import check_counts, check_positive
from cca_lab.mechanisms.masked import attend_loops
from cca_lab.mechanisms.streaming.sinks import intervals


@dataclass(frozen=True, kw_only=True)
class AShape(Mechanism):
    """The first tokens of the text and a local window.

    Attributes:
        sinks: tokens at the start of the text that every row reads, 0 or more.
        window: nearest tokens that a row reads, its own included, 1 or more.
    """

    sinks: int = 16
    window: int = 80

    name: ClassVar[str] = "a_shape"
    title: ClassVar[str] = "MInference, A-shape"
    paper: ClassVar[str] = ("Jiang et al., MInference 1.0: Accelerating Pre-filling for Long-Context LLMs via Dynamic "
                            "Sparse Attention, NeurIPS 2024, Section 3")
    sizes: ClassVar[tuple[str, ...]] = ("sinks", "window")
    paper_presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default of the public code": {"sinks": 128, "window": 3968},
        "candidate of its search": {"sinks": 100, "window": 800},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(sinks=self.sinks)
        check_positive(window=self.window)

    def row_by_row(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        """Compute A-shape attention row by row: the specification."""
        def seen(b: int, h: int, i: int) -> list[int]:
            return [t for t in range(i + 1) if t < self.sinks or i - t < self.window]

        return attend_loops(q, k, v, seen, call.scale)

    def columns(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> list[Columns]:
        """Return one part: row i reads [0, min(sinks, w)) and [w, i + 1), w = max(0, i + 1 - window)."""
        return [Columns(q, k, v, intervals(torch.arange(q.shape[2], device=q.device), self.sinks, self.window))]

    def exact_when(self, length: int) -> bool:
        """Return True if the window of the last row leaves no gap after the first tokens."""
        return length <= self.sinks + self.window
