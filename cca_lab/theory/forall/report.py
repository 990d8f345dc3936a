"""All theorems of the package, and what a page of proofs needs: what is proved, from which function, in what time.

They hold for all sizes that the lab accepts, 1 (or 0) to 2**62, as `ranges` says. The solver's integers do not
overflow; that int64 does not either is not proved here. What the theorems do not reach: the tiles of the blocked
backend (its planner loops over tables), the splits of the decode kernel, masks that are no intervals (H2O, vertical
and slash, block-sparse), queries that are re-rotated, LoCoCo with borders="calls", and the specifications' loops row
by row, with which the tests compare the columns.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from time import perf_counter

from cca_lab.theory.claim import Outcome
from cca_lab.theory.forall import cca, dga, kernels, lococo, papers, production, tables
from cca_lab.theory.forall.caches import cca as cca_cache
from cca_lab.theory.forall.caches import dga as dga_cache
from cca_lab.theory.forall.caches import lococo as lococo_cache
from cca_lab.theory.forall.caches import streaming as streaming_cache
from cca_lab.theory.forall.core import prove
from cca_lab.theory.forall.theorem import Theorem

THEOREMS: tuple[Theorem, ...] = tuple(
    theorem for module in (cca, dga, lococo, production, tables, kernels, cca_cache, dga_cache, lococo_cache,
                                streaming_cache)
    for theorem in module.THEOREMS)


@dataclass(frozen=True)
class Row:
    """One line of a page of proofs.

    Attributes:
        name: of the theorem.
        says: what is proved.
        runs: dotted names of the lab's functions that ran on symbolic integers.
        restated: what stands in it by hand, and why.
        finding: what the solver found; for a printed statement the smallest counterexample.
        seconds: the time that it took, to run the functions and to prove.
    """

    name: str
    says: str
    runs: tuple[str, ...]
    restated: str
    finding: Outcome
    seconds: float


def rows() -> Iterator[Row]:
    """Prove all theorems, and refute the printed statements, one after the other.

    Raises:
        ModuleNotFoundError: without z3, transformers or, for two of the kernels', triton.
    """
    for theorem in THEOREMS:
        yield _timed(theorem.name, theorem.says, theorem.runs, theorem.restated,
                     partial(_proved, theorem))
    for name, says, runs, program in printed():
        yield _timed(name, says, (runs,), "", program)


def printed() -> Iterator[tuple[str, str, str, Callable[[], Outcome]]]:
    """Yield the papers' printed indices, as the ledger has them, and a program that finds their counterexamples."""
    from cca_lab.theory.causality.lococo import printed_segment
    from cca_lab.theory.reachability.indices import printed_cover

    yield ("CCA, Algorithm 1, as printed", "refuted: lines 10 and 11 read each token of the past once",
           "cca_lab.theory.reachability.indices.printed_cover", lambda: papers.read_once(printed_cover))
    yield ("LoCoCo, Algorithms 1 and 2, as printed", "refuted: the segments cut the text",
           "cca_lab.theory.causality.lococo.printed_segment", lambda: papers.segments_cut(printed_segment))


def _proved(theorem: Theorem) -> Outcome:
    return prove(theorem.obligations())


def _timed(name: str, says: str, runs: tuple[str, ...], restated: str, program: Callable[[], Outcome]) -> Row:
    start = perf_counter()
    finding = program()
    return Row(name, says, runs, restated, finding, perf_counter() - start)
