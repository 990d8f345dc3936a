"""The files of a10: the checkpoint, measured here, and the report, compared with what is measured."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from cca_lab.course.assignments.a10_models import KINDS, Checkpoint, content, held_out, loss, parsed, read
from cca_lab.course.compare import describe, need_number
from cca_lab.course.tasks import Answer, Draw, Mistake, Share

CHECKPOINT, REPORT = "checkpoint", "report.json"
# Shares of the way from the untrained swap to the base that earn all points. On gpt2-mini, 300 steps of the
# default recipe recover 0.84 to 0.90 of the loss on answers and 0.10 to 0.24 of that on text: two seeds on
# six draws of rows each.
ENOUGH = {"answers": 0.7, "text": 0.05}
ROWS_OF_BASE = {"full": False, "swapped": True}  # of the report: whether the base attends with CCA
TRAINED = ("control", "seed 0", "seed 1")
NEAR = {"text": 0.03, "answers": 0.03}  # nats, on the same text: decimals and another machine's rounding
SHARE = 0.05  # of recovered shares: the gap on text is small, and the rows are rounded
FAR = {"text": 0.4, "answers": 0.3}  # if the report was measured on another Python's library


def recovered(checkpoint: Checkpoint, kind: str, seed: int) -> Share | None:
    """Return the share of the way from the untrained swap to the base, on its way to what is enough."""
    swap, own = loss(checkpoint.base, kind, seed), loss(checkpoint, kind, seed)
    full = loss(checkpoint.base, kind, seed, swapped=False)
    share = (swap - own) / (swap - full)
    if share >= ENOUGH[kind]:
        return None
    return Share(max(0.0, share) / ENOUGH[kind],
                 f"the loss on {kind} is {own:.3f} nats, of the untrained swap {swap:.3f}, of the base {full:.3f}: "
                 f"{share:.0%} of the way is recovered, {ENOUGH[kind]:.0%} earn all points")


def recovers(kind: str) -> Callable[[Answer, Draw], Share | None]:
    """Return the check that a checkpoint recovers enough of one kind."""
    def check(answer: Answer, draw: Draw) -> Share | None:
        path = Path(answer())
        if not path.exists():
            raise NotImplementedError(path.name)
        return recovered(read(path), kind, draw.getrandbits(31) if draw.secret else 0)

    return check


# the report


def table(answer: Answer) -> tuple[dict[str, Any], Path]:
    """Return the report, whole and of the right kinds, and its folder."""
    path = Path(answer())
    if not path.exists():
        raise NotImplementedError(path.name)
    report = parsed(content(path.parent, path.name), path.name)
    for key, wanted in (("base", str), ("steps", int), ("data_seed", int), ("text", str), ("losses", dict),
                      ("recovered", dict), ("checkpoint", str)):
        if not isinstance(report.get(key), wanted) or isinstance(report[key], bool):
            raise Mistake(f"{key!r} of the report is {describe(report.get(key))}, wanted {wanted.__name__}")
    if not 0 <= report["data_seed"] < 2**31 or report["steps"] < 1:
        raise Mistake("wanted 'data_seed' from 0 to 2^31 - 1, and 'steps' of 1 or more")
    for table_of, names in (("losses", (*ROWS_OF_BASE, *TRAINED)), ("recovered", TRAINED[1:])):
        for name in names:
            for kind in KINDS:
                entry = report[table_of].get(name)
                need_number(entry.get(kind) if isinstance(entry, dict) else None, f"{table_of!r}, {name!r}, {kind!r}")
    if report["checkpoint"] not in TRAINED[1:]:
        raise Mistake(f"'checkpoint' is {describe(report['checkpoint'])}, wanted 'seed 0' or 'seed 1'")
    return report, path.parent


def agrees(report: dict[str, Any], name: str, measured: Callable[[str], float]) -> None:
    """Compare one row of the table with what is measured on the same rows."""
    near = NEAR if report["text"] == held_out()[2] else FAR
    for kind in KINDS:
        got, wanted = float(report["losses"][name][kind]), measured(kind)
        if abs(got - wanted) > near[kind]:
            raise Mistake(f"the row {name!r} says {got:.3f} nats on {kind}, and here it is {wanted:.3f} on the rows of "
                          f"data_seed {report['data_seed']}: is it another model's row, or another seed's?")


def base_rows(answer: Answer, draw: Draw) -> None:
    """The rows of the base and of the untrained swap."""
    report, _ = table(answer)
    if report["base"] not in ("gpt2-mini", "opt-mini"):
        raise Mistake(f"'base' is {describe(report['base'])}, wanted 'gpt2-mini' or 'opt-mini'")
    for name, swapped in ROWS_OF_BASE.items():
        agrees(report, name, partial(_of_base, report, swapped))


def _of_base(report: dict[str, Any], swapped: bool, kind: str) -> float:
    return loss(report["base"], kind, report["data_seed"], swapped)


def own_row(answer: Answer, draw: Draw) -> None:
    """The row of the checkpoint that is handed in."""
    report, folder = table(answer)
    if not (folder / CHECKPOINT).exists():
        raise Mistake(f"there is no folder {CHECKPOINT} beside the report to compare it with")
    checkpoint = read(folder / CHECKPOINT)
    if checkpoint.base != report["base"]:
        raise Mistake(f"'base' is {report['base']!r}, and the checkpoint is of {checkpoint.base}")
    agrees(report, report["checkpoint"], lambda kind: loss(checkpoint, kind, report["data_seed"]))


def consistent(answer: Answer, draw: Draw) -> None:
    """The shares follow from the rows; the control and the second seed are rows of their own."""
    report, _ = table(answer)
    base_rows(answer, draw)
    losses = report["losses"]
    for name in TRAINED:
        for other in (*ROWS_OF_BASE, *TRAINED):
            if name != other and all(losses[name][kind] == losses[other][kind] for kind in KINDS):
                raise Mistake(f"the rows {name!r} and {other!r} are the same: each is a model of its own")
    for name in TRAINED[1:]:
        for kind in KINDS:
            swap, full = losses["swapped"][kind], losses["full"][kind]
            share = (swap - losses[name][kind]) / (swap - full)
            got = report["recovered"][name][kind]
            if not math.isclose(got, share, abs_tol=SHARE):
                ends = ": as a share, not in percent" if math.isclose(got, 100 * share, abs_tol=3.0) else ""
                raise Mistake(f"'recovered', {name!r}, {kind!r} is {got:.3f}, and (swapped - {name}) / (swapped - "
                              f"full) of your own rows is {share:.3f}{ends}")
    if losses["control"]["answers"] > losses["swapped"]["answers"] / 2:
        raise Mistake(f"the control loses {losses['control']['answers']:.2f} nats on answers, nearly as much as the "
                      "untrained swap: was it trained and measured with full attention?")
