"""What travels in one layer of a text over several processes, in closed form: CCA beside ring attention and others.

All counts are of entries, a key and a value of one KV head each, that one process *receives* in the forward pass.
With e bytes a number, an entry is 2 D e bytes. L tokens in R contiguous pieces, process r holds [a, b):

    CCA         a - g n(a)  raw tokens, and  min(floor(a / g), n(b - 1))  cores
    ring        L - (b - a): the keys and values of everybody pass by (Liu et al., "Ring Attention with Blockwise
                Transformers", 2023); a gathering of all keys and values before the attention receives as many
    Ulysses     queries, keys and values of H / R heads for all tokens, and the outputs back (Jacobs et al.,
                "DeepSpeed Ulysses", 2023); a KV head that R does not divide is sent to several processes

Backward sends the gradients of CCA's entries the same way back: as much again. Ring attention passes on keys and
values once more, and their gradients: twice as much again. Ulysses sends as much again.
"""

from dataclasses import dataclass

from cca_lab.attention.parallel import Range
from cca_lab.mechanisms.cca.groups import pairs
from cca_lab.mechanisms.cca.parallel import Plan
from cca_lab.mechanisms.indices import core_count, first_raw
from cca_lab.settings import check_integers


@dataclass(frozen=True)
class Shape:
    """The sizes of one attention layer.

    Attributes:
        heads, kv_heads, head_dim: H, Hk and D.
        batch: texts at a time.
        number: bytes of one number, 2 for bfloat16.
    """

    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    batch: int = 1
    number: int = 2

    def __post_init__(self) -> None:
        check_integers(1, **vars(self))

    @property
    def entry(self) -> int:
        """Bytes of the keys and values of one token, of all KV heads and texts."""
        return 2 * self.batch * self.kv_heads * self.head_dim * self.number


def raw_received(piece: Range, group: int, window: int) -> int:
    """Return how many raw tokens arrive for a contiguous piece [a, b): a - g n(a), fewer than s + g."""
    start, stop = piece
    return start - first_raw(start, group, window) if start < stop else 0


def cores_received(piece: Range, group: int, window: int) -> int:
    """Return how many cores arrive for a contiguous piece [a, b): min(floor(a / g), n(b - 1))."""
    start, stop = piece
    return min(start // group, core_count(stop, group, window)) if start < stop else 0


def entries_received(plan: Plan, rank: int) -> int:
    """Return how many entries one process receives with CCA, counted from the plan that `fetch` follows."""
    return plan.halo.received(rank) + plan.cores.received(rank)


def ring_received(plan: Plan, rank: int) -> int:
    """Return how many entries one process receives with ring attention: those of all other processes."""
    return plan.shards.length - plan.shards.tokens(rank)


def ulysses_bytes(length: int, ranks: int, shape: Shape) -> float:
    """Return how many bytes one process receives with Ulysses: q, k, v for its heads, and its tokens' outputs."""
    per_token = 2 * shape.heads + 2 * max(shape.kv_heads, ranks)  # q and out; k and v: each process needs a KV head
    return length * per_token / ranks * (ranks - 1) / ranks * shape.batch * shape.head_dim * shape.number


def pairs_of(plan: Plan, rank: int) -> int:
    """Return how many query-key pairs the rows of one process score."""
    def before(stop: int) -> int:
        return pairs(stop, plan.group, plan.window) if stop else 0

    return sum(before(stop) - before(start) for start, stop in plan.shards.pieces[rank])


def resident_entries(plan: Plan, rank: int) -> int:
    """Return how many entries one process holds while it attends: its tokens, the halo, and the cores it reads."""
    cores = sum(stop - start for start, stop in plan.cores.want[rank])
    return plan.shards.tokens(rank) + plan.halo.received(rank) + cores
