"""All theorems, and what the solver finds of each; docs/claims/proved.md says what it does not."""

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
