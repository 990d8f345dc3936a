"""a4, judges: the weights of a group when its last token, its mean query or every token judges."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from cca_lab.course.compare import describe, need_close
from cca_lab.course.tasks import Answer, Draw, Mistake, case

JUDGES = ("last", "mean", "all")
Weigh = Callable[[Tensor, Tensor, str, float, int], Tensor]  # queries (r, n, D), keys (n, D), judge, scale, group


def vote(queries: Tensor, keys: Tensor, judge: str, scale: float, group: int) -> Tensor:
    """Return the weights (n,) of the n tokens that a group has."""
    mean = queries.mean(dim=0)                                                    # over the query heads of a KV head
    judges = {"last": mean[-1:], "mean": mean.mean(dim=0, keepdim=True), "all": mean}[judge]
    return torch.stack([(scale * keys @ query).softmax(dim=0) for query in judges]).mean(dim=0)


def vote_of_first(queries: Tensor, keys: Tensor, judge: str, scale: float, group: int) -> Tensor:
    """Let the first token judge."""
    return vote(queries[:, :1], keys, "last", scale, group)


def vote_unscaled(queries: Tensor, keys: Tensor, judge: str, scale: float, group: int) -> Tensor:
    """Forget the scale."""
    return vote(queries, keys, judge, 1.0, group)


def vote_by_heads(queries: Tensor, keys: Tensor, judge: str, scale: float, group: int) -> Tensor:
    """Average the weights of the query heads instead of their queries."""
    return torch.stack([vote(head[None], keys, judge, scale, group) for head in queries]).mean(dim=0)


def vote_of_one_head(queries: Tensor, keys: Tensor, judge: str, scale: float, group: int) -> Tensor:
    """Ask the first query head only."""
    return vote(queries[:1], keys, judge, scale, group)


def filled(x: Tensor, group: int) -> Tensor:
    """Return (..., n, D) filled up with rows of zeros to (..., group, D)."""
    return torch.cat([x, x.new_zeros(*x.shape[:-2], group - x.shape[-2], x.shape[-1])], dim=-2)


def vote_with_zeros(queries: Tensor, keys: Tensor, judge: str, scale: float, group: int) -> Tensor:
    """Fill a ragged group up with keys of zeros."""
    return vote(queries, filled(keys, group), judge, scale, group)


def vote_with_zeros_cut(queries: Tensor, keys: Tensor, judge: str, scale: float, group: int) -> Tensor:
    """Fill up with keys of zeros and take their weights away too late."""
    return vote_with_zeros(queries, keys, judge, scale, group)[: len(keys)]


def vote_by_zeros(queries: Tensor, keys: Tensor, judge: str, scale: float, group: int) -> Tensor:
    """Fill up queries and keys with zeros."""
    return vote(filled(queries, group), filled(keys, group), judge, scale, group)


def vote_by_zeros_cut(queries: Tensor, keys: Tensor, judge: str, scale: float, group: int) -> Tensor:
    """Fill up queries and keys with zeros and take the weights away too late."""
    return vote_by_zeros(queries, keys, judge, scale, group)[: len(keys)]


def vote_by_zeros_masked(queries: Tensor, keys: Tensor, judge: str, scale: float, group: int) -> Tensor:
    """Fill up the queries only: zeros judge, but get no weight."""
    return vote(filled(queries, group), keys, judge, scale, group)


def vote_all_as_mean(queries: Tensor, keys: Tensor, judge: str, scale: float, group: int) -> Tensor:
    """Average queries or scores, which is the same, where weights should be averaged."""
    return vote(queries, keys, "mean" if judge == "all" else judge, scale, group)


def vote_mean_as_all(queries: Tensor, keys: Tensor, judge: str, scale: float, group: int) -> Tensor:
    """Average weights where queries should be averaged."""
    return vote(queries, keys, "all" if judge == "mean" else judge, scale, group)


def vote_divided_by_group(queries: Tensor, keys: Tensor, judge: str, scale: float, group: int) -> Tensor:
    """Divide the sum of a ragged group's queries by g."""
    return vote(queries * (len(keys) / group), keys, judge, scale, group)


CAUSES: dict[str, Weigh] = {
    "the first token of the group judges": vote_of_first,
    "the scores are not multiplied by the scale": vote_unscaled,
    "each query head makes its own weights and these are averaged": vote_by_heads,
    "only the first query head of a KV head judges": vote_of_one_head,
    "missing tokens take part as keys of zeros": vote_with_zeros,
    "missing tokens take part in the softmax as keys of zeros, and their weights are cut off after it":
        vote_with_zeros_cut,
    "missing tokens take part as queries and keys of zeros": vote_by_zeros,
    "missing tokens take part as queries and keys of zeros, and their weights are cut off after the softmax":
        vote_by_zeros_cut,
    'queries or scores are averaged for "all", which makes it "mean": average the weights, after the softmax':
        vote_all_as_mean,
    'weights are averaged for "mean", which makes it "all": average the queries': vote_mean_as_all,
    "the mean over a ragged group is divided by the group size": vote_divided_by_group,
    "missing tokens judge, as queries of zeros": vote_by_zeros_masked}


def weights_of(q: Tensor, k: Tensor, group: int, judge: str, scale: float, weigh: Weigh = vote) -> Tensor:
    """Return phi (Hk, M, g) of all groups, the ragged one too, group after group."""
    heads, length = k.shape[:2]
    phi = k.new_zeros(heads, -(-length // group), group)
    queries = q.unflatten(0, (heads, -1))                                         # (Hk, r, L, D)
    for head in range(heads):
        for core in range(phi.shape[1]):
            members = slice(core * group, (core + 1) * group)
            found = weigh(queries[head, :, members], k[head, members], judge, scale, group)
            phi[head, core, : len(found)] = found
    return phi


def mistaken(q: Tensor, k: Tensor, group: int, judge: str, scale: float) -> dict[str, Tensor]:
    """Return phi as known mistakes make it."""
    mixed = q.unflatten(0, (-1, len(k))).transpose(0, 1).flatten(0, 1)
    return {cause: weights_of(q, k, group, judge, scale, weigh) for cause, weigh in CAUSES.items()} | {
        "query head h belongs to KV head h % Hk: neighbours belong together, h // r":
            weights_of(mixed, k, group, judge, scale)}


def pooled(phi: Tensor, x: Tensor) -> Tensor:
    """Return the cores (Hk, M, D) of x (Hk, L, D)."""
    group = phi.shape[-1]
    return torch.stack([torch.stack([phi[head, core, : len(members)] @ members
                                     for core, members in enumerate(x[head].split(group))])
                        for head in range(len(x))])


def judged(answer: Answer, draw: Draw, sizes: list[tuple[int, int, int, int]]) -> None:
    """Compare weights and cores for all judges; sizes are (query heads, KV heads, length, group)."""
    for heads, kv_heads, length, group in sizes:
        q, k = draw.normal(heads, length, 3, scale=1.5), draw.normal(kv_heads, length, 3)
        v = draw.normal(kv_heads, length, 2)
        scale = draw.choice((0.5, 0.75, 1.5))
        for judge in JUDGES:
            with case(f'{heads} query heads, {kv_heads} KV heads, length {length}, group {group}, judge "{judge}"'):
                got = answer(q, k, v, group, judge, scale)
                if not isinstance(got, (tuple, list)) or len(got) != 3:
                    raise Mistake(f"the result is {describe(got)}, wanted three tensors: core keys, core values, phi")
                phi = weights_of(q, k, group, judge, scale)
                need_close(got[2], phi, "phi", causes=partial(mistaken, q, k, group, judge, scale))
                for part, x, what in ((got[0], k, "core keys"), (got[1], v, "core values")):
                    need_close(part, pooled(phi, x), what, causes={"the plain mean is taken": plain_means(phi, x)})


def plain_means(phi: Tensor, x: Tensor) -> Tensor:
    """Return the cores without a judge."""
    return pooled(torch.full_like(phi, 1 / phi.shape[-1]), x)


def whole_groups(answer: Answer, draw: Draw) -> None:
    """Lengths that the group divides, as many query heads as KV heads."""
    sizes = [(1, 1, 2, 2), (1, 1, 3, 1), (1, 1, 6, 3), (2, 2, 8, 4)]
    if draw.secret:
        drawn = [(draw.randint(1, 3), draw.randint(1, 5), draw.randint(1, 5)) for _ in range(5)]
        sizes = sorted((heads, heads, count * group, group) for heads, count, group in drawn)
    judged(answer, draw, [(1, 1, 4, 2), *sizes] if draw.secret else sizes)


def ragged(answer: Answer, draw: Draw) -> None:
    """Lengths that leave a rest, and a text shorter than one group."""
    sizes = [(1, 1, 3, 2), (1, 1, 2, 5), (2, 2, 8, 3), (1, 1, 7, 4)]
    if draw.secret:
        drawn = [(draw.randint(0, 4), draw.randint(3, 6)) for _ in range(5)]
        sizes = sorted((1, 1, count * group + draw.randint(2, group - 1), group) for count, group in drawn)
    judged(answer, draw, sizes)


def grouped(answer: Answer, draw: Draw) -> None:
    """More query heads than KV heads."""
    sizes = [(2, 1, 2, 2), (4, 2, 6, 3)]
    if draw.secret:
        kv_heads, each = draw.randint(2, 3), draw.randint(2, 3)
        sizes = [(2, 1, 4, 2), (kv_heads * each, kv_heads, 12, 4)]
    judged(answer, draw, sizes)
