"""a4: core tokens: judges of groups, ragged groups, grouped queries, what pooling allows.

The variants are not in the package: a mean judge, a vote of all tokens, a learned judge with a
temperature, a ragged last group that is pooled too.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cca_lab.course.assignments.slips import PAID, after, need_close
from cca_lab.course.compare import by_hand, describe, first, many, need_items, need_tensor
from cca_lab.course.tasks import Answer, Assignment, CourseTask, Draw, Mistake, Property, case

# a4.2: judges

JUDGES = ("last", "mean", "all")
# Queries (r, n, D), keys (n, D), judge, scale, group.
Weigh = Callable[[Tensor, Tensor, str, float, int], Tensor]


def vote(queries: Tensor, keys: Tensor, judge: str, scale: float, group: int) -> Tensor:
    """Return the weights (n,) of the n tokens that a group has."""
    mean = queries.mean(dim=0)  # over the query heads of a KV head
    judges = {"last": mean[-1:], "mean": mean.mean(dim=0, keepdim=True), "all": mean}[judge]
    return torch.stack([(scale * keys @ query).softmax(dim=0) for query in judges]).mean(dim=0)


def filled(x: Tensor, group: int) -> Tensor:
    """Return (..., n, D) filled up with rows of zeros to (..., group, D)."""
    return torch.cat([x, x.new_zeros(*x.shape[:-2], group - x.shape[-2], x.shape[-1])], dim=-2)


CAUSES: dict[str, Weigh] = {  # q: queries, k: keys, j: the judge, c: the scale, g: the group size
    "the first token of the group judges": lambda q, k, j, c, g: vote(q[:, :1], k, "last", c, g),
    "the scores of a ragged group are not multiplied by the scale":
        lambda q, k, j, c, g: vote(q, k, j, c if len(k) == g else 1.0, g),
    "the scores are not multiplied by the scale": lambda q, k, j, c, g: vote(q, k, j, 1.0, g),
    "each query head makes its own weights and these are averaged":
        lambda q, k, j, c, g: torch.stack([vote(h[None], k, j, c, g) for h in q]).mean(dim=0),
    "only the first query head of a KV head judges": lambda q, k, j, c, g: vote(q[:1], k, j, c, g),
    "the query heads of a KV head are added, not averaged":
        lambda q, k, j, c, g: vote(len(q) * q, k, j, c, g),
    "missing tokens take part as keys of zeros":
        lambda q, k, j, c, g: vote(q, filled(k, g), j, c, g),
    "missing tokens take part in the softmax as keys of zeros, and their weights are cut off after "
    "it":
        lambda q, k, j, c, g: vote(q, filled(k, g), j, c, g)[: len(k)],
    "missing tokens take part as queries and keys of zeros":
        lambda q, k, j, c, g: vote(filled(q, g), filled(k, g), j, c, g),
    "missing tokens take part as queries and keys of zeros, and their weights are cut off after "
    "the softmax":
        lambda q, k, j, c, g: vote(filled(q, g), filled(k, g), j, c, g)[: len(k)],
    'queries or scores are averaged for "all", which makes it "mean": average the weights, after '
    "the softmax":
        lambda q, k, j, c, g: vote(q, k, "mean" if j == "all" else j, c, g),
    'weights are averaged for "mean", which makes it "all": average the queries':
        lambda q, k, j, c, g: vote(q, k, "all" if j == "mean" else j, c, g),
    "the mean over a ragged group is divided by the group size":
        lambda q, k, j, c, g: vote(q * (len(k) / g), k, j, c, g),
    "missing tokens judge, as queries of zeros":
        lambda q, k, j, c, g: vote(filled(q, g), k, j, c, g)}


def weights_of(q: Tensor, k: Tensor, group: int, judge: str, scale: float,
               weigh: Weigh = vote) -> Tensor:
    """Return phi (Hk, M, g) of all groups, the ragged one too, group after group."""
    heads, length = k.shape[:2]
    phi = k.new_zeros(heads, -(-length // group), group)
    queries = q.unflatten(0, (heads, -1))  # (Hk, r, L, D)
    for head in range(heads):
        for core in range(phi.shape[1]):
            members = slice(core * group, (core + 1) * group)
            weights = weigh(queries[head, :, members], k[head, members], judge, scale, group)
            phi[head, core, : len(weights)] = weights
    return phi


def mistaken(q: Tensor, k: Tensor, group: int, judge: str, scale: float) -> dict[str, Tensor]:
    """Return phi as known mistakes make it."""
    mixed = q.unflatten(0, (-1, len(k))).transpose(0, 1).flatten(0, 1)
    head_0 = torch.where(torch.arange(len(q)) < len(q) // len(k), scale, 1.0)[:, None, None]
    return {cause: weights_of(q, k, group, judge, scale, weigh)
            for cause, weigh in CAUSES.items()} | {
        "query head h belongs to KV head h % Hk: neighbours belong together, h // r":
            weights_of(mixed, k, group, judge, scale),
        "the scale is divided by the number of KV heads":
            weights_of(q, k, group, judge, scale / len(k)),
        "only KV head 0 has the scale": weights_of(head_0 * q, k, group, judge, 1.0)}


def pooled(phi: Tensor, x: Tensor) -> Tensor:
    """Return the cores (Hk, M, D) of x (Hk, L, D)."""
    group = phi.shape[-1]
    return torch.stack([torch.stack([phi[head, core, : len(members)] @ members
                                     for core, members in enumerate(x[head].split(group))])
                        for head in range(len(x))])


def judged(answer: Answer, draw: Draw, sizes: list[tuple[int, int, int, int]]) -> None:
    """Compare weights and cores for all judges; sizes: query heads, KV heads, length, group."""
    for heads, kv_heads, length, group in sizes:
        q, k = draw.normal(heads, length, 3, scale=1.5), draw.normal(kv_heads, length, 3)
        v = draw.normal(kv_heads, length, 2)
        scale = draw.choice((0.5, 0.75, 1.5))
        for judge in JUDGES:
            with case(f"{many(heads, 'query head')}, {many(kv_heads, 'KV head')}, length {length}, "
                      f'group {group}, judge "{judge}"'):
                got = answer(q, k, v, group, judge, scale)
                need_items(got, 3, "three tensors: core keys, core values, phi")
                phi = weights_of(q, k, group, judge, scale)
                own = need_close(got[2], phi, "phi",
                                 causes=partial(mistaken, q, k, group, judge, scale))
                phi = own.double() if PAID.get() else phi
                for core, x, what in ((got[0], k, "core keys"), (got[1], v, "core values")):
                    need_close(core, pooled(phi, x), what, causes={
                        "the plain mean is taken": pooled(torch.full_like(phi, 1 / group), x)})


def whole_groups(answer: Answer, draw: Draw) -> None:
    """Lengths that the group divides, as many query heads as KV heads."""
    sizes = [(1, 1, 2, 2), (1, 1, 3, 1), (1, 1, 6, 3), (2, 2, 8, 4)]
    if draw.secret:
        drawn = draw.sizes(5, (1, 3), (1, 5), (1, 5))
        sizes = sorted((heads, heads, count * group, group) for heads, count, group in drawn)
    judged(answer, draw, [(1, 1, 4, 2), *sizes] if draw.secret else sizes)


def ragged(answer: Answer, draw: Draw) -> None:
    """Lengths that leave a rest, and a text shorter than one group."""
    sizes = [(1, 1, 3, 2), (1, 1, 2, 5), (2, 2, 8, 3), (1, 1, 7, 4)]
    if draw.secret:
        drawn = draw.sizes(5, (0, 4), (3, 6))
        sizes = sorted((1, 1, count * group + draw.randint(2, group - 1), group)
                       for count, group in drawn)
    judged(answer, draw, sizes)


def grouped(answer: Answer, draw: Draw) -> None:
    """More query heads than KV heads."""
    sizes = [(2, 1, 2, 2), (4, 2, 6, 3)]
    if draw.secret:
        kv_heads, each = draw.randint(2, 3), draw.randint(2, 3)
        sizes = [(2, 1, 4, 2), (kv_heads * each, kv_heads, 12, 4)]
    judged(answer, draw, sizes)


# a4.3: a learned judge

def learned_weights(k: Tensor, judge: Tensor, temperature: Tensor, group: int,
                    share: bool = True) -> Tensor:
    """Return phi (H, M, g), limits included; without `share` the first of equal scores has all."""
    scores = (k @ judge[:, :, None])[..., 0].unflatten(1, (-1, group))  # (H, M, g)
    phi = []
    for rows, tau in zip(scores, temperature.tolist(), strict=True):
        behind = rows - rows.amax(dim=-1, keepdim=True)  # 0 for the best: no overflow below
        best = (behind == 0).double()
        best = best if share else best * (best.cumsum(dim=-1) == 1)
        phi.append(best / best.sum(dim=-1, keepdim=True) if tau == 0
                   else (behind / tau).softmax(dim=-1))
    return torch.stack(phi)


def learned(answer: Answer, k: Tensor, v: Tensor, judge: Tensor, temperature: Tensor,
            group: int) -> None:
    """Compare the cores of learned judges with right ones."""
    phi = learned_weights(k, judge, temperature, group)
    first_vector, first_temperature = judge[:1].expand_as(judge), temperature[:1].expand(len(k))
    others = {"every head uses the temperature of the first":
                  learned_weights(k, judge, first_temperature, group),
              "every head uses the vector of the first":
                  learned_weights(k, first_vector, temperature, group)}
    if temperature.gt(0).all() and temperature.isfinite().all():
        others["scores are multiplied by the temperature"] = learned_weights(k, judge,
                                                                             1 / temperature, group)
        others["the temperature is left out"] = learned_weights(k, judge,
                                                                torch.ones_like(temperature), group)
    if temperature.eq(0).any():
        others["only one of equal scores has all the weight at temperature 0"] = learned_weights(
            k, judge, temperature, group, share=False)
    told = ", ".join(f"{tau:.3g}" for tau in temperature.tolist())
    with case(f"{many(len(k), 'head')}, length {k.shape[1]}, group {group}, temperatures {told}"):
        got = answer(k, v, judge, temperature, group)
        need_items(got, 2, "two tensors: core keys and core values")
        for core, x, what in ((got[0], k, "core keys"), (got[1], v, "core values")):
            need_close(core, pooled(phi, x), what,
                       causes={cause: pooled(other, x) for cause, other in others.items()},
                       why="does a temperature of 0 divide, or is infinity multiplied by 0?")


def learned_sizes(draw: Draw) -> Iterator[tuple[int, int, int]]:
    """Yield (heads, groups, group)."""
    yield from ([(1, 1, 2), (2, 2, 3), (3, 2, 4)] if not draw.secret else
                [(1, 1, 2), (2, draw.randint(1, 4), draw.randint(2, 5)),
                 (3, draw.randint(2, 4), draw.randint(2, 6))])


def learned_right(answer: Answer, draw: Draw) -> None:
    """Temperatures between 0 and infinity."""
    for heads, count, group in learned_sizes(draw):
        temperature = torch.tensor([draw.uniform(0.2, 3) for _ in range(heads)],
                                   dtype=torch.float64)
        k, v = draw.normal(heads, count * group, 3), draw.normal(heads, count * group, 2)
        learned(answer, k, v, draw.normal(heads, 3), temperature, group)


def learned_limits(answer: Answer, draw: Draw) -> None:
    """Temperatures 0 and infinity and near them; integer scores, so that ties are exact."""
    ends = ((0.0, float("inf"), 1.0), (float("inf"), 0.5, 0.0), (1e-300, 0.0, 1e300))
    for heads, count, group in learned_sizes(draw):
        for temperature in (torch.tensor(some[:heads], dtype=torch.float64) for some in ends):
            k = draw.integers(-1, 2, heads, count * group, 3).double()
            v = draw.normal(heads, count * group, 2)
            learned(answer, k, v, draw.integers(-1, 2, heads, 3).double(), temperature, group)
    for above in (0.0, 2.0**-40):  # a tie, and nearly one
        k = torch.tensor([[[1.0], [3.0], [3.0 + above], [2.0]]], dtype=torch.float64)
        learned(answer, k, draw.normal(1, 4, 2), torch.ones(1, 1).double(), torch.zeros(1).double(),
                4)


# a4.4: pool, then project

def projected(answer: Answer, draw: Draw, unit: bool) -> None:
    """Compare with the projection of every token, and count the projected rows."""
    sizes = [(1, 2), (2, 3), (3, 4)] if not draw.secret else [(1, 2), (draw.randint(2, 5),
                                                                       draw.randint(2, 6)), (6, 5)]
    for cores, group in sizes:
        x, weight = draw.normal(cores * group, 4), draw.normal(4, 3)
        bias = draw.normal(3, scale=2.0)
        phi = draw.normal(cores, group).softmax(dim=-1)
        if not unit:
            phi = phi * torch.tensor([[draw.uniform(0.2, 1.8)] for _ in range(cores)],
                                     dtype=torch.float64)
            if cores > 1:  # one sum is 0 and one is negative
                phi[-1] = 0.0
                phi[-1, :2] = torch.tensor([0.5, -0.5])
            if cores > 2:
                phi[0] *= -1
        rows: list[int] = []

        def project(some: Any, weight: Tensor = weight, bias: Tensor = bias,
                    rows: list[int] = rows) -> Tensor:
            if not isinstance(some,
                              Tensor) or some.dim() != 2 or some.shape[1] != 4 or len(some) > 1000:
                raise Mistake(f"project was called with {describe(some)}, wanted a tensor of shape "
                              "(rows, 4)")
            rows.append(len(some))
            return some.double() @ weight + bias

        sums = phi.sum(dim=-1, keepdim=True)
        plain = torch.einsum("mg,mgc->mc", phi, x.unflatten(0, (cores, group))) @ weight
        with case(f"{many(cores, 'group')} of {group}, weights that sum to "
                  f"{'1' if unit else 'other numbers than 1'}"):
            why = "are the weights divided by their sum? It can be 0"
            need_close(answer(x, phi, project), plain + sums * bias, "the projected cores", why=why,
                       causes={
                "the bias is added once, whatever the weights sum to": plain + bias,
                "the bias is added once for each token of the group": plain + group * bias,
                "the bias is left out": plain,
                "the weights are divided by their sum": plain / sums + bias})
            if sum(rows) > cores + 1:
                raise Mistake(f"{sum(rows)} rows were projected, {cores + 1} are enough: pool "
                              "before you project")


# a4.5: gradients

PARTS = ("d_judge", "d_keys", "d_values")


def wrong_gradients(inputs: tuple[Tensor, ...],
                    scale: float) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
    """Return what plausible mistakes give, for all three gradients."""
    judge, keys, values, d_key, d_value = inputs
    phi = (scale * keys @ judge).softmax(dim=0)
    d_phi = keys @ d_key + values @ d_value
    through = phi[:, None] * d_key
    d_values = phi[:, None] * d_value

    def backward(d_score: Tensor, factor: float) -> tuple[Tensor, Tensor, Tensor]:
        return factor * d_score @ keys, through + factor * d_score[:, None] * judge, d_values

    right = phi * (d_phi - phi @ d_phi)
    return {"the scale is forgotten": backward(right, 1.0),
            "the normalisation of the softmax is forgotten (the mean of d_phi is not subtracted)":
                backward(phi * d_phi, scale),
            "phi is taken as constant (keys then have the path through the core key only)":
                (0 * judge, through, d_values),
            "only the core value passes its gradient through phi":
                backward(phi * (values @ d_value - phi @ (values @ d_value)), scale),
            "only the core key passes its gradient through phi":
                backward(phi * (keys @ d_key - phi @ (keys @ d_key)), scale),
            "keys get a gradient through the scores only":
                (judge, scale * right[:, None] * judge, d_values)}


def gradients(answer: Answer, draw: Draw, which: str) -> None:
    """Compare one of the three gradients with automatic differentiation."""
    sizes: list[tuple[int, ...]] = [(2, 1, 1), (1, 2, 2), (3, 2, 1), (5, 4, 3)]
    if draw.secret:
        sizes = [(2, 1, 1), *draw.sizes(6, (1, 7), (1, 5), (1, 5))]
    for group, dim, out in sizes:
        inputs = tuple(draw.normal(*shape)
                       for shape in ((dim,), (group, dim), (group, out), (dim,), (out,)))
        scale = draw.choice((0.5, 2.0))
        judge, keys, values = (x.clone().requires_grad_() for x in inputs[:3])
        phi = (scale * keys @ judge).softmax(dim=0)
        loss = inputs[3] @ (phi @ keys) + inputs[4] @ (phi @ values)
        wanted = dict(zip(PARTS, torch.autograd.grad(loss, (judge, keys, values)), strict=True))
        with case(f"group {group}, head dim {dim}, scale {scale}"):
            got = answer(*inputs, scale)
            need_items(got, 3, f"three tensors: {', '.join(PARTS)}")
            index = PARTS.index(which)
            need_close(got[index], wanted[which], which, causes={
                cause: other[index] for cause, other in wrong_gradients(inputs, scale).items()})


# a4.6: what an edit moves

def outputs(tokens: dict[str, Tensor], vector: Tensor, group: int, window: int,
            judge: str) -> Tensor:
    """Return CCA-Attention (N, L, E) of N texts by rows; `vector` is the learned judge."""
    q, k, v = tokens["query"], tokens["key"], tokens["value"]
    core_k, core_v, out = k[:, :0], v[:, :0], []
    for start in range(0, q.shape[1] // group * group, group):
        members = slice(start, start + group)
        judges = {"last": q[:, members][:, -1:], "mean": q[:, members].mean(1, keepdim=True),
                  "all": q[:, members], "learned": vector.expand(len(q), 1, -1)}[judge]
        phi = (judges @ k[:, members].mT).softmax(dim=-1).mean(dim=1, keepdim=True)
        core_k, core_v = torch.cat([core_k, phi @ k[:, members]],
                                   1), torch.cat([core_v, phi @ v[:, members]], 1)
    for row in range(q.shape[1]):
        cores = max(0, (row + 1 - window) // group)
        keys, values = (torch.cat([core[:, :cores], x[:, group * cores : row + 1]], dim=1)
                        for core, x in ((core_k, k), (core_v, v)))
        out.append((q[:, row, None] @ keys.mT).softmax(dim=-1) @ values)
    return torch.cat(out, dim=1)


def moves(answer: Answer, draw: Draw, kinds: tuple[str, ...]) -> None:
    """Compare the prediction with edits: every token in turn, every row measured."""
    sizes: list[tuple[int, ...]] = [(1, 1, 1), (2, 1, 1), (5, 2, 1), (7, 3, 1), (8, 2, 3)]
    if draw.secret:
        sizes = [(1, 1, 1), (4, 1, 2), *draw.sizes(4, (5, 12), (2, 4), (1, 4))]
    for length, group, window in sizes:
        tokens = {changed: draw.normal(length, 3).expand(length + 1, -1, -1)
                  for changed in ("query", "key", "value")}
        vector, edits = draw.normal(3), torch.zeros(length + 1, length, 3, dtype=torch.float64)
        each = torch.arange(length)
        edits[each, each] = draw.normal(length, 3)  # text t edits token t, the last none
        for judge in ("last", "mean", "all", "learned"):
            for changed in kinds:
                out = outputs({**tokens, changed: tokens[changed] + edits}, vector, group, window,
                              judge)
                measured = (out[:-1] - out[-1]).abs().amax(dim=-1).T > 1e-12  # (rows, tokens)
                with case(f'length {length}, group {group}, window {window}, judge "{judge}"'):
                    got = need_tensor(answer(length, group, window, judge, changed),
                                      (length, length), "the table", "bool")
                    if torch.equal(got, measured):
                        continue
                    row, token = first(got != measured)
                    raise Mistake(f"an edit of the {changed} of token {token} " + (
                        f"moves row {row}, and you say that it does not: through which core could "
                        "it?" if measured[row, token] else
                        f"does not move row {row}, and you say that it does: does the row read "
                        "more than one column, does that query judge, and can a group of one be "
                        "weighted differently?"))


# a4.7: how much a core should count

def full(q: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Return attention of all rows to all columns."""
    return (scale * q @ keys.T).softmax(dim=-1) @ values


def sized(answer: Answer, draw: Draw, row_judges: bool) -> None:
    """Compare with full attention over the groups' tokens and the raw ones."""
    sizes = [(1, 2, 0, 1.0), (2, 3, 2, 1.0), (3, 4, 3, 1.0)]
    if draw.secret:
        sizes = [(1, 2, 1, 1.0), *sorted((draw.randint(1, 5), draw.randint(2, 6),
                                          draw.randint(0, 4), 1.0) for _ in range(5))]
    for cores, group, raw, sharp in [*sizes, (2, 3, 1, 3000.0)] if row_judges else sizes:
        # The last of several is ragged.
        counts = [group] * (cores - 1) + [draw.randint(1, group - (cores > 1))]
        q = draw.normal(1 if row_judges else 3, 3)
        scale = draw.choice((0.5, 0.75)) * sharp
        members = [draw.normal(1, 3).expand(n, 3) if not row_judges else draw.normal(n, 3)
                   for n in counts]
        values = [draw.normal(n, 2) for n in counts]
        # Equal keys have equal weights whatever the query; otherwise the only row judges all
        # groups.
        phi = [(scale * keys @ q[0]).softmax(dim=0) for keys in members]
        padded = torch.stack([torch.cat([x, x.new_zeros(group - len(x))]) for x in phi])
        raw_k, raw_v = draw.normal(raw, 3), draw.normal(raw, 2)
        core_k = torch.stack([x @ keys for x, keys in zip(phi, members, strict=True)])
        core_v = torch.stack([x @ some for x, some in zip(phi, values, strict=True)])
        wanted = full(q, torch.cat([*members, raw_k]), torch.cat([*values, raw_v]), scale)
        both_k, both_v = torch.cat([core_k, raw_k]), torch.cat([core_v, raw_v])
        flat, log = torch.zeros(raw).double(), torch.tensor(counts).double().log()
        entropy = torch.special.entr(padded).sum(dim=-1)
        with case(f"{many(cores, 'core')} of at most {group} tokens, {many(raw, 'raw token')}, "
                  f"scale {scale:g}"):
            top = float((scale * q @ both_k.T).abs().max())
            why = (f"scores are as large as {top:.0f}, so exp needs the row's largest score "
                   "subtracted first (or do other zeros than those of a ragged group give 0 times "
                   "the logarithm of 0?)" if sharp > 1 else
                   "a weight can be 0, and 0 times the logarithm of 0 is not a number")
            got = answer(q, padded, core_k, core_v, raw_k, raw_v, scale)
            need_close(got, wanted, "the output", tolerance=1e-6, why=why, causes={
                cause: (scale * q @ both_k.T + torch.cat([bonus, flat])).softmax(dim=-1) @ both_v
                for cause, bonus in {
                    "a core counts as one token: there is no bonus": 0 * log,
                    "the bonus has the wrong sign": -entropy,
                    "the bonus is multiplied by the scale": scale * entropy,
                    "the bonus counts tokens, whatever their weights": log,
                    "every core counts as a full group":
                        0 * log + float(torch.tensor(group).double().log())}.items()})


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
                raise Mistake(f"full attention of the last row gives the token {weight:.3g}, "
                              "wanted 0.9 or more")
            phi = torch.stack([(scale * k[p * group : (p + 1) * group]
                                @ q[(p + 1) * group - 1]).softmax(dim=0) for p in range(cores)])
            core_k = torch.stack([x @ keys
                                  for x, keys in zip(phi, k.split(group)[:cores], strict=True)])
            row = (scale * torch.cat([core_k, k[group * cores :]]) @ q[-1]).softmax(dim=0)
            core, member = divmod(token, group)
            left = float(row[core] * phi[core, member])
            if left > 0.1:
                raise Mistake(f"CCA-Attention still gives the token {left:.3g}: its core has "
                              f"{float(row[core]):.3g}, phi is {float(phi[core, member]):.3g}; "
                              "wanted 0.1 or less in all. Which query judges?")
            if through_core and row[core] < 0.9:
                raise Mistake(f"the core of the token's group gets {float(row[core]):.3g} of the "
                              "last row, wanted 0.9 or more: what do the other tokens of the group "
                              "look like to the last row?")


def pair(got: Any, length: int) -> tuple[Tensor, Tensor]:
    """Return queries and keys of an example, in float64."""
    if not isinstance(got, (tuple, list)) or len(got) != 2 or not all(isinstance(x, Tensor)
                                                                      for x in got):
        raise Mistake(f"the result is {describe(got)}, wanted two tensors: queries and keys")
    dim = got[0].shape[-1] if got[0].dim() == 2 else 0
    if not 1 <= dim <= 64:
        raise Mistake(f"the queries are {describe(got[0])}, wanted shape ({length}, D) with D from "
                      "1 to 64")
    q, k = (need_tensor(x, (length, dim), what).double()
            for x, what in zip(got, ("queries", "keys"), strict=True))
    if max(q.abs().max(), k.abs().max()) > 1000:
        raise Mistake("an entry is larger than 1000; much smaller ones are enough")
    return q, k


# a4.9: a repaired ratio

def ratio(answer: Answer, scores: Tensor, valid: Tensor, what: str) -> None:
    """Compare weights with right ones."""
    positive = scores.masked_fill(~valid, 0.0).relu()
    total = positive.sum(dim=-1, keepdim=True)
    equal = (valid / valid.sum()).double().expand_as(positive)
    with case(what):
        why = ("is it 0 / 0? Or was a missing column multiplied by 0 instead of replaced? NaN "
               "times 0 is NaN, and so is infinity times 0")
        # 1e-6, not 1e-9: shares in single precision are right too.
        wanted = torch.where(total > 0, positive / total, equal)
        got = need_close(answer(scores, valid), wanted, "the weights",
                         tolerance=1e-6, why=why, causes={
                             "a row with small scores counts as a row without positive ones":
                                 torch.where(total > 1e-6, positive / total, equal),
                             "a small number is added to the sum or bounds it from below, so that "
                             "rows do not sum to 1": positive / (total + 1e-6),
                             "softmax takes the place of the ratio":
                                 positive.masked_fill(~valid, float("-inf")).softmax(dim=-1),
                             "a row without positive scores becomes zeros":
                                 torch.where(total > 0, positive / total, 0 * positive),
                             "the mean runs over missing columns too":
                                 torch.where(total > 0, positive / total,
                                             torch.full_like(positive, 1 / positive.shape[1]))})
        if got[:, ~valid].any():
            raise Mistake("a missing column has a weight that is nearly 0, wanted 0 exactly")


def ratio_positive(answer: Answer, draw: Draw) -> None:
    """Rows with a positive score, of any size; missing columns hold ordinary numbers here."""
    for rows, columns, missing, size in [(1, 2, 0, 1.0), (3, 4, 1, 1.0), (2, 5, 0, 1e-30),
                                         (2, 5, 2, 1e-9)]:
        columns += draw.randint(0, 4) if draw.secret else 0
        gone = draw.sample(range(columns), missing + 1)  # the last one exists and is positive
        valid = torch.ones(columns, dtype=torch.bool)
        valid[gone[:-1]] = False
        scores = draw.normal(rows, columns)
        scores[:, gone[-1]] = 1.0
        ratio(answer, (scores * size).masked_fill(~valid, 5.0), valid,
              f"{many(rows, 'row')} of {columns} columns, {missing} of them missing, scores of "
              f"about {size:g}")


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
            ratio(answer, filled, valid, f"{columns} columns, {missing} missing with "
                                         f"{junk:g}; row 0 is negative, row 1 is zero")


ASSIGNMENT = Assignment("a4", "pooling", "Core tokens: pooling, and who judges", ("03", "05"), (
    CourseTask("a4.1", "by_hand", "One group by hand", 10, 1, 3, (
        Property("the numbers of the group", 2, by_hand(
            {"phi": [0.125, 0.25, 0.125, 0.5], "core key": [1.25, 0.125], "core value": 7.0,
             "phi of the mean query": [0.2, 0.2, 0.4, 0.2]}, 1e-4)),)),
    CourseTask("a4.2", "judged_cores", "Three ways to judge", 35, 3, 5, (
        Property("whole groups are pooled right by every judge", 2, whole_groups),
        Property("a ragged last group is pooled over the tokens that it has", 1,
                 after(whole_groups, ragged)),
        Property("query heads are averaged before they judge", 1, after(whole_groups, grouped)))),
    CourseTask("a4.3", "learned_cores", "A learned judge with a temperature", 15, 2, 3, (
        Property("each head has its vector and its temperature", 1, learned_right),
        Property("temperatures 0 and infinity are limits", 1, after(learned_right, learned_limits),
                 hidden=True))),
    CourseTask("a4.4", "projected_cores", "Pool first, project later", 10, 3, 4, (
        Property("one projected row for each core is enough", 1, partial(projected, unit=True)),
        Property("the bias is right when weights do not sum to 1", 1,
                 partial(projected, unit=False)))),
    CourseTask("a4.5", "core_gradients", "Backward through a core", 30, 4, 4, (
        Property("the gradient of the judge's query", 1, partial(gradients, which='d_judge')),
        Property("the gradient of the keys, along both paths", 1,
                 partial(gradients, which='d_keys')),
        Property("the gradient of the values", 1, partial(gradients, which='d_values')))),
    CourseTask("a4.6", "moved", "What an edit moves", 20, 3, 4, (
        Property("edits of queries move the predicted rows", 1, partial(moves, kinds=('query',))),
        Property("edits of keys and values move the predicted rows", 1,
                 partial(moves, kinds=('key', 'value'))))),
    CourseTask("a4.7", "sized_attention", "How much a core should count", 20, 4, 4, (
        Property("groups of equal keys count as all their tokens", 1,
                 partial(sized, row_judges=False)),
        Property("a row that judged the groups gets full attention", 1,
                 partial(sized, row_judges=True)))),
    CourseTask("a4.8", "lost_needle", "A token that the core loses", 20, 3, 4, (
        Property("full attention finds the token, CCA-Attention loses "
                 "it", 1, partial(needle, through_core=False)),
        Property("it is lost inside a core that is read", 1, partial(needle, through_core=True)))),
    CourseTask("a4.9", "normalised", "A ratio without 0/0", 10, 2, 3, (
        Property("rows with a positive score are shares of the columns that "
                 "exist", 1, ratio_positive),
        Property("rows without one are means over the columns that exist", 1, ratio_dead))),
    CourseTask("a4.10", "no_judge", "No judge for two rows", 10, 2, 4, (), read=2),
))
