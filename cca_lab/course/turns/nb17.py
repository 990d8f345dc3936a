"""What the reader writes in notebook 17: kept heads, and the entries of their cache."""

from typing import Any

import torch
from torch import Tensor

from cca_lab.course.exercise import equals, examples, mistakes
from cca_lab.course.tasks import Answer, CourseTask, Draw, Mistake


# 17.4: the loops of a layer whose KV heads differ
def kept_heads(q: Tensor, k: Tensor, v: Tensor, kept: list[int], others: Answer, *,
               later: bool = False, scaled: bool = True, swapped: bool = False,
               everyone: bool | None = None, interleaved: bool = False,
               kept_first: bool = False, alone: bool = False) -> Tensor:
    """Return the output of a layer whose KV heads differ, (H, L, D); the keywords are mistakes."""
    each, parts = len(q) // len(k), []
    out = torch.empty_like(q)
    for head in range(len(k)):
        rows = [*range(head, len(q), len(k))] if interleaved else [
            *range(each * head, each * head + each)]
        full = (head in kept) != swapped if everyone is None else everyone
        if not full:
            out[rows] = others(q[rows[0]] if alone else q[rows], k[head], v[head])
        else:
            scores = q[rows] @ k[head].mT / (q.shape[-1] ** 0.5 if scaled else 1.0)
            past = torch.ones(scores.shape[-2:]).tril().bool()
            scores = scores if later else scores.masked_fill(~past, float("-inf"))
            out[rows] = scores.softmax(-1) @ v[head]
        parts.append((not full, out[rows]))
    return torch.cat([part for _, part in sorted(parts, key=lambda part: part[0])]) if kept_first \
        else out


def layer(draw: Draw, query_heads: int, kv_heads: int, tokens: int,
          kept: list[int]) -> tuple[Any, ...]:
    """Return a layer's tensors, and what the heads do that are not kept."""
    from cca_lab.mechanisms import CCA

    each, cca = query_heads // kv_heads, CCA(group=2, window=2)

    def others(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        shapes = [tuple(getattr(x, "shape", ())) for x in (q, k, v)]
        wanted = [(each, tokens, 4), (tokens, 4), (tokens, 4)]
        if shapes != wanted:
            raise Mistake(f"others was called with shapes {', '.join(map(str, shapes))}, wanted "
                          f"{', '.join(map(str, wanted))}: all query heads of one KV head, and its "
                          "keys and values")
        output: Tensor = cca.loops(q[None], k[None, None], v[None, None])[0]
        return output

    return (draw.normal(query_heads, tokens, 4), *draw.normal(2, kv_heads, tokens, 4), list(kept),
            others)


LAYERS: tuple[tuple[int, int, int, list[int]], ...] = (
    (2, 2, 6, [1]), (4, 2, 7, [0]), (6, 3, 9, [0, 2]), (4, 2, 8, []), (4, 2, 5, [0, 1]))


# 17.6: the entries of a cache with kept heads
def entries(length: int, heads: int, kept: int, group: int, window: int, sinks: int, *,
            with_sinks: bool = True, behind_sinks: bool = True, exactly: bool = False,
            seen_only: bool = False, next_row: int = 1, others: bool = True, one: bool = False,
            exchanged: bool = False, every: bool = False) -> int:
    """Return the entries that all heads store; the keywords are mistakes."""
    first = min(sinks, length) if behind_sinks else 0
    behind = length - first
    seen = max(0, (behind + next_row - window) // group)
    raw = min(behind, window) if exactly else behind - group * seen
    head = (seen if seen_only else behind // group) + raw + min(sinks, length) * with_sinks
    head = length if every else head
    if one:
        return length + head
    full, rest = (heads - kept, kept) if exchanged else (kept, heads - kept)
    return full * length + rest * head * others


TURNS: tuple[CourseTask, ...] = (
    CourseTask("17.4", "kept_heads", "A layer whose heads differ", 12, 3, (
        equals("kept heads attend in full, the others as they are told", kept_heads,
               examples(layer, *LAYERS), "the output", wrong=mistakes(kept_heads, {
            "the kept heads and the others are exchanged": {"swapped": True},
            "every head attends in full": {"everyone": True},
            "no head attends in full": {"everyone": False},
            "query head h reads KV head h % Hk; the heads of a KV head stand together: h // n":
                {"interleaved": True},
            "the kept heads read later tokens too": {"later": True},
            "the scores of the kept heads are not divided by sqrt(D)": {"scaled": False},
            "the kept heads come first; each head has to stand at its own place":
                {"kept_first": True},
            "all query heads of one KV head, and its keys and values": {"alone": True}})),),
               shared=True),
    CourseTask("17.6", "entries", "What a cache with kept heads stores", 8, 2, (
        equals("counts what every head stores", entries,
               examples(lambda draw, tokens, heads, kept, group, window, sinks: (
                   tokens, heads, kept, group, window, sinks), (40, 3, 1, 4, 8, 0),
                   (41, 3, 2, 4, 8, 2), (43, 2, 0, 4, 6, 1), (30, 2, 2, 4, 6, 1),
                   (3, 2, 1, 4, 8, 4), (10, 4, 1, 4, 8, 4), (4096, 90, 10, 16, 128, 4),
                   (77, 4, 3, 5, 11, 3)), "the number", wrong=mistakes(entries, {
            "the other heads store nothing": {"others": False},
            "a head that is not kept stores everything too": {"every": True},
            "one head is counted, not all of them": {"one": True},
            "k is the number of the other heads": {"exchanged": True},
            "the sinks are forgotten": {"with_sinks": False},
            "the groups begin at token 0; they begin behind the sinks": {"behind_sinks": False},
            "the raw tokens are those that the last row reads; keep those of the next row":
                {"next_row": 0},
            "exactly s tokens stay raw; those of the open group, and of a group that row L still "
            "reads raw, are stored too": {"exactly": True},
            "a core is stored when a row reads it; a cache makes it as soon as its group closes":
                {"seen_only": True}})),)),
)
