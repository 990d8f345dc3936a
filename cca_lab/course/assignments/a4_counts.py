"""a4, counts: how much a core should count, a token that it loses, and weights that sum to 1."""

from typing import Any

import torch
from torch import Tensor

from cca_lab.course.compare import describe, need_close, need_tensor
from cca_lab.course.tasks import Answer, Draw, Mistake, Property, Task, case

# a4.7: how much a core should count


def full(q: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Return attention of all rows to all columns."""
    return (scale * q @ keys.T).softmax(dim=-1) @ values


def sized(answer: Answer, draw: Draw, own_judge: bool) -> None:
    """Compare with full attention over the groups' tokens and the raw ones."""
    sizes = [(1, 2, 0, 1.0), (2, 3, 2, 1.0), (3, 4, 3, 1.0)]
    if draw.secret:
        sizes = [(1, 2, 1, 1.0), *sorted((draw.randint(1, 5), draw.randint(2, 6), draw.randint(0, 4), 1.0)
                                          for _ in range(5))]
    for cores, group, raw, sharp in [*sizes, (2, 3, 1, 3000.0)] if own_judge else sizes:
        counts = [group] * (cores - 1) + [draw.randint(1, group - (cores > 1))]   # the last of several is ragged
        q = draw.normal(1 if own_judge else 3, 3)
        scale = draw.choice((0.5, 0.75)) * sharp
        members = [draw.normal(1, 3).expand(n, 3) if not own_judge else draw.normal(n, 3) for n in counts]
        values = [draw.normal(n, 2) for n in counts]
        # Equal keys have equal weights whatever the query; otherwise the only row judges all groups.
        phi = [(scale * keys @ q[0]).softmax(dim=0) for keys in members]
        padded = torch.stack([torch.cat([x, x.new_zeros(group - len(x))]) for x in phi])
        raw_k, raw_v = draw.normal(raw, 3), draw.normal(raw, 2)
        core_k = torch.stack([x @ keys for x, keys in zip(phi, members, strict=True)])
        core_v = torch.stack([x @ some for x, some in zip(phi, values, strict=True)])
        wanted = full(q, torch.cat([*members, raw_k]), torch.cat([*values, raw_v]), scale)
        both_k, both_v = torch.cat([core_k, raw_k]), torch.cat([core_v, raw_v])
        flat, log = torch.zeros(raw).double(), torch.tensor(counts).double().log()
        entropy = torch.special.entr(padded).sum(dim=-1)
        with case(f"{cores} cores of at most {group} tokens, {raw} raw tokens, scale {scale:g}"):
            top = float((scale * q @ both_k.T).abs().max())
            why = (f"scores are as large as {top:.0f}, so exp needs the row's largest score subtracted first (or do "
                   "other zeros than those of a ragged group give 0 times the logarithm of 0?)" if sharp > 1 else
                   "a weight can be 0, and 0 times the logarithm of 0 is not a number")
            got = answer(q, padded, core_k, core_v, raw_k, raw_v, scale)
            need_close(got, wanted, "the output", tolerance=1e-6, why=why, causes={
                cause: (scale * q @ both_k.T + torch.cat([bonus, flat])).softmax(dim=-1) @ both_v
                for cause, bonus in {
                    "a core counts as one token: there is no bonus": 0 * log,
                    "the bonus has the wrong sign": -entropy,
                    "the bonus is multiplied by the scale": scale * entropy,
                    "the bonus counts tokens, whatever their weights": log,
                    "every core counts as a full group": 0 * log + float(torch.tensor(group).double().log()),
                }.items()})


def sized_equal(answer: Answer, draw: Draw) -> None:
    """Groups of equal keys."""
    sized(answer, draw, own_judge=False)


def sized_own(answer: Answer, draw: Draw) -> None:
    """A row whose query judged every group."""
    sized(answer, draw, own_judge=True)


# a4.8: a needle that is lost


def needle(answer: Answer, draw: Draw, through_core: bool) -> None:
    """Verify a counterexample: full attention finds the token, CCA-Attention does not."""
    sizes = [(4, 2, 2, 0), (8, 3, 2, 4), (12, 4, 3, 3)]
    if draw.secret:
        sizes = [(6, 2, 1, 1)]
        for _ in range(4):
            group, window, cores = draw.randint(2, 5), draw.randint(1, 6), draw.randint(1, 4)
            length = window + group * cores + draw.randint(0, group - 1)
            sizes.append((length, group, window, draw.randrange(group * cores)))
    for length, group, window, token in sizes:
        with case(f"length {length}, group {group}, window {window}, token {token}"):
            q, k = pair(answer(length, group, window, token), length)
            scale, cores = q.shape[1] ** -0.5, (length - window) // group
            weight = float((scale * k @ q[-1]).softmax(dim=0)[token])
            if weight < 0.9:
                raise Mistake(f"full attention of the last row gives the token {weight:.3g}, wanted 0.9 or more")
            phi = torch.stack([(scale * k[p * group : (p + 1) * group] @ q[(p + 1) * group - 1]).softmax(dim=0)
                               for p in range(cores)])
            core_k = torch.stack([x @ keys for x, keys in zip(phi, k.split(group)[:cores], strict=True)])
            row = (scale * torch.cat([core_k, k[group * cores :]]) @ q[-1]).softmax(dim=0)
            core, place = divmod(token, group)
            left = float(row[core] * phi[core, place])
            if left > 0.1:
                raise Mistake(f"CCA-Attention still gives the token {left:.3g}: its core has {float(row[core]):.3g}, "
                              f"phi is {float(phi[core, place]):.3g}; wanted 0.1 or less in all. Which query judges?")
            if through_core and row[core] < 0.9:
                raise Mistake(f"the core of the token's group gets {float(row[core]):.3g} of the last row, wanted 0.9 "
                              "or more: what do the other tokens of the group look like to the last row?")


def pair(got: Any, length: int) -> tuple[Tensor, Tensor]:
    """Return queries and keys of an example, in float64."""
    if not isinstance(got, (tuple, list)) or len(got) != 2 or not all(isinstance(x, Tensor) for x in got):
        raise Mistake(f"the result is {describe(got)}, wanted two tensors: queries and keys")
    dim = got[0].shape[-1] if got[0].dim() == 2 else 0
    if not 1 <= dim <= 64:
        raise Mistake(f"the queries are {describe(got[0])}, wanted shape ({length}, D) with D from 1 to 64")
    q, k = (need_tensor(x, (length, dim), what).double() for x, what in zip(got, ("queries", "keys"), strict=True))
    if max(q.abs().max(), k.abs().max()) > 1000:
        raise Mistake("an entry is larger than 1000; much smaller ones are enough")
    return q, k


def needle_lost(answer: Answer, draw: Draw) -> None:
    """The token's weight falls from 0.9 to 0.1."""
    needle(answer, draw, through_core=False)


def needle_in_core(answer: Answer, draw: Draw) -> None:
    """It is lost inside a core that the row reads."""
    needle(answer, draw, through_core=True)


# a4.9: a repaired ratio


def shares(scores: Tensor, valid: Tensor) -> Tensor:
    """Return the right weights, row after row."""
    rows = torch.zeros_like(scores)
    places = valid.nonzero()[:, 0].tolist()
    for row, given in enumerate(scores.tolist()):
        positive = [max(given[place], 0.0) for place in places]
        total = sum(positive)
        for place, share in zip(places, positive, strict=True):
            rows[row, place] = share / total if total > 0 else 1 / len(places)
    return rows


def ratio(answer: Answer, scores: Tensor, valid: Tensor, what: str) -> None:
    """Compare weights with right ones."""
    positive = scores.masked_fill(~valid, 0.0).relu()
    total = positive.sum(dim=-1, keepdim=True)
    equal = (valid / valid.sum()).double().expand_as(positive)
    with case(what):
        why = ("is it 0 / 0? Or was a missing column multiplied by 0 instead of replaced? NaN times 0 is NaN, and so "
               "is infinity times 0")
        # 1e-6, not 1e-9: shares in single precision are right too.
        got = need_close(answer(scores, valid), shares(scores, valid), "the weights", tolerance=1e-6, why=why, causes={
            "a row with small scores counts as a row without positive ones": torch.where(
                total > 1e-6, positive / total, equal),
            "a small number is added to the sum or bounds it from below, so that rows do not sum to 1":
                positive / (total + 1e-6),
            "softmax takes the place of the ratio": positive.masked_fill(~valid, float("-inf")).softmax(dim=-1),
            "a row without positive scores becomes zeros": torch.where(total > 0, positive / total, 0 * positive),
            "the mean runs over missing columns too":
                torch.where(total > 0, positive / total, torch.full_like(positive, 1 / positive.shape[1]))})
        if got[:, ~valid].any():
            raise Mistake("a missing column has a weight that is nearly 0, wanted 0 exactly")


def ratio_positive(answer: Answer, draw: Draw) -> None:
    """Rows with a positive score, of any size; missing columns hold ordinary numbers here."""
    for rows, columns, missing, size in [(1, 2, 0, 1.0), (3, 4, 1, 1.0), (2, 5, 0, 1e-30), (2, 5, 2, 1e-9)]:
        columns += draw.randint(0, 4) if draw.secret else 0
        gone = draw.sample(range(columns), missing + 1)                           # the last one exists and is positive
        valid = torch.ones(columns, dtype=torch.bool)
        valid[gone[:-1]] = False
        scores = draw.normal(rows, columns)
        scores[:, gone[-1]] = 1.0
        ratio(answer, (scores * size).masked_fill(~valid, 5.0), valid,
              f"{rows} rows of {columns} columns, {missing} of them missing, scores of about {size:g}")


def ratio_dead(answer: Answer, draw: Draw) -> None:
    """Rows without a positive score; columns that do not exist, with anything in them."""
    for columns, missing in [(2, 0), (3, 1), (6, 3), (5, 4)]:
        columns += draw.randint(0, 4) if draw.secret else 0
        valid = torch.ones(columns, dtype=torch.bool)
        valid[draw.sample(range(columns), missing)] = False
        scores = draw.normal(3, columns)
        scores[0] = -scores[0].abs() - 0.1
        scores[1] = 0.0
        for junk in (5.0, float("nan"), float("inf")) if missing else (0.0,):
            filled = scores.masked_fill(~valid, junk)
            ratio(answer, filled, valid, f"{columns} columns, {missing} missing ones with {junk:g}; row 0 is negative, "
                  "row 1 is zero")


TASKS = (
    Task("a4.7", "sized_attention", "How much a core should count", 20, 4, 4, (
        Property("groups of equal keys count as all their tokens", 1, sized_equal),
        Property("a row that judged the groups gets full attention", 1, sized_own))),
    Task("a4.8", "lost_needle", "A token that the core loses", 20, 3, 4, (
        Property("full attention finds the token, CCA-Attention loses it", 1, needle_lost),
        Property("it is lost inside a core that is read", 1, needle_in_core))),
    Task("a4.9", "normalised", "A ratio without 0/0", 10, 2, 3, (
        Property("rows with a positive score are shares of the columns that exist", 1, ratio_positive),
        Property("rows without one are means over the columns that exist", 1, ratio_dead))),
    Task("a4.10", "no_judge", "No judge for two rows", 10, 2, 4, (), read=2),
)
