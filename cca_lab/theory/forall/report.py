"""All theorems, and what the solver finds of each.

The solver's integers do not overflow; that int64 does not either is not proved here. What the
theorems do not reach: backends and kernels, masks that are no intervals (H2O, vertical and slash,
block-sparse), queries that are re-rotated, DGA with choose="blocks" and LoCoCo with
borders="calls", how tensors are put together, and the specifications' loops row by row, with which
the tests compare the columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from time import process_time

from cca_lab.theory.claim import Outcome
from cca_lab.theory.forall import blocks, caches, rows
from cca_lab.theory.forall.core import Theorem, prove

THEOREMS: tuple[Theorem, ...] = tuple(value for module in (rows, blocks, caches)
                                      for value in vars(module).values()
                                      if isinstance(value, Theorem))


@dataclass(frozen=True)
class Row:
    """A theorem, what the solver found, and in how many seconds."""

    name: str
    finding: Outcome
    seconds: float


def proofs() -> Iterator[Row]:
    """Prove all theorems; ModuleNotFoundError without z3."""
    for theorem in THEOREMS:
        start = process_time()
        finding = prove(theorem.obligations())
        yield Row(theorem.name, finding, process_time() - start)
