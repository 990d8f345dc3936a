"""a10, swap, finetune and report; the checkpoint and the report are files beside the notebook."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.assignments.a10_models import (
    BASES,
    GROUP,
    KINDS,
    WINDOW,
    content,
    held_out,
    loss,
    parsed,
    read,
)
from cca_lab.course.compare import describe, need_number
from cca_lab.course.exercise import equals, examples, slips
from cca_lab.course.tasks import Answer, Assignment, CourseTask, Draw, Mistake, Property, Share
from cca_lab.course.turns.nb03 import by_rows

Numbers = list[int]


# a10.1: the adapter
class Attend:
    """CCA for one text, by loops, which notes how many tokens came each time."""

    def __init__(self, heads: int, dim: int) -> None:
        self.heads, self.dim, self.counts = heads, dim, Numbers()

    def __call__(self, q: Any, k: Any, v: Any, scale: Any) -> Tensor:
        """Return (H, n, D)."""
        count = q.shape[1] if isinstance(q, Tensor) and q.ndim == 3 else 0
        if not 0 < count <= 100 or any(not isinstance(x, Tensor) or x.shape != (
                self.heads, count, self.dim) for x in (q, k, v)):
            raise Mistake(f"attend got q = {describe(q)}, k = {describe(k)}, v = {describe(v)}, "
                          f"wanted ({self.heads} heads, tokens of one text, {self.dim}) each")
        self.counts.append(count)
        scale = need_number(scale, "the scale that attend got")
        return torch.stack([by_rows(*head, 3, 2, scale) for head in zip(q, k, v, strict=True)])


def adapter(q: Tensor, k: Tensor, v: Tensor, real: Tensor | None, scaling: float | None,
            attend: Attend) -> Tensor:
    """Return the outputs of a batch, (B, L, H, D), text by text."""
    scale = q.shape[-1] ** -0.5 if scaling is None else scaling
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    out = torch.zeros_like(q)
    for row in range(len(q)):
        at = text = torch.ones(q.shape[2], dtype=torch.bool) if real is None else real[row]
        if at.any():
            out[row, :, at] = attend(q[row, :, at], k[row, :, at], v[row, :, at], scale)
            out[row, :, ~text] = 0
    return out.transpose(1, 2)


def with_counts(answer: Answer) -> Answer:
    """Return an adapter that returns its outputs, and how many tokens each text has had."""
    def run(*args: Any) -> tuple[Tensor, Numbers]:
        return answer(*args), sorted(args[-1].counts)

    return run


def batch(draw: Draw, texts: int, tokens: int, query_heads: int, key_heads: int) -> tuple[Any, ...]:
    """Return a batch, with padding before, behind, around, and no text; no scale can be wrong."""
    q, *kv = (draw.normal(texts, heads, tokens, 1) for heads in (query_heads, key_heads, key_heads))
    starts = [0, draw.randint(2, tokens - 1), 0, draw.randint(1, tokens // 2 - 1), 0]
    stops = [tokens, tokens, draw.randint(1, tokens - 2), tokens - 1, 0]
    column = torch.arange(tokens)
    real = torch.stack([(column >= first) & (column < stop)
                        for first, stop in zip(starts, stops, strict=True)])[:texts]
    return q, *kv, None if texts == 1 else real, 1.0, Attend(query_heads, 1)


def scaled(draw: Draw, head_dimension: int, scaling: float | None) -> tuple[Any, ...]:
    """Return texts without padding, and the scale that a model asks for."""
    return (*(draw.normal(2, 2, 7, head_dimension) for _ in "qkv"), None, scaling,
            Attend(2, head_dimension))


PARTS = "the output", "the numbers of tokens of the texts that attend got"


# a10.2 and a10.3: the checkpoint, measured here, and the report, compared with it

CHECKPOINT, REPORT = "checkpoint", "report.json"
# Shares of the way from the untrained swap to the base that earn all points. On gpt2-mini, 300
# steps of the default recipe recover 0.84 to 0.90 of the loss on answers and 0.10 to 0.24 of that
# on text: two seeds on six draws of rows each.
ENOUGH = {"answers": 0.7, "text": 0.05}
ROWS_OF_BASE = {"full": False, "swapped": True}  # of the report: whether the base attends with CCA
TRAINED = ("control", "seed 0", "seed 1")
# Nats, on the same text: decimals and another machine's rounding.
NEAR = {"text": 0.03, "answers": 0.03}
SHARE = 0.05  # of recovered shares: the gap on text is small, and the rows are rounded


def recovers(answer: Answer, draw: Draw, kind: str) -> Share | None:
    """Return the share of points for the way from the untrained swap to the base."""
    path = Path(answer())
    if not path.exists():
        raise NotImplementedError(path.name)
    checkpoint, seed = read(path), draw.getrandbits(31) if draw.secret else 0
    swap, trained = loss(checkpoint.base, kind, seed), loss(checkpoint, kind, seed)
    full = loss(checkpoint.base, kind, seed, swapped=False)
    share = (swap - trained) / (swap - full)
    if share >= ENOUGH[kind]:
        return None
    return Share(max(0.0, share) / ENOUGH[kind],
                 f"the loss on {kind} is {trained:.3f} nats, of the untrained swap {swap:.3f}, of "
                 f"the base {full:.3f}: {share:.0%} of the way is recovered, {ENOUGH[kind]:.0%} "
                 "earn all points")


def table(answer: Answer, whole: bool = False) -> tuple[dict[str, Any], Path]:
    """Return the report and its folder; only if whole, all of its keys and rows were looked at."""
    path = Path(answer())
    if not path.exists():
        raise NotImplementedError(path.name)
    report = parsed(content(path.parent, path.name), path.name)
    keys = {"base": str, "data_seed": int, "text": str}
    for key, wanted in (keys | {"steps": int, "checkpoint": str} if whole else keys).items():
        report[key] = entry(report, key, wanted=wanted)
    if not 0 <= report["data_seed"] < 2**31 or whole and report["steps"] < 1:
        raise Mistake("wanted 'data_seed' from 0 to 2^31 - 1, and 'steps' of 1 or more")
    if report["base"] not in BASES.values():
        raise Mistake(f"'base' is {describe(report['base'])}, wanted one of "
                      f"{', '.join(BASES.values())}")
    for name in (*ROWS_OF_BASE, *TRAINED) if whole else ():
        for kind in KINDS:
            entry(report, "losses", name, kind)
            if name in TRAINED[1:]:
                entry(report, "recovered", name, kind)
    return report, path.parent


def entry(report: dict[str, Any], *keys: str, wanted: type = float) -> Any:
    """Return what stands in the report under some keys; 100.0 is as good as 100."""
    value, name = report, ", ".join(map(repr, keys))
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            raise Mistake(f"{name} is missing in the report")
        value = value[key]
    if wanted is not str:
        number = need_number(value, f"{name} of the report")
        if wanted is float or number.is_integer():
            return wanted(number)
    if not isinstance(value, wanted):
        raise Mistake(f"{name} of the report is {describe(value)}, wanted {wanted.__name__}")
    return value


def agrees(report: dict[str, Any], name: str, measured: Callable[[str], float]) -> None:
    """Compare one row of the table with what is measured on the same rows."""
    if report["text"] != held_out()[2]:
        raise Mistake("the text differs: 'text' of the report is not the fingerprint of the corpus "
                      "here, so the rows cannot be compared. Another Python version has another "
                      "text: then a person has to look")
    for kind in KINDS:
        got, wanted = entry(report, "losses", name, kind), measured(kind)
        if abs(got - wanted) > NEAR[kind]:
            if name == "full" and abs(got - _of_base(report, True, kind)) <= NEAR[kind]:
                raise Mistake("the row 'full' is the row of the swap: swap_attention changes the "
                              "model in place. Swap a copy.deepcopy of the base, or load the base "
                              "again")
            raise Mistake(f"the row {name!r} says {got:.3f} nats on {kind}, and here it is "
                          f"{wanted:.3f} on the rows of data_seed {report['data_seed']}: is it "
                          "another model's row, or another seed's?")


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
    name = entry(report, "checkpoint", wanted=str)
    if name not in TRAINED[1:]:
        raise Mistake(f"'checkpoint' is {describe(name)}, wanted 'seed 0' or 'seed 1'")
    if not (folder / CHECKPOINT).exists():
        raise Mistake(f"there is no folder {CHECKPOINT} beside the report to compare it with")
    checkpoint = read(folder / CHECKPOINT)
    if checkpoint.base != report["base"]:
        raise Mistake(f"'base' is {report['base']!r}, and the checkpoint is of {checkpoint.base}")
    agrees(report, name, lambda kind: loss(checkpoint, kind, report["data_seed"]))


def consistent(answer: Answer, draw: Draw) -> None:
    """The shares follow from the rows; the control and the second seed are rows of their own."""
    report, _ = table(answer, whole=True)
    base_rows(answer, draw)
    losses = report["losses"]
    for name in TRAINED:
        for other in (*ROWS_OF_BASE, *TRAINED):
            if name != other and all(losses[name][kind] == losses[other][kind] for kind in KINDS):
                raise Mistake(f"the rows {name!r} and {other!r} are the same: each is a model of "
                              "its own")
    for name in TRAINED[1:]:
        for kind in KINDS:
            swap, full = losses["swapped"][kind], losses["full"][kind]
            share = (swap - losses[name][kind]) / (swap - full)
            got = report["recovered"][name][kind]
            if not math.isclose(got, share, abs_tol=SHARE):
                ends = ": as a share, not in percent" if math.isclose(got, 100 * share,
                                                                      abs_tol=3.0) else ""
                raise Mistake(f"'recovered', {name!r}, {kind!r} is {got:.3f}, and (swapped - "
                              f"{name}) / (swapped - full) of your own rows is {share:.3f}{ends}")
    if losses["control"]["answers"] > losses["swapped"]["answers"] / 2:
        raise Mistake(f"the control loses {losses['control']['answers']:.2f} nats on answers, "
                      "nearly as much as the untrained swap: was it trained and measured with full "
                      "attention?")


ASSIGNMENT = Assignment("a10", "finetune", "Swap, finetune and report on GPT-2 or OPT",
                        ("13", "14"), (
    CourseTask("a10.1", "adapter", "What the model hands to its attention", 30, 3, (
        equals("each text of a padded batch gets what it gets alone", with_counts(adapter),
               examples(batch, (1, 5, 2, 2), (3, 8, 2, 2), (3, 9, 4, 2), (5, 12, 6, 2)), *PARTS,
               points=4, wrong=slips(adapter, {
            "padding reaches attend too, and groups begin at the padding":
                ("if at.any()", "at = torch.ones_like(text)\n        if at.any()"),
            "padding behind a text reaches attend too":
                ("if at.any()", "at = text.int().cummax(0).values.bool()\n        if at.any()"),
            "the output at padding is not 0": ("torch.zeros_like(q)", "q.clone()",
                                               "            out[row, :, ~text] = 0\n", ""),
            "heads and tokens are not exchanged": (".transpose(1, 2)", ""),
            "neighbouring query heads read different key heads: repeat_interleave keeps them "
            "together": ("repeat_interleave(q.shape[1] // k.shape[1], 1)",
                         "repeat(1, q.shape[1] // k.shape[1], 1, 1)")})),
        equals("the scores are scaled once", with_counts(adapter), examples(
            scaled, (4, 1.0), (4, None), (9, None), (16, 0.3), (4, 0.0)), *PARTS, points=2,
               wrong=slips(adapter, {
            "1 / sqrt(D) is used whatever the model asks for":
                ("if scaling is None else scaling", ""),
            "1 / sqrt(D) is used on top of what the model asks for":
                ("else scaling", "else q.shape[-1] ** -0.5 * scaling"),
            "nothing is scaled where the model asks for nothing: None means 1 / sqrt(D)":
                ("q.shape[-1] ** -0.5", "1.0"),
            "a scale of 0 is taken for None": ("if scaling is None", "if not scaling")}))),
               drive=with_counts),
    CourseTask("a10.2", CHECKPOINT, f"A model that reads through cores: groups of {GROUP}, window "
                              f"{WINDOW}", 35, 3, (
        Property("answers come back", 5, partial(recovers, kind="answers")),
        Property("text comes back in part", 3, partial(recovers, kind="text"))), files=True),
    CourseTask("a10.3", REPORT, "A report that can be checked", 25, 2, (
        Property("the rows of the base and of the swap are right", 2, base_rows),
        Property("the row of the checkpoint is what the checkpoint loses", 2, own_row),
        Property("shares follow from the rows, beside a control and a second "
                 "seed", 2, consistent)), files=True),
    CourseTask("a10.4", "discussion", "What the numbers say, and what they do not", 20, 3, (),
               read=4),
), seconds=60.0)
