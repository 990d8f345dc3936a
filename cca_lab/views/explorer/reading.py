"""What all rows of one layer read under a mechanism, computed once: a query is only looked up.

Every number comes from the functions of `mechanisms.columns` and `attention.statistics`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from cca_lab.attention import statistics
from cca_lab.attention.arguments import check_qkv
from cca_lab.attention.dense import expand_heads
from cca_lab.attention.rotary import Rotation
from cca_lab.mechanisms import DGA, Full, KeptHeads, Mechanism
from cca_lab.mechanisms.cca.mechanism import Grouped
from cca_lab.mechanisms.columns import Columns, effective, logits, represented
from cca_lab.views.explorer.state import Column, Numbers, Row

# The option with the number of first tokens that stay visible.
FIRST = {"streaming_llm": "sinks", "a_shape": "sinks", "lm_infinite": "global_tokens"}
# What stands before the raw tokens, behind sinks if there are any.
BEFORE_RAW = {"cca": "core", "mean_pooling": "core", "random_tokens": "kept", "lococo": "slot"}


class Inputs(NamedTuple):
    """What one layer's attention is given, in float64."""

    q: Tensor  # (1, H, L, D)
    k: Tensor  # (1, Hk, L, D)
    v: Tensor
    scale: float | None = None         # factor on the dot products; None means D**-0.5
    rotation: Rotation | None = None   # the RoPE tables with which q and k were rotated
    module: nn.Module | None = None    # the layer's trained module of the mechanism


class Source(Protocol):
    """Something with words, layers and heads; `name` is the model's, or ""."""

    name: str
    words: tuple[str, ...]  # (L,) texts of the tokens
    layers: int
    heads: int

    def inputs(self, layer: int, mechanism: Mechanism) -> Inputs:
        """Return what a layer is given, and its trained module of the mechanism, if any."""
        ...

    def cache_bytes(self, mechanism: Mechanism) -> tuple[int | None, int | None]:
        """Return the bytes of one layer's cache and of full attention's; None if unknown."""
        ...


@dataclass(eq=False)
class Tensors:
    """A source of given tensors: one layer, one text.

    Args:
        q: (1, H, L, D).
        k, v: (1, Hk, L, D); v is k by default, since no weight depends on the values.
        words: (L,) texts; the numbers 0, 1, ... by default.
        scale: factor on the dot products; None means D**-0.5.
    """

    q: Tensor
    k: Tensor
    v: Tensor | None = None
    words: tuple[str, ...] = ()
    scale: float | None = None
    name: str = ""
    layers: int = 1

    def __post_init__(self) -> None:
        values = self.k if self.v is None else self.v
        check_qkv(self.q, self.k, values)
        if len(self.q) != 1:
            raise ValueError(
                f"q: got a batch of {len(self.q)}, wanted one text, (1, H, L, D); pass q[:1]")
        length, self.heads = self.q.shape[2], self.q.shape[1]
        self.words = tuple(map(str, self.words or range(length)))
        if len(self.words) != length:
            raise ValueError(
                f"words: got {len(self.words)} for {length} tokens, wanted one for each")
        q, k, v = (x.detach().double() for x in (self.q, self.k, values))
        self._inputs = Inputs(q, k, v, self.scale)

    def inputs(self, layer: int, mechanism: Mechanism) -> Inputs:
        """Return the tensors, whatever the mechanism."""
        return self._inputs

    def cache_bytes(self, mechanism: Mechanism) -> tuple[Any, Any]:
        """Return None twice: without a model there is no dtype of a cache."""
        return None, None


class Reading:
    """The columns of one layer and the weights of its rows and heads, computed when first used.

    `full` are full attention's weights, if they are known already.
    """

    @torch.no_grad()
    def __init__(self, mechanism: Mechanism, given: Inputs, full: Tensor | None = None) -> None:
        q, k, v, scale, rotation, module = given
        # raises where no effective matrix exists
        mechanism.effective(q[:, :, :1], k[:, :, :1], v[:, :, :1])
        self.mechanism, self.given = mechanism, given
        self.selection = mechanism.select(q, k, scale=scale)
        self._frozen: dict[str, Any] = {"scale": scale, "rotation": rotation, "module": module,
                                        "selection": self.selection}
        call = mechanism.call(q, k, v, **self._frozen)
        self.scale = call.scale
        self.column_sets: list[Columns] = mechanism.columns(q, k, v, call)
        self.full = Full().effective(q, k, scale=scale)[0] if full is None else full
        self._columns = lru_cache(self._columns_of)

    @cached_property
    @torch.no_grad()
    def weights(self) -> Tensor:
        """A, (H, L, C): 0 where a row does not see a column."""
        return logits(self.column_sets, self.scale).softmax(-1)[0]

    @cached_property
    @torch.no_grad()
    def effective(self) -> Tensor:
        """E = A P, (H, L, L)."""
        return effective(self.column_sets, self.scale)[0]

    @cached_property
    def seen(self) -> Tensor:
        """Which columns each row sees, bool (H, L, C)."""
        heads, length = self.given.q.shape[1:3]
        return torch.cat([columns.mask()[0].expand(heads, length, -1)
                          for columns in self.column_sets], dim=-1)

    @cached_property
    @torch.no_grad()
    def read(self) -> Tensor:
        """Which tokens each row reads, raw or pooled, bool (H, L, L)."""
        if type(self.mechanism).represented is Mechanism.represented:
            return represented(self.column_sets)[0]
        # LoCoCo: a product of weights may underflow, while the token is in its slot
        q, k, v = self.given[:3]
        return self.mechanism.represented(q, k, v, **self._frozen)[0]

    @cached_property
    def kinds(self) -> list[str]:
        """The kind of each column, see `kinds`."""
        return kinds(self.mechanism, self.column_sets, self.selection)

    @torch.no_grad()
    def pooling(self, head: int) -> Tensor:
        """Return P of one head, (C, L): the weight of each token in each column."""
        length = self.given.q.shape[2]
        return torch.cat([_pooling_of(columns, length, self.given.q.shape[1], head)
                          for columns in self.column_sets])

    def columns(self, head: int) -> tuple[Column, ...]:
        """Return the columns of one head."""
        return self._columns(head)

    def _columns_of(self, head: int) -> tuple[Column, ...]:
        listed = []
        for kind, weights in zip(self.kinds, self.pooling(head).double().cpu().numpy(),
                                 strict=True):
            tokens = weights.nonzero()[0]
            listed.append(Column(kind, tokens, weights[tokens]))
        return tuple(listed)

    def row(self, head: int, query: int) -> Row:
        """Return what one query reads in one head."""
        seen = self.seen[head, query].nonzero().flatten()
        weights, full = self.effective[head, query], self.full[head, query]
        numbers = Numbers(lost=(full * ~self.read[head, query]).sum().item(),
                          distance=max(0.0, 1 - statistics.overlap(weights, full).item()),
                          k90=int(statistics.k90(weights)), k90_full=int(statistics.k90(full)),
                          entropy=statistics.entropy(weights).item(),
                          entropy_full=statistics.entropy(full).item())
        arrays = [x.double().cpu().numpy() for x in (self.weights[head, query, seen], weights,
                                                     full)]
        return Row(query, seen.cpu().numpy(), arrays[0], arrays[1], arrays[2], numbers)

    def pairs(self, head: int) -> int:
        """Return how many pairs of a query and a column one head scores."""
        return int(self.seen[head].sum())


def _pooling_of(columns: Columns, length: int, heads: int, head: int) -> Tensor:
    """Return the rows of P of one part and one query head, (C, L)."""
    if columns.pooling is None:
        return torch.eye(columns.count, length, dtype=torch.float64)
    pooling = columns.pooling()
    shared = pooling.shape[1] == 1
    return (pooling[0, 0] if shared else expand_heads(pooling, heads)[0, head]).double()


def kinds(mechanism: Mechanism, column_sets: Sequence[Columns], selection: Any) -> list[str]:
    """Return the kind of each column of all sets, in the order of the softmax.

    A mechanism that is not named here has cores where a column holds several tokens, and raw tokens
    otherwise.
    """
    near, *far = column_sets
    length, count = near.q.shape[2], near.count
    if isinstance(mechanism, KeptHeads):  # of one layer; the tokens of its kept heads come first
        kept = ["raw"] * count if mechanism.kept[0] else []
        others = far if kept else column_sets
        return kept + (kinds(mechanism.other, others, selection) if others else [])
    if near.pooling is None or mechanism.name in FIRST:
        sinks = getattr(mechanism, FIRST[mechanism.name]) if mechanism.name in FIRST else 0
        first = 0 if far else min(sinks, count)
        names = ["sink"] * first + ["raw"] * (count - first)
    elif isinstance(mechanism, DGA):
        names = _divided(mechanism, selection, count)
    elif mechanism.name in BEFORE_RAW:
        sinks = min(mechanism.sinks, length) if isinstance(mechanism, Grouped) else 0
        names = [BEFORE_RAW[mechanism.name]] * (count - length)
        names += ["sink"] * sinks + ["raw"] * (length - sinks)
    else:
        several = ((near.pooling() != 0).sum(-1) > 1).flatten(0, 1).any(0)
        names = ["core" if pooled else "raw" for pooled in several.tolist()]
    return names + ["sink" if columns.pooling is None else "core"
                    for columns in far for _ in range(columns.count)]


def _divided(mechanism: DGA, focal: Tensor, count: int) -> list[str]:
    """Return DGA's kinds: focal tokens, groups, raw tokens; all heads have equally many of each."""
    blocks, span = mechanism.spans(focal.shape[-1])
    kept = int(focal[0, 0, : blocks * span].sum())
    groups = (blocks * span - kept) // mechanism.group
    return ["focal"] * kept + ["group"] * groups + ["raw"] * (count - kept - groups)
