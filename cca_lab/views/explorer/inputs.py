"""Where queries, keys and values come from: tensors, or the layers of a model that reads a text."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from cca_lab.attention.arguments import check_qkv
from cca_lab.attention.rotary import Rotation
from cca_lab.mechanisms import Mechanism


class Inputs(NamedTuple):
    """What one layer's attention is given.

    Attributes:
        q: (1, H, L, D), float64.
        k, v: (1, Hk, L, D), float64.
        scale: factor on the dot products; None means D**-0.5.
        rotation: the RoPE tables with which q and k were rotated, or None.
        module: the layer's trained module of the mechanism, or None.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    scale: float | None = None
    rotation: Rotation | None = None
    module: nn.Module | None = None


class Source(Protocol):
    """Something with words, layers and heads.

    Attributes:
        name: of the model; "" without one.
        words: (L,) texts of the tokens.
        layers, heads: how many there are.
    """

    name: str
    words: tuple[str, ...]
    layers: int
    heads: int

    def inputs(self, layer: int, mechanism: Mechanism, everywhere: bool) -> Inputs:
        """Return what a layer's attention is given; `everywhere`: if all layers attend with the mechanism."""
        ...

    def cache_bytes(self, mechanism: Mechanism) -> tuple[int | None, int | None]:
        """Return the bytes of one layer's cache after the text, and of full attention's; None if unknown."""
        ...


@dataclass(eq=False)
class Tensors:
    """A source of given tensors: one layer.

    Args:
        q: (1, H, L, D).
        k: (1, Hk, L, D).
        v: as k; k by default, since no weight depends on the values.
        words: (L,) texts; the numbers 0, 1, ... by default.
        scale: factor on the dot products; None means D**-0.5.

    Raises:
        ValueError: if shapes do not fit together, or for several texts.
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
            raise ValueError(f"q: got a batch of {len(self.q)}, wanted one text, (1, H, L, D); pass q[:1]")
        length, self.heads = self.q.shape[2], self.q.shape[1]
        self.words = tuple(map(str, self.words or range(length)))
        if len(self.words) != length:
            raise ValueError(f"words: got {len(self.words)} for {length} tokens, wanted one for each")
        q, k, v = (x.detach().double() for x in (self.q, self.k, values))
        self._inputs = Inputs(q, k, v, self.scale)

    def inputs(self, layer: int, mechanism: Mechanism, everywhere: bool) -> Inputs:
        """Return the tensors, whatever the mechanism."""
        return self._inputs

    def cache_bytes(self, mechanism: Mechanism) -> tuple[Any, Any]:
        """Return None twice: without a model there is no dtype of a cache."""
        return None, None


def in_double(rotation: Any) -> Rotation | None:
    """Return rotary tables in float64; None without."""
    if rotation is None:
        return None
    cos, sin = (table.detach().to(torch.float64) for table in rotation)
    return cos, sin
