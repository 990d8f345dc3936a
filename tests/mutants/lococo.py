"""Wrong LoCoCo attentions: `rows(q, k, v, **options)` is right, a mutant changes one thing."""

import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]  # keys and values, (N, D) each


class Parts:
    """The decisions that make up LoCoCo, for one KV head."""

    def cut(self, length: int, size: int) -> list[range]:
        """The segments."""
        return [range(start, min(length, start + size)) for start in range(0, length, size)]

    def is_full(self, columns: int, slots: int) -> bool:
        """Whether the columns before a segment are compressed."""
        return columns > slots

    def memory_for(self, before: Pair, after: Pair) -> Pair:
        """The columns before a segment that its rows read: before it, or with it mixed in."""
        return before

    def hide(self, logits: Tensor, future: Tensor) -> Tensor:
        """Logits (N,) with those of the future taken out."""
        return logits.masked_fill(future, float("-inf"))

    def normalise(self, output: Tensor, kind: str) -> Tensor:
        """Mixing weights (M', R) from what the convolution says."""
        positive = output.relu()
        if kind == "softmax":
            return positive.softmax(dim=1)
        total = positive.sum(dim=1, keepdim=True)
        return torch.where(total > 0, positive / total,
                           torch.full_like(positive, 1 / output.shape[1]))

    def mixable(self, columns: int, kept: list[int]) -> list[int]:
        """The columns that are mixed."""
        return [j for j in range(columns) if j not in kept]

    def received(self, weights: Tensor) -> Tensor:
        """Attention received (N,), from that of each head and row (G, T, N)."""
        return weights.sum(dim=(0, 1))

    def values(self, weights: Tensor, values: Tensor, queries: Tensor) -> Tensor:
        """Slot values (M, D) from column values (N, D), and queries mixed alike."""
        return weights @ values

    def store(self, slots: Pair) -> Pair:
        """What is kept of new slots."""
        return slots


def rows(q: Tensor, k: Tensor, v: Tensor, *, slots: int, segment: int, weights: str = "softmax",
         sinks: int = 0, heavy: int = 0, scale: float | None = None, module=None,
         parts: Parts | None = None) -> Tensor:
    """LoCoCo attention from `parts`, scores of the last segment."""
    parts = parts or Parts()
    scale, group = q.shape[-1] ** -0.5 if scale is None else scale, q.shape[1] // k.shape[1]
    out = torch.zeros_like(q, memory_format=torch.contiguous_format)
    for b in range(len(q)):
        for kv in range(k.shape[1]):
            heads = slice(kv * group, kv * group + group)
            queries, keys, values = q[b, heads], k[b, kv], v[b, kv]
            mixed_queries = memory_k = memory_v = keys[:0]
            received = keys.new_zeros(0)

            def compress(columns: Pair, asked: Tensor, received: Tensor) -> tuple[Tensor, Tensor,
                                                                                  Tensor]:
                matrix = _matrix(*columns, received, slots, sinks, heavy, weights, module, parts)
                return matrix @ columns[0], parts.values(matrix, columns[1], asked), matrix @ asked

            for own in parts.cut(len(keys), segment):
                if parts.is_full(len(memory_k), slots):
                    new = compress((memory_k, memory_v), mixed_queries, received)
                    memory_k, memory_v, mixed_queries = (*parts.store(new[:2]), new[2])
                part = slice(own.start, own.stop)
                columns = torch.cat([memory_k, keys[part]]), torch.cat([memory_v, values[part]])
                asked = torch.cat([mixed_queries, queries[0, part]])
                peek = columns if len(columns[0]) <= slots else compress(
                    columns, asked, columns[0].new_ones(len(columns[0])))[:2]
                seen = parts.memory_for((memory_k, memory_v), peek)
                read_k, read_v = torch.cat([seen[0], keys[part]]), torch.cat([seen[1],
                                                                              values[part]])
                logits = scale * (queries[:, part] @ read_k.T)                  # (G, T, N)
                place = torch.arange(len(read_k)) - len(seen[0])
                future = place > torch.arange(len(own))[:, None]                # (T, N)
                attended = torch.softmax(parts.hide(logits, future), dim=-1)
                out[b, heads, part] = attended @ read_v
                received = parts.received(attended.detach())
                memory_k, memory_v, mixed_queries = *columns, asked
    return out


def _matrix(keys: Tensor, values: Tensor, received: Tensor, slots: int, sinks: int, heavy: int,
            kind: str, module, parts: Parts) -> Tensor:
    """The rows (M, N) by which the slots mix the columns."""
    first = list(range(sinks))
    order = received[sinks:].sort(descending=True, stable=True).indices[:heavy]
    kept = first + sorted((order + sinks).tolist())
    rest = parts.mixable(len(keys), kept)
    matrix = torch.zeros(slots, len(keys), dtype=keys.dtype)
    matrix[range(len(kept)), kept] = 1
    if slots > len(kept):
        output = keys.new_zeros(slots - len(kept), len(rest)) if module is None else \
            module(torch.cat([keys, values], dim=1)[rest][None, None])[0, 0]
        matrix[len(kept):, rest] = parts.normalise(output, kind)
    return matrix


def mask_multiplied(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Eq. 1 as printed: the mask multiplies the logits, so that the future has weight exp(0)."""
    class Wrong(Parts):
        def hide(self, logits, future):
            return logits * ~future
    return rows(q, k, v, parts=Wrong(), **options)


def compressed_before_attending(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """The segment goes into the slots before its own rows attend."""
    class Wrong(Parts):
        def memory_for(self, before, after):
            return after
    return rows(q, k, v, parts=Wrong(), **options)


def segments_from_nb(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Algorithms 1 and 2 as printed: segment n holds the tokens nB ... (n+1)B - 1, n from 1."""
    class Wrong(Parts):
        def cut(self, length, size):
            return [range(start, min(length, start + size))
                    for start in range(size - 1, length, size)]
    return rows(q, k, v, parts=Wrong(), **options)


def queries_mixed(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Eq. 5 as printed: queries are mixed where values are meant."""
    class Wrong(Parts):
        def values(self, weights, values, queries):
            return weights @ queries
    return rows(q, k, v, parts=Wrong(), **options)


def ratio_unguarded(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Eq. 7 as printed: a row that ReLU leaves empty is 0/0."""
    class Wrong(Parts):
        def normalise(self, output, kind):
            return output.relu() / output.relu().sum(dim=1, keepdim=True)
    return rows(q, k, v, parts=Wrong(), **options)


def no_relu(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Eq. 7 without the ReLU of Section 3.2.1: weights may be negative, their sum may vanish."""
    class Wrong(Parts):
        def normalise(self, output, kind):
            return output / output.sum(dim=1, keepdim=True)
    return rows(q, k, v, parts=Wrong(), **options)


def softmax_over_slots(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Each column shares itself out over the slots, instead of each slot over the columns."""
    class Wrong(Parts):
        def normalise(self, output, kind):
            return output.relu().softmax(dim=0)
    return rows(q, k, v, parts=Wrong(), **options)


def compression_detached(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """New slots are cut from the graph: the convolution gets no gradient."""
    class Wrong(Parts):
        def store(self, slots):
            return slots[0].detach(), slots[1].detach()
    return rows(q, k, v, parts=Wrong(), **options)


def always_compressed(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Compresses once the memory is filled, not exceeded: a text of M + B tokens is not exact."""
    class Wrong(Parts):
        def is_full(self, columns, slots):
            return columns >= slots
    return rows(q, k, v, parts=Wrong(), **options)


def kept_tokens_mixed_too(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """The convolution also sees the columns that are kept, which then count twice."""
    class Wrong(Parts):
        def mixable(self, columns, kept):
            return list(range(columns))
    return rows(q, k, v, parts=Wrong(), **options)


def first_head_decides(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Heavy hitters by the attention of one query head of the KV head."""
    class Wrong(Parts):
        def received(self, weights):
            return weights[0].sum(dim=0)
    return rows(q, k, v, parts=Wrong(), **options)


def last_query_decides(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Heavy hitters by the attention of a segment's last row alone."""
    class Wrong(Parts):
        def received(self, weights):
            return weights[:, -1].sum(dim=0)
    return rows(q, k, v, parts=Wrong(), **options)
