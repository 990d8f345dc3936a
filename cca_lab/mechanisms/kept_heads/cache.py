"""The decode-time cache of kept heads: all tokens for some, the other mechanism's entries else."""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor

from cca_lab.attention.rotary import Rotation
from cca_lab.mechanisms.caching.base import CacheSizes, MechanismCache
from cca_lab.mechanisms.caching.segmented import Segmented
from cca_lab.mechanisms.caching.state import NO_TOKENS, Copies, Draw, State, Stored, in_one_call
from cca_lab.mechanisms.cca.cache import CCACache, MeanPoolingCache, RandomTokensCache
from cca_lab.mechanisms.dga.cache import DGACache
from cca_lab.mechanisms.full import Full
from cca_lab.mechanisms.h2o.cache import H2OCache
from cca_lab.mechanisms.kept_heads.mechanism import KeptHeads, Part
from cca_lab.mechanisms.streaming.cache import LMInfiniteCache, StreamingLLMCache

OTHER_CACHES: dict[str, type[MechanismCache[Any]]] = {cache.mechanism.name: cache for cache in (
    CCACache, DGACache, H2OCache, StreamingLLMCache, LMInfiniteCache, MeanPoolingCache,
    RandomTokensCache)}


class FullState(Segmented):
    """All tokens of some heads of a layer, (B, Hk, t, D): a segment that never closes."""

    key = value = NO_TOKENS

    def fill(self, length: int, heads: int, draw: Draw) -> None:
        """Fill the state as after `length` tokens."""
        self.seen = length
        self.key, self.value = (draw(length) for _ in range(2))


class KeptHeadsState(Stored):
    """A state for the kept heads of a layer, and one for its other heads."""

    def __init__(self, mechanism: KeptHeads) -> None:
        self.mechanism, self.seen, self.buffers = mechanism, 0, Copies()
        self.states: dict[str, State] = {}

    def _state(self, part: Part) -> State:
        name = part.mechanism.name
        if name not in self.states:
            new = FullState if name == Full.name else OTHER_CACHES[name].state
            self.states[name] = new(part.mechanism)
        return self.states[name]

    def step(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float,
             rotation: Rotation | None) -> Tensor:
        """Let each state process its heads of T new tokens, see `State.step`."""
        self.seen += key.shape[2]
        if self.states:
            split = self.mechanism.split(query.shape[1], key.shape[1])
            output = in_one_call([*self.states.values()], query, key, value, scale, rotation,
                                 split.owner, split.heads)
            if output is not None:
                return output
        return self.mechanism.by_parts(query, key, value, lambda part, *tensors: self._state(
            part).step(*tensors, scale=scale, rotation=rotation))

    def tensors(self) -> list[Tensor]:
        """Return all tensors that the states store."""
        return [tensor for state in self.states.values() for tensor in state.tensors()]

    def select(self, rows: Tensor) -> Self:
        """Return a new state with the given batch rows."""
        return self._with({name: state.select(rows) for name, state in self.states.items()})

    def join(self, states: Sequence[Any]) -> list[State]:
        """Return one state for rows of different length if the states of all parts have one."""
        together = {name: state.join([row.states[name] for row in states])
                    for name, state in self.states.items()} if all(
                        row.seen for row in states) else {}
        if not together or max(map(len, together.values())) > 1:
            return list(states)
        return [self._with({name: one for name, (one,) in together.items()})]

    def split(self) -> list[State]:
        """Return a state for each row if those of a part are of different length."""
        parts = {name: state.split() for name, state in self.states.items()}
        rows = [torch.tensor([row], device="cpu")
                for row in range(max(map(len, parts.values()), default=1))]
        return [self._with({name: ones[row] if len(ones) == len(rows) else ones[0].select(only)
                            for name, ones in parts.items()}) for row, only in enumerate(rows)]

    def _with(self, states: dict[str, State]) -> Self:
        new = copy(self)
        new.states, new.seen = states, max((one.seen for one in states.values()), default=0)
        return new

    def fill(self, length: int, heads: int, draw: Draw) -> None:
        """Fill both states as after `length` tokens."""
        self.seen = length
        for part in self.mechanism.parts(heads, draw.heads):
            self._state(part).fill(length, len(part.heads), draw.of(len(part.kv_heads)))


class KeptHeadsCache(MechanismCache[KeptHeads]):
    """The cache for kept heads: `model.generate(ids, past_key_values=KeptHeadsCache(model))`.

    A kept KV head stores every token, another one what its mechanism stores: with k of K KV heads
    kept, k/K of a full cache and (K - k)/K of the other one. Prefill equals decode where it does
    for the other mechanism.
    """

    mechanism = KeptHeads
    state = KeptHeadsState

    @classmethod
    def bytes_of(cls, mechanism: KeptHeads, length: int, sizes: CacheSizes) -> int:
        """Return the bytes of a cache after `length` tokens: those of each layer's parts."""
        total = 0
        for layer in range(sizes.layers):
            for part in mechanism.at_layer(layer).parts(sizes.heads, sizes.kv_heads):
                own = replace(sizes, layers=1, heads=len(part.heads), kv_heads=len(part.kv_heads))
                name = part.mechanism.name
                total += own.entries(length) if name == Full.name else \
                    OTHER_CACHES[name].bytes_of(part.mechanism, length, own)
        return total

