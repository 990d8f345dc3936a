"""a10, swap, finetune and report: what a model hands to its attention, the losses, and a schedule.

The checkpoint and the report are files beside the notebook: see `a10_files`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.assignments.a10_files import CHECKPOINT, REPORT, base_rows, consistent, own_row, recovers
from cca_lab.course.assignments.a10_models import GROUP, KINDS, WINDOW
from cca_lab.course.compare import describe, need_close, need_equal, need_number
from cca_lab.course.tasks import Answer, Assignment, Draw, Mistake, Property, Task, case

# a10.1: the adapter


def pooled(q: Tensor, k: Tensor, v: Tensor, scale: float, group: int = 3, window: int = 2) -> Tensor:
    """Return causal attention (H, n, D) over means of groups that begin at token 0, and over raw tokens."""
    n = q.shape[1]
    cores = n // group
    means = [x[:, : cores * group].unflatten(1, (cores, group)).mean(2) for x in (k, v)]
    keys, values = (torch.cat([mean, x], dim=1) for mean, x in zip(means, (k, v), strict=True))
    row, column = torch.arange(n)[:, None], torch.arange(cores + n)
    seen = ((row + 1 - window) // group).clamp(min=0)  # cores of each row
    mask = (column < seen) | ((column >= cores + group * seen) & (column <= cores + row))
    return (scale * q @ keys.mT).masked_fill(~mask, float("-inf")).softmax(-1) @ values


def by_text(q: Tensor, k: Tensor, v: Tensor, real: Tensor | None, scale: float, shared: str = "repeat") -> Tensor:
    """Return what an adapter should, (B, L, H, D); `shared` says how the key heads are shared out."""
    copies = q.shape[1] // k.shape[1]
    k, v = ((x.repeat_interleave(copies, 1) if shared == "repeat" else x.repeat(1, copies, 1, 1)) for x in (k, v))
    out = torch.zeros_like(q)
    for row in range(len(q)):
        at = torch.arange(q.shape[2]) if real is None else real[row].nonzero().flatten()
        if len(at):
            out[row, :, at] = pooled(q[row, :, at], k[row, :, at], v[row, :, at], scale)
    return out.transpose(1, 2)


def attend_on(heads: int, dim: int, counts: list[int]) -> Callable[..., Tensor]:
    """Return the attention that an adapter is given; it notes in `counts` how many tokens it gets each time."""
    def attend(q: Any, k: Any, v: Any, scale: Any) -> Tensor:
        for name, x in (("q", q), ("k", k), ("v", v)):
            if not isinstance(x, Tensor) or x.ndim != 3 or x.shape[0] != heads or x.shape[2] != dim or not x.shape[1]:
                raise Mistake(f"attend got {name} = {describe(x)}, wanted ({heads} heads, tokens of one text, {dim})")
        if not q.shape == k.shape == v.shape:
            raise Mistake(f"attend got {q.shape[1]} queries, {k.shape[1]} keys, {v.shape[1]} values, wanted as many")
        if q.shape[1] > 1000:  # far more than any text here: the scores would fill the memory
            raise Mistake(f"attend got {q.shape[1]} tokens, wanted those of one text, at most 1000")
        counts.append(q.shape[1])
        return pooled(q, k, v, need_number(scale, "the scale that attend got"))

    return attend


def real_tokens(draw: Draw, batch: int, length: int) -> Tensor:
    """Return a mask of real tokens (B, L): padding before the text, behind it, on both sides, and no text at all."""
    starts = [0, length // 2, 0, 1, 0]
    stops = [length, length, length - 2, length - 1, 0]
    if draw.secret:
        starts[1:4] = [draw.randint(1, length - 1), 0, draw.randint(1, length // 2 - 1)]
        stops[2:4] = [draw.randint(1, length - 1), draw.randint(length // 2, length - 1)]
    column = torch.arange(length)
    return torch.stack([(column >= starts[b]) & (column < stops[b]) for b in range(batch)])


def alone(answer: Answer, draw: Draw) -> None:
    """Every text of a padded batch gets what it gets alone; with head dimension 1, no scale can be wrong."""
    for batch, heads, kv, length in ((1, 2, 2, 5), (3, 2, 2, 8), (3, 4, 2, 9), (5, 6, 2, 12)):
        q = draw.normal(batch, heads, length, 1)
        k, v = draw.normal(batch, kv, length, 1), draw.normal(batch, kv, length, 1)
        real = None if batch == 1 else real_tokens(draw, batch, length)
        with case(f"{batch} texts of {length} tokens, {heads} query heads, {kv} key heads"):
            wanted, counts = by_text(q, k, v, real, 1.0), []
            need_close(answer(q, k, v, real, 1.0, attend_on(heads, 1, counts)), wanted, "the output", causes={
                "groups begin at the padding": by_text(q, k, v, None, 1.0),
                "heads and tokens are not exchanged": wanted.transpose(1, 2),
                "neighbouring query heads read different key heads": by_text(q, k, v, real, 1.0, "tile")})
            texts = [length] if real is None else [count for count in real.sum(1).tolist() if count]
            if sorted(counts) != sorted(texts):
                raise Mistake(f"attend got texts of {sorted(counts)} tokens, wanted {sorted(texts)}, each once: no "
                              "padding may reach it, and it is not called for a row without a text")


def scaled_once(answer: Answer, draw: Draw) -> None:
    """The scale that arrives is used, and 1 / sqrt(D) only if none does."""
    for dim, scaling in ((4, 1.0), (4, None), (9, None), (16, 0.3), (4, 0.0)):
        q, k, v = (draw.normal(2, 2, 7, dim) for _ in range(3))
        with case(f"head dimension {dim}, scaling {scaling}"):
            usual = dim**-0.5
            scale = usual if scaling is None else scaling
            got = answer(q, k, v, None, scaling, attend_on(2, dim, []))
            need_close(got, by_text(q, k, v, None, scale), "the output",
                       causes={"1 / sqrt(D) is used whatever the model asks for, or on top of it": by_text(
                                   q, k, v, None, usual),
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
                entry[0] -= logits[row, column - 1].double().log_softmax(-1)[ids[row, column]].item()
                entry[1] += 1
    return {kind: total / max(1, count) for kind, (total, count) in sums.items()}


def losses_of(draw: Draw, batch: int, text_rows: int, length: int, tokens: int) -> tuple[Tensor, Tensor, Tensor, int]:
    """Return logits, ids and marks, with more marks in some rows than in others, the first column's among them."""
    ids = draw.integers(0, tokens, batch, length)
    known = draw.integers(0, 4, batch, length) < torch.arange(1, batch + 1)[:, None] % 4 + 1
    known[:text_rows] = True
    known[:, 1] = True
    known[:, 0] = True
    return draw.normal(batch, length, tokens, scale=3.0), ids, known, text_rows


def need_losses(got: Any, wanted: dict[str, float], tolerance: float, causes: dict[str, dict[str, float]]) -> None:
    """Compare both losses."""
    if not isinstance(got, dict) or set(got) != set(KINDS):
        raise Mistake(f"the result is {describe(got)}, wanted a dict with the keys text and answers")
    for kind in KINDS:
        need_equal(got[kind], wanted[kind], f"the loss on {kind}", tolerance=tolerance,
                   causes={cause: other[kind] for cause, other in causes.items()})


def mean_of_marked(answer: Answer, draw: Draw) -> None:
    """The mean over the marked tokens of each kind."""
    for batch, text_rows, length, tokens in ((2, 1, 3, 2), (4, 1, 6, 5), (6, 3, 9, 11)):
        logits, ids, known, _ = drawn = losses_of(draw, batch, text_rows, length, tokens)
        behind = torch.nn.functional.pad(logits[:, 1:], (0, 0, 0, 1))  # token t is looked up at t, not at t - 1
        each = [wanted_losses(logits[r:r + 1], ids[r:r + 1], known[r:r + 1], int(r < text_rows)) for r in range(batch)]
        means = {kind: sum(each[r][kind] for r in span) / len(span) for kind, span in
                 zip(KINDS, (range(text_rows), range(text_rows, batch)), strict=True)}
        with case(f"{text_rows} rows of text and {batch - text_rows} of questions, {length} tokens each"):
            need_losses(answer(*drawn), wanted_losses(*drawn), 1e-5, {
                "the logits at a token are taken, not those before it": wanted_losses(behind, ids, known, text_rows),
                "every row counts the same, however many marks it has": means,
                "all tokens count, marked or not": wanted_losses(logits, ids, known | True, text_rows)})


def in_float32(answer: Answer, draw: Draw) -> None:
    """Logits in bfloat16, a kind without marks, and no rows of a kind."""
    for batch, text_rows, length, tokens in ((4, 2, 40, 50), (3, 3, 5, 7), (3, 0, 5, 7)):
        logits, ids, known, _ = losses_of(draw, batch, text_rows, length, tokens)
        if text_rows == 2:
            logits = (4 * logits).bfloat16()
        else:
            known[-1, 1:] = False
        with case(f"{logits.dtype}, {text_rows} rows of text, {batch - text_rows} of questions"):
            need_losses(answer(logits, ids, known, text_rows), wanted_losses(logits, ids, known, text_rows), 1e-5, {})


# a10.3: the schedule


def wanted_schedule(steps: int, last: int, warmup: int) -> list[tuple[int, float]]:
    """Return (group, factor of the learning rate) of each step."""
    sizes = [2**power for power in range(1, 40) if 2**power < last]
    begins = [3 * steps * number // (5 * max(1, len(sizes))) for number in range(len(sizes))]
    stages = [*zip(begins, sizes, strict=True), (3 * steps // 5 if sizes else 0, last)]
    found = []
    for step in range(steps):
        begin, group = max((stage for stage in stages if stage[0] <= step), key=lambda stage: (stage[0], stage[1]))
        found.append((group, min(1.0, (step - begin + 1) / warmup) * (1 - step / steps)))
    return found


def scheduled(answer: Answer, draw: Draw) -> None:
    """The groups and the factors of all steps."""
    sizes = [(10, 12, 2), (5, 1, 1), (7, 2, 3), (20, 16, 4), (4, 64, 2), (100, 12, 5)]
    if draw.secret:
        sizes += [(draw.randint(1, 120), draw.randint(1, 70), draw.randint(1, 9)) for _ in range(8)]
    for steps, last, warmup in sizes:
        with case(f"{steps} steps, last group {last}, warm-up {warmup}"):
            got, wanted = answer(steps, last, warmup), wanted_schedule(steps, last, warmup)
            if not isinstance(got, (list, tuple)) or len(got) != steps:
                raise Mistake(f"the result is {describe(got)}, wanted a list of {steps} pairs")
            for step, (pair, right) in enumerate(zip(got, wanted, strict=True)):
                if not isinstance(pair, (list, tuple)) or len(pair) != 2:
                    raise Mistake(f"step {step} is {describe(pair)}, wanted (group, factor)")
                need_equal(pair[0], right[0], f"the group of step {step}")
                need_equal(pair[1], right[1], f"the factor of step {step}", tolerance=1e-6)


ASSIGNMENT = Assignment("a10", "finetune", "Swap, finetune and report on GPT-2 or OPT", ("11", "12"), (
    Task("a10.1", "adapter", "What the model hands to its attention", 30, 3, 4, (
        Property("each text of a padded batch gets what it gets alone", 2, alone),
        Property("the scores are scaled once", 1, scaled_once))),
    Task("a10.2", "mean_losses", "The loss on text and on answers", 20, 2, 5, (
        Property("the mean over marked tokens, each predicted one token earlier", 1, mean_of_marked),
        Property("half precision and kinds without a mark", 1, in_float32, hidden=True))),
    Task("a10.3", "schedule", "Groups that grow, rates that warm up again", 15, 2, 2, (
        Property("groups and factors of all steps", 1, scheduled),)),
    Task("a10.4", CHECKPOINT, f"A model that reads through cores: groups of {GROUP}, window {WINDOW}", 35, 3, 5, (
        Property("answers come back", 5, recovers("answers")),
        Property("text comes back in part", 3, recovers("text"))), files=True),
    Task("a10.5", REPORT, "A report that can be checked", 25, 2, 5, (
        Property("the rows of the base and of the swap are right", 2, base_rows),
        Property("the row of the checkpoint is what the checkpoint loses", 2, own_row),
        Property("shares follow from the rows, beside a control and a second seed", 2, consistent)), files=True),
    Task("a10.6", "discussion", "What the numbers say, and what they do not", 20, 3, 5, (), read=4),
), seconds=60.0)
