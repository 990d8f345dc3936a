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


def table(answer: Answer, whole: bool = False) -> tuple[dict[str, Any], Path]:
    """Return the report and its folder; only if whole, all of its keys and rows were looked at."""
    path = Path(answer())
    if not path.exists():
        raise NotImplementedError(path.name)
    report = parsed(content(path.parent, path.name), path.name)
    keys = [("base", str), ("data_seed", int), ("text", str), ("losses", dict)]
    for key, wanted in keys + whole * [("steps", int), ("recovered", dict), ("checkpoint", str)]:
        _need_key(report, key, wanted)
    if not 0 <= report["data_seed"] < 2**31 or (whole and report["steps"] < 1):
        raise Mistake("wanted 'data_seed' from 0 to 2^31 - 1, and 'steps' of 1 or more")
    if report["base"] not in ("gpt2-mini", "opt-mini"):
        raise Mistake(f"'base' is {describe(report['base'])}, wanted 'gpt2-mini' or 'opt-mini'")
    for table_of, names in (("losses", (*ROWS_OF_BASE, *TRAINED)), ("recovered", TRAINED[1:])) if whole else ():
        for name in names:
            for kind in KINDS:
                _entry(report, table_of, name, kind)
    return report, path.parent


def _need_key(report: dict[str, Any], key: str, wanted: type) -> None:
    """Say what is wrong with a key of the report; 100.0 is as good as 100."""
    if key not in report:
        raise Mistake(f"the key {key!r} is missing in the report")
    if wanted is int and isinstance(report[key], float) and report[key].is_integer():
        report[key] = int(report[key])
    if not isinstance(report[key], wanted) or isinstance(report[key], bool):
        raise Mistake(f"{key!r} of the report is {describe(report[key])}, wanted {wanted.__name__}")


def _entry(report: dict[str, Any], table_of: str, name: str, kind: str) -> float:
    """Return a number of the report, or say that it is missing."""
    row = report[table_of].get(name)
    if not isinstance(row, dict) or kind not in row:
        raise Mistake(f"the entry {table_of!r}, {name!r}, {kind!r} is missing in the report")
    return need_number(row[kind], f"{table_of!r}, {name!r}, {kind!r}")


def agrees(report: dict[str, Any], name: str, measured: Callable[[str], float]) -> None:
    """Compare one row of the table with what is measured on the same rows."""
    if report["text"] != held_out()[2]:
        raise Mistake("the text differs: 'text' of the report is not the fingerprint of the corpus here, so the rows "
                      "cannot be compared. Another Python version has another text: then a person has to look")
    for kind in KINDS:
        got, wanted = float(_entry(report, "losses", name, kind)), measured(kind)
        if abs(got - wanted) > NEAR[kind]:
            if name == "full" and abs(got - _of_base(report, True, kind)) <= NEAR[kind]:
                raise Mistake("the row 'full' is the row of the swap: swap_attention changes the model in place. Swap "
                              "a copy.deepcopy of the base, or load the base again")
            raise Mistake(f"the row {name!r} says {got:.3f} nats on {kind}, and here it is {wanted:.3f} on the rows of "
                          f"data_seed {report['data_seed']}: is it another model's row, or another seed's?")


def base_rows(answer: Answer, draw: Draw) -> None:
    """The rows of the base and of the untrained swap."""
    report, _ = table(answer)
    for name, swapped in ROWS_OF_BASE.items():
        agrees(report, name, partial(_of_base, report, swapped))


def _of_base(report: dict[str, Any], swapped: bool, kind: str) -> float:
    return loss(report["base"], kind, report["data_seed"], swapped)


def own_row(answer: Answer, draw: Draw) -> None:
    """The row of the checkpoint that is handed in."""
    report, folder = table(answer)
    _need_key(report, "checkpoint", str)
    if report["checkpoint"] not in TRAINED[1:]:
        raise Mistake(f"'checkpoint' is {describe(report['checkpoint'])}, wanted 'seed 0' or 'seed 1'")
    if not (folder / CHECKPOINT).exists():
        raise Mistake(f"there is no folder {CHECKPOINT} beside the report to compare it with")
    checkpoint = read(folder / CHECKPOINT)
    if checkpoint.base != report["base"]:
        raise Mistake(f"'base' is {report['base']!r}, and the checkpoint is of {checkpoint.base}")
    agrees(report, report["checkpoint"], lambda kind: loss(checkpoint, kind, report["data_seed"]))


def consistent(answer: Answer, draw: Draw) -> None:
    """The shares follow from the rows; the control and the second seed are rows of their own."""
    report, _ = table(answer, whole=True)
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
