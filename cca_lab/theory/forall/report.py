"""All theorems, and what a page of proofs needs: what is proved, of which functions, in what time.

The solver's integers do not overflow; that int64 does not either is not proved here. What the
theorems do not reach: backends and kernels, masks that are no intervals (H2O, vertical and slash,
block-sparse), queries that are re-rotated, DGA with choose="blocks" and LoCoCo with
borders="calls", how tensors are put together, and the specifications' loops row by row, with which
the tests compare the columns.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from time import process_time
from typing import Any

from cca_lab.theory.claim import Outcome
from cca_lab.theory.forall import blocks, caches, papers, rows
from cca_lab.theory.forall.core import Theorem, prove

THEOREMS: tuple[Theorem, ...] = tuple(value for module in (rows, blocks, caches)
                                      for value in vars(module).values()
                                      if isinstance(value, Theorem))


@dataclass(frozen=True)
class Row:
    """One line of a page of proofs: a theorem, what the solver found, and in what time."""

    name: str
    says: str
    runs: tuple[str, ...]
    by_hand: str
    finding: Outcome
    seconds: float


def proofs() -> Iterator[Row]:
    """Prove all theorems, and refute the printed statements; ModuleNotFoundError without z3."""
    listed: list[Any] = [(theorem.name, theorem.says, theorem.runs, theorem.by_hand,
                          partial(prove, theorem.obligations())) for theorem in THEOREMS]
    listed += [(name, says, (runs,), "", program) for name, says, runs, program in printed()]
    for name, says, runs, by_hand, program in listed:
        start = process_time()
        finding = program()
        yield Row(name, says, runs, by_hand, finding, process_time() - start)


def printed() -> Iterator[tuple[str, str, str, Callable[[], Outcome]]]:
    """Yield the papers' printed indices, and programs that find their counterexamples."""
    from cca_lab.theory.causality.lococo import printed_segment
    from cca_lab.theory.reachability.indices import printed_cover

    yield ("CCA, Algorithm 1, as printed",
           "refuted: lines 10 and 11 read each token of the past once",
           f"{printed_cover.__module__}.printed_cover", lambda: papers.read_once(printed_cover))
    yield ("LoCoCo, Algorithms 1 and 2, as printed", "refuted: the segments cut the text",
           f"{printed_segment.__module__}.printed_segment",
           lambda: papers.segments_cut(printed_segment))
