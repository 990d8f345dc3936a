"""Kept heads: some KV heads of each layer attend in full, the others with another mechanism.

Few heads of a model fetch an answer from far back. Where these keep the whole past, the others can
read it through cores, or not at all:

    out_h = full attention of head h              if its KV head is kept in this layer
          = the other mechanism's output of h     otherwise

Xiao et al., "DuoAttention: Efficient Long-Context LLM Inference with Retrieval and Streaming
Heads", 2024 (Section 2).

Differs from the paper: there, the other heads always read sinks and a window of recent tokens
(`StreamingLLM` here); the heads to keep are found by gates that training closes, which is one of
three ways in `cca_lab.models.retrieval`.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from cca_lab.attention.sources import whole
from cca_lab.mechanisms.base import Call, Mechanism
from cca_lab.mechanisms.cca.baselines import MeanPooling, RandomTokens
from cca_lab.mechanisms.cca.mechanism import CCA
from cca_lab.mechanisms.columns import Columns, attend
from cca_lab.mechanisms.dga import DGA
from cca_lab.mechanisms.full import Full
from cca_lab.mechanisms.h2o.mechanism import H2O
from cca_lab.mechanisms.streaming.lm_infinite import LMInfinite
from cca_lab.mechanisms.streaming.streaming_llm import StreamingLLM
from cca_lab.settings import check_integers

OTHERS: dict[str, type[Mechanism]] = {cls.name: cls for cls in (
    CCA, DGA, H2O, StreamingLLM, LMInfinite, MeanPooling, RandomTokens)}


Index = slice | Tensor


class Part(NamedTuple):
    """The heads of one layer that attend alike.

    Attributes:
        mechanism: how they attend.
        heads: numbers of the query heads.
        kv_heads: numbers of their KV heads.
    """

    mechanism: Mechanism
    heads: list[int]
    kv_heads: list[int]


class Split(NamedTuple):
    """How the heads of one layer are divided.

    Attributes:
        parts: each with indices of its query heads and of its KV heads.
        heads: the indices of the query heads.
        order: index that orders the outputs of all parts by query head.
        owner: of each KV head the number of its part.
    """

    parts: list[tuple[Part, Index, Index]]
    heads: list[Index]
    order: Index
    owner: list[int]


@dataclass(frozen=True, kw_only=True)
class KeptHeads(Mechanism):
    """Kept heads: some KV heads read everything, all others what another mechanism reads.

    Attributes:
        kept: the KV heads that read everything, counted from 0: a list for each layer of a model,
            or one list for all layers.
        others: the mechanism of the other heads: {"name": ..., **options}.
        backend: how attention is computed, as in `interval_attention`; the result is the same.
    """

    kept: list[list[int]] = field(default_factory=lambda: [[0]])
    others: dict[str, Any] = field(default_factory=lambda: {"name": CCA.name, **CCA().options()})

    name: ClassVar[str] = "kept_heads"
    title: ClassVar[str] = "Kept heads"
    paper: ClassVar[str] = ("Xiao et al., DuoAttention: Efficient Long-Context LLM Inference with "
                            "Retrieval and Streaming Heads, 2024, Section 2")
    sizes: ClassVar[tuple[str, ...]] = ("kept", "others")
    of_one_model: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _are_lists(self.kept):
            raise ValueError(f"kept: got {self.kept!r}, wanted a list of KV heads for each layer, "
                             "or one for all, such as [[0, 2], []]")
        for heads in self.kept:
            check_integers(0, **{f"kept[{place}]": head for place, head in enumerate(heads)})
            if len(set(heads)) < len(heads):
                raise ValueError(f"kept: got {list(heads)} for a layer, wanted each head once")
        if not isinstance(self.others, dict) or self.others.get("name") not in list(OTHERS):
            raise ValueError(f"others: got {self.others!r}, wanted a dict with the name of "
                             f"{', '.join(OTHERS)}, and its options")
        # what the caller keeps may be changed later, without a check
        object.__setattr__(self, "kept", [sorted(heads) for heads in self.kept])
        # with its sizes, given or not, as `options` has them: groups that grow are found there
        others = {"name": self.other.name, **copy.deepcopy(self.other.options())}
        if "backend" not in self.others:
            others.pop("backend", None)
        object.__setattr__(self, "others", others)

    @classmethod
    def around(cls, others: Mechanism, kept: Sequence[Sequence[int]]) -> Self:
        """Return the mechanism that keeps some heads and attends with `others` in all others."""
        return cls(kept=[list(heads) for heads in kept],
                   others={"name": others.name, **others.options()}, backend=others.backend)

    def __str__(self) -> str:
        """Return a short text, such as: kept_heads, 10 in 30 layers, others cca, group 16, ..."""
        count = sum(map(len, self.kept))
        layers = f"{len(self.kept)} layers" if len(self.kept) > 1 else "every layer"
        return f"{self.name}, {count} in {layers}, others {self.other}"

    @cached_property
    def other(self) -> Mechanism:
        """The mechanism of the other heads, on this one's backend as far as it has it."""
        options = {key: value for key, value in self.others.items() if key != "name"}
        cls = OTHERS[self.others["name"]]
        unknown = [option for option in options if option not in cls.option_names()]
        if unknown:
            raise ValueError(f"others: {unknown[0]} is not an option of {cls.name!r}, wanted "
                             f"{', '.join(cls.option_names())}")
        backend = self.backend if self.backend in cls.backends else "auto"
        return cls(**{"backend": backend, **options})

    @cached_property
    def _layers(self) -> list[Self]:
        return [replace(self, kept=[heads]) for heads in self.kept]

    def at_layer(self, index: int) -> Self:
        """Return the mechanism of one layer."""
        if len(self.kept) == 1:
            return self
        if index >= len(self.kept):
            raise ValueError(f"kept: got lists for {len(self.kept)} layers, and no layer {index}; "
                             "give one for each layer of the model, or one for all")
        return self._layers[index]

    def check_config(self, layers: int, kv_heads: int) -> None:
        """Raise ValueError unless the kept heads are those of a model of these sizes."""
        if len(self.kept) not in (1, layers):
            raise ValueError(f"kept: got lists for {len(self.kept)} layers, wanted one for each of "
                             f"{layers}, or one for all")
        highest = max((head for heads in self.kept for head in heads), default=0)
        if highest >= kv_heads:
            raise ValueError(f"kept: got head {highest}, wanted numbers of the {kv_heads} KV heads "
                             f"of a layer, 0 to {kv_heads - 1}")

    def parts(self, heads: int, kv_heads: int) -> list[Part]:
        """Return the heads of one layer by how they attend, the kept ones first; none is empty."""
        if len(self.kept) > 1:
            raise ValueError(f"kept: got lists for {len(self.kept)} layers and the tensors of one; "
                             "call at_layer(number) first")
        self.check_config(1, kv_heads)
        each, (kept,) = heads // kv_heads, self.kept
        rest = [head for head in range(kv_heads) if head not in kept]
        backend = self.backend if self.backend in Full.backends else "auto"
        return [Part(mechanism, [each * head + number for head in chosen for number in range(each)],
                     list(chosen))
                for mechanism, chosen in ((Full(backend=backend), kept), (self.other, rest))
                if chosen]

    def by_parts(self, q: Tensor, k: Tensor, v: Tensor,
                 attend: Callable[[Part, Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        """Return (B, H, L, D): what `attend` returns for the q, k and v of each part's heads."""
        split = self.split(q.shape[1], k.shape[1])
        if len(split.parts) == 1:  # all heads, in order
            return attend(split.parts[0][0], q, k, v)
        return torch.cat([attend(part, q[:, heads], k[:, kv_heads], v[:, kv_heads])
                          for part, heads, kv_heads in split.parts], dim=1)[:, split.order]

    def split(self, heads: int, kv_heads: int) -> Split:
        """Return how the heads of one layer are divided; it is found out once."""
        sizes = heads, kv_heads
        if sizes not in self._splits:
            parts = self.parts(heads, kv_heads)
            order = torch.tensor([head for part in parts for head in part.heads], device="cpu")
            owner = {head: number for number, part in enumerate(parts) for head in part.kv_heads}
            heads_of = [_index(part.heads) for part in parts]
            self._splits[sizes] = Split(
                [(part, index, _index(part.kv_heads))
                 for part, index in zip(parts, heads_of, strict=True)],
                heads_of, _index(order.argsort().tolist()),
                [owner[head] for head in range(kv_heads)])
        return self._splits[sizes]

    @cached_property
    def _splits(self) -> dict[tuple[int, int], Split]:
        return {}

    def row_by_row(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        """Attend with the loops of each head's mechanism: the specification."""
        return self.by_parts(q, k, v, lambda part, *tensors: part.mechanism.row_by_row(
            *tensors, self._call_of(part, call)))

    def attention(self, q: Tensor, k: Tensor, v: Tensor, **keywords: Any) -> Tensor:
        """Attend as `Mechanism.attention`; each part of the heads by itself."""
        call = self.call(q, k, v, **keywords)
        return self.by_parts(q, k, v, lambda part, *tensors: attend(
            part.mechanism.columns(*tensors, self._call_of(part, call)), call.scale,
            part.mechanism.backend))

    def effective(self, q: Tensor, k: Tensor, v: Tensor | None = None, **keywords: Any) -> Tensor:
        """Return E as `Mechanism.effective`; ValueError where the other mechanism has none."""
        v = k if v is None else v
        call = self.call(q, k, v, **keywords)
        return self.by_parts(q, k, v, lambda part, *tensors: part.mechanism.effective(
            *tensors, **self._call_of(part, call)._asdict()))

    def columns(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> list[Columns]:
        """Return the raw tokens of the kept heads, then the other mechanism's columns, as masks.

        Every head has all columns; it sees those of its own part.
        """
        heads, kv_heads, sets = q.shape[1], k.shape[1], []
        for part in self.parts(heads, kv_heads):
            rows, tensors = part.heads, (q[:, part.heads], k[:, part.kv_heads], v[:, part.kv_heads])
            for columns in part.mechanism.columns(*tensors, self._call_of(part, call)):
                # a column belongs to a KV head, or to a query head
                of_kv = columns.heads == len(part.kv_heads)
                own, total = (part.kv_heads, kv_heads) if of_kv else (rows, heads)
                mask = columns.mask()[:, :, columns.first_row:].expand(
                    len(q) if columns.visible.shape[0] > 1 else 1, len(rows), -1, -1)
                sets.append(Columns(
                    _spread(columns.q, rows, heads), _spread(whole(columns.keys), own, total),
                    _spread(whole(columns.values), own, total), _spread(mask, rows, heads),
                    _spread_pooling(columns, columns.pooling, own, total), columns.first_row,
                    columns.reach and _spread_pooling(columns, columns.reach, own, total),
                    columns.bias))
        return sets

    def _call_of(self, part: Part, call: Call) -> Call:
        chosen = None if isinstance(part.mechanism, Full) else call.selection
        return call._replace(selection=chosen)

    def select(self, q: Tensor, k: Tensor, *, scale: float | None = None) -> Any:
        """Return the other mechanism's choice for its heads; None if it makes none."""
        for part in self.parts(q.shape[1], k.shape[1]):
            if part.mechanism is self.other:
                return self.other.select(q[:, part.heads], k[:, part.kv_heads], scale=scale)
        return None

    def check_choice(self, selection: Any, q: Tensor, k: Tensor) -> None:
        """Raise ValueError unless a selection is one of the other mechanism for its heads."""
        for part in self.parts(q.shape[1], k.shape[1]):
            if part.mechanism is self.other:
                self.other.check_choice(selection, q[:, part.heads], k[:, part.kv_heads])
                return
        super().check_choice(selection, q, k)  # all heads are kept: nothing is chosen

    @property
    def causal_scope(self) -> str:
        """The scope of the other mechanism."""
        return self.other.causal_scope

    @property
    def chooses(self) -> bool:
        """Whether the other mechanism chooses tokens with the help of later ones."""
        return self.other.chooses

    @property
    def length_matters(self) -> bool:
        """Whether what the other mechanism reads depends on the length of the text."""
        return self.other.length_matters

    def exact_when(self, length: int) -> bool:
        """Return True if the other mechanism is full attention at this length."""
        return self.other.exact_when(length)


def best_heads(scores: Sequence[Sequence[float]], count: int) -> list[list[int]]:
    """Return the heads with the highest scores, for `kept`.

    Args:
        scores: of each layer and KV head; of two equal ones, the first counts as higher.
        count: how many heads to keep, of all layers together.

    Raises:
        ValueError: if there are not as many heads.
    """
    every = [(-score, layer, head) for layer, row in enumerate(scores)
             for head, score in enumerate(row)]
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= len(every):
        raise ValueError(f"count: got {count!r}, wanted 0 to {len(every)}, the heads that have a "
                         "score")
    kept: list[list[int]] = [[] for _ in scores]
    for _, layer, head in sorted(every)[:count]:
        kept[layer].append(head)
    return [sorted(heads) for heads in kept]


def _index(numbers: list[int]) -> Index:
    """Return an index of these numbers, a slice if they are successive: it copies nothing."""
    first, last = numbers[0], numbers[-1]
    if numbers == list(range(first, last + 1)):
        return slice(first, last + 1)
    with torch.inference_mode(False):  # one made during inference must serve training too
        return torch.tensor(numbers, device="cpu")


def _are_lists(kept: Any) -> bool:
    return isinstance(kept, list | tuple) and len(kept) > 0 and all(
        isinstance(heads, list | tuple) for heads in kept)


def _spread(x: Tensor, heads: list[int], total: int) -> Tensor:
    """(B, n, ...) of some heads -> (B, total, ...): zeros, or False, in all other heads."""
    index = torch.tensor(heads, device=x.device)
    return x.new_zeros(x.shape[0], total, *x.shape[2:]).index_copy(1, index, x)


def _spread_pooling(columns: Columns, weights: Callable[[], Tensor] | None, heads: list[int],
                    total: int) -> Callable[[], Tensor]:
    def pooling() -> Tensor:
        if weights is None:
            length = columns.first_row + columns.q.shape[2]
            return torch.eye(columns.count, length, dtype=columns.q.dtype,
                             device=columns.q.device)[None, None]
        matrix = weights()
        return matrix if matrix.shape[1] == 1 else _spread(matrix, heads, total)

    return pooling
