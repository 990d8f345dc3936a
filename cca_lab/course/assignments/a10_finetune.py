"""a10, swap, finetune and report; the checkpoint and the report are files beside the notebook."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.assignments.a10_models import (
    GROUP,
    KINDS,
    WINDOW,
    content,
    held_out,
    loss,
    parsed,
    read,
)
from cca_lab.course.compare import describe, many, need_close, need_equal, need_items, need_number
from cca_lab.course.tasks import (
    Answer,
    Assignment,
    CourseTask,
    Draw,
    Mistake,
    Property,
    Share,
    case,
)

# a10.1: the adapter

def pooled(q: Tensor, k: Tensor, v: Tensor, scale: float, group: int = 3,
           window: int = 2) -> Tensor:
    """Return causal attention (H, n, D) over means of groups and over raw tokens."""
    n = q.shape[1]
    cores = n // group
    means = [x[:, : cores * group].unflatten(1, (cores, group)).mean(2) for x in (k, v)]
    keys, values = (torch.cat([mean, x], dim=1) for mean, x in zip(means, (k, v), strict=True))
    row, column = torch.arange(n)[:, None], torch.arange(cores + n)
    seen = ((row + 1 - window) // group).clamp(min=0)  # cores of each row
    mask = (column < seen) | ((column >= cores + group * seen) & (column <= cores + row))
    return (scale * q @ keys.mT).masked_fill(~mask, float("-inf")).softmax(-1) @ values


def by_text(q: Tensor, k: Tensor, v: Tensor, real: Tensor | None, scale: float,
            shared: str = "repeat") -> Tensor:
    """Return what an adapter should, (B, L, H, D); `shared` says how key heads are shared out."""
    copies = q.shape[1] // k.shape[1]
    k, v = ((x.repeat_interleave(copies, 1) if shared == "repeat" else x.repeat(1, copies, 1, 1))
            for x in (k, v))
    out = torch.zeros_like(q)
    for row in range(len(q)):
        at = torch.arange(q.shape[2]) if real is None else real[row].nonzero().flatten()
        if len(at):
            out[row, :, at] = pooled(q[row, :, at], k[row, :, at], v[row, :, at], scale)
    return out.transpose(1, 2)


def attend_on(heads: int, dim: int, counts: list[int]) -> Callable[..., Tensor]:
    """Return the attention for an adapter; `counts` gets how many tokens came each time."""
    def attend(q: Any, k: Any, v: Any, scale: Any) -> Tensor:
        for name, x in (("q", q), ("k", k), ("v", v)):
            if not isinstance(x, Tensor) or x.ndim != 3 or x.shape[0] != heads or x.shape[
                    2] != dim or not x.shape[1]:
                raise Mistake(f"attend got {name} = {describe(x)}, wanted ({heads} heads, tokens "
                              f"of one text, {dim})")
        if not q.shape == k.shape == v.shape:
            raise Mistake(f"attend got {q.shape[1]} queries, {k.shape[1]} keys, {v.shape[1]} "
                          "values, wanted as many")
        if q.shape[1] > 1000:  # far more than any text here: the scores would fill the memory
            raise Mistake(f"attend got {q.shape[1]} tokens, wanted those of one text, at most 1000")
        counts.append(q.shape[1])
        return pooled(q, k, v, need_number(scale, "the scale that attend got"))

    return attend


def real_tokens(draw: Draw, batch: int, length: int) -> Tensor:
    """Return a mask of real tokens (B, L): padding before, behind, around, and no text."""
    starts = [0, length // 2, 0, 1, 0]
    stops = [length, length, length - 2, length - 1, 0]
    if draw.secret:
        starts[1:4] = [draw.randint(1, length - 1), 0, draw.randint(1, length // 2 - 1)]
        stops[2:4] = [draw.randint(1, length - 1), draw.randint(length // 2, length - 1)]
    column = torch.arange(length)
    return torch.stack([(column >= starts[b]) & (column < stops[b]) for b in range(batch)])


def alone(answer: Answer, draw: Draw) -> None:
    """Each text of a batch gets what it gets alone; with head dim 1 no scale can be wrong."""
    for batch, heads, kv, length in ((1, 2, 2, 5), (3, 2, 2, 8), (3, 4, 2, 9), (5, 6, 2, 12)):
        q = draw.normal(batch, heads, length, 1)
        k, v = draw.normal(batch, kv, length, 1), draw.normal(batch, kv, length, 1)
        real = None if batch == 1 else real_tokens(draw, batch, length)
        with case(f"{many(batch, 'text')} of {length} tokens, {many(heads, 'query head')}, "
                  f"{many(kv, 'key head')}"):
            wanted = by_text(q, k, v, real, 1.0)
            counts: list[int] = []
            need_close(answer(q, k, v, real, 1.0, attend_on(heads, 1, counts)), wanted,
                       "the output", causes={
                "groups begin at the padding": by_text(q, k, v, None, 1.0),
                "heads and tokens are not exchanged": wanted.transpose(1, 2),
                "neighbouring query heads read different key heads":
                    by_text(q, k, v, real, 1.0, "tile")})
            texts = [length] if real is None else [count for count in real.sum(1).tolist() if count]
            if sorted(counts) != sorted(texts):
                raise Mistake(f"attend got texts of {sorted(counts)} tokens, wanted "
                              f"{sorted(texts)}, each once: no padding may reach it, and it is not "
                              "called for a row without a text")


def scaled_once(answer: Answer, draw: Draw) -> None:
    """The scale that arrives is used, and 1 / sqrt(D) only if none does."""
    for dim, scaling in ((4, 1.0), (4, None), (9, None), (16, 0.3), (4, 0.0)):
        q, k, v = (draw.normal(2, 2, 7, dim) for _ in range(3))
        with case(f"head dimension {dim}, scaling {scaling}"):
            usual = dim**-0.5
            scale = usual if scaling is None else scaling
            got = answer(q, k, v, None, scaling, attend_on(2, dim, []))
            need_close(got, by_text(q, k, v, None, scale), "the output",
                       causes={"1 / sqrt(D) is used whatever the model asks for, or on top of it":
                                   by_text(q, k, v, None, usual),
                               "1 / sqrt(D) is used twice": by_text(q, k, v, None, scale * usual),
                               "nothing is scaled": by_text(q, k, v, None, 1.0)})


# a10.2: the losses

def wanted_losses(logits: Tensor, ids: Tensor, known: Tensor, text_rows: int) -> dict[str, float]:
    """Return the two means, token by token."""
    sums = {kind: [0.0, 0] for kind in KINDS}
    for row in range(len(ids)):
        entry = sums[KINDS[row >= text_rows]]
        for column in range(1, ids.shape[1]):
            if known[row, column]:
                entry[0] -= logits[row, column
                                   - 1].double().log_softmax(-1)[ids[row, column]].item()
                entry[1] += 1
    return {kind: total / max(1, count) for kind, (total, count) in sums.items()}


def losses_of(draw: Draw, batch: int, text_rows: int, length: int,
              tokens: int) -> tuple[Tensor, Tensor, Tensor, int]:
    """Return logits, ids and marks, more marks in some rows than in others; column 0 is marked."""
    ids = draw.integers(0, tokens, batch, length)
    known = draw.integers(0, 4, batch, length) < torch.arange(1, batch + 1)[:, None] % 4 + 1
    known[:text_rows] = True
    known[:, 1] = True
    known[:, 0] = True
    return draw.normal(batch, length, tokens, scale=3.0), ids, known, text_rows


def need_losses(got: Any, wanted: dict[str, float], tolerance: float,
                causes: dict[str, dict[str, float]]) -> None:
    """Compare both losses."""
    if not isinstance(got, dict) or set(got) != set(KINDS):
        raise Mistake(f"the result is {describe(got)}, wanted a dict with the keys text and "
                      "answers")
    for kind in KINDS:
        need_equal(got[kind], wanted[kind], f"the loss on {kind}", tolerance=tolerance,
                   causes={cause: other[kind] for cause, other in causes.items()})


def mean_of_marked(answer: Answer, draw: Draw) -> None:
    """The mean over the marked tokens of each kind."""
    for batch, text_rows, length, tokens in ((2, 1, 3, 2), (4, 1, 6, 5), (6, 3, 9, 11)):
        logits, ids, known, _ = drawn = losses_of(draw, batch, text_rows, length, tokens)
        # token t is looked up at t, not at t - 1.
        behind = torch.nn.functional.pad(logits[:, 1:], (0, 0, 0, 1))
        each = [wanted_losses(logits[r:r + 1], ids[r:r + 1], known[r:r + 1], int(r < text_rows))
                for r in range(batch)]
        means = {kind: sum(each[r][kind] for r in span) / len(span) for kind, span in
                 zip(KINDS, (range(text_rows), range(text_rows, batch)), strict=True)}
        with case(f"{many(text_rows, 'row')} of text and {batch - text_rows} of questions, "
                  f"{length} tokens each"):
            need_losses(answer(*drawn), wanted_losses(*drawn), 1e-5, {
                "the logits at a token are taken, not those before it":
                    wanted_losses(behind, ids, known, text_rows),
                "every row counts the same, however many marks it has": means,
                "all tokens count, marked or not":
                    wanted_losses(logits, ids, known | True, text_rows)})


def in_float32(answer: Answer, draw: Draw) -> None:
    """Logits in bfloat16, a kind without marks, and no rows of a kind."""
    for batch, text_rows, length, tokens in ((4, 2, 40, 50), (3, 3, 5, 7), (3, 0, 5, 7)):
        logits, ids, known, _ = losses_of(draw, batch, text_rows, length, tokens)
        if text_rows == 2:
            logits = (4 * logits).bfloat16()
        else:
            known[-1, 1:] = False
        with case(f"{logits.dtype}, {many(text_rows, 'row')} of text, {batch - text_rows} of "
                  "questions"):
            need_losses(answer(logits, ids, known, text_rows),
                        wanted_losses(logits, ids, known, text_rows), 1e-5, {})


# a10.3: the schedule

def wanted_schedule(steps: int, last: int, warmup: int) -> list[tuple[int, float]]:
    """Return (group, factor of the learning rate) of each step."""
    sizes = [2**power for power in range(1, 40) if 2**power < last]
    begins = [3 * steps * number // (5 * max(1, len(sizes))) for number in range(len(sizes))]
    stages = [*zip(begins, sizes, strict=True), (3 * steps // 5 if sizes else 0, last)]
    steps_of = []
    for step in range(steps):
        begin, group = max((stage for stage in stages if stage[0] <= step),
                           key=lambda stage: (stage[0], stage[1]))
        steps_of.append((group, min(1.0, (step - begin + 1) / warmup) * (1 - step / steps)))
    return steps_of


def scheduled(answer: Answer, draw: Draw) -> None:
    """The groups and the factors of all steps."""
    more = draw.sizes(8, (1, 120), (1, 70), (1, 9)) if draw.secret else []
    for steps, last, warmup in [(10, 12, 2), (5, 1, 1), (7, 2, 3), (20, 16, 4), (4, 64, 2),
                                (100, 12, 5), *more]:
        with case(f"{steps} steps, last group {last}, warm-up {warmup}"):
            got, wanted = answer(steps, last, warmup), wanted_schedule(steps, last, warmup)
            need_items(got, steps, f"a list of {steps} pairs")
            for step, (pair, right) in enumerate(zip(got, wanted, strict=True)):
                if not isinstance(pair, (list, tuple)) or len(pair) != 2:
                    raise Mistake(f"step {step} is {describe(pair)}, wanted (group, factor)")
                need_equal(pair[0], right[0], f"the group of step {step}")
                need_equal(pair[1], right[1], f"the factor of step {step}", tolerance=1e-6)


# a10.4 and a10.5: the checkpoint, measured here, and the report, compared with it

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


# a10.5: the report

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
    for table_of, names in (("losses", (*ROWS_OF_BASE, *TRAINED)),
                            ("recovered", TRAINED[1:])) if whole else ():
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
        raise Mistake("the text differs: 'text' of the report is not the fingerprint of the corpus "
                      "here, so the rows cannot be compared. Another Python version has another "
                      "text: then a person has to look")
    for kind in KINDS:
        got, wanted = float(_entry(report, "losses", name, kind)), measured(kind)
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
    _need_key(report, "checkpoint", str)
    if report["checkpoint"] not in TRAINED[1:]:
        raise Mistake(f"'checkpoint' is {describe(report['checkpoint'])}, wanted 'seed 0' or 'seed "
                      "1'")
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
    CourseTask("a10.1", "adapter", "What the model hands to its attention", 30, 3, 4, (
        Property("each text of a padded batch gets what it gets alone", 2, alone),
        Property("the scores are scaled once", 1, scaled_once))),
    CourseTask("a10.2", "mean_losses", "The loss on text and on answers", 20, 2, 5, (
        Property("the mean over marked tokens, each predicted one token "
                 "earlier", 1, mean_of_marked),
        Property("half precision and kinds without a mark", 1, in_float32, hidden=True))),
    CourseTask("a10.3", "schedule", "Groups that grow, rates that warm up again", 15, 2, 2, (
        Property("groups and factors of all steps", 1, scheduled),)),
    CourseTask("a10.4", CHECKPOINT, f"A model that reads through cores: groups of {GROUP}, window "
                              f"{WINDOW}", 35, 3, 5, (
        Property("answers come back", 5, partial(recovers, kind="answers")),
        Property("text comes back in part", 3, partial(recovers, kind="text"))), files=True),
    CourseTask("a10.5", REPORT, "A report that can be checked", 25, 2, 5, (
        Property("the rows of the base and of the swap are right", 2, base_rows),
        Property("the row of the checkpoint is what the checkpoint loses", 2, own_row),
        Property("shares follow from the rows, beside a control and a second "
                 "seed", 2, consistent)), files=True),
    CourseTask("a10.6", "discussion", "What the numbers say, and what they do not", 20, 3, 5, (),
               read=4),
), seconds=60.0)
