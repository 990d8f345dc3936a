"""Attention made of your own functions for one head: columns, a table, and a way to attend.

Notebook 03 builds such functions: `cca_columns` returns the keys, the values and the table of
intervals of a head, `by_mask`, `in_tiles` and `by_kernel` attend to them. A subclass of
`OwnAttention` names them, and is then used as any other mechanism: in a model, in `examine`, in
figures. Heads and texts of a batch run one after the other, so it is slower than the package's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from cca_lab.mechanisms.base import Call, Mechanism
from cca_lab.mechanisms.columns import Columns

# Attends with the queries of one head to columns: (q, keys, values, table, scale) -> (L, D)
Rung = Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]


@dataclass(frozen=True, kw_only=True)
class OwnAttention(Mechanism):
    """The base class of a mechanism of your own functions.

    A subclass is a dataclass like every mechanism's: its sizes are fields, `name` is its own, and
    `MECHANISMS[name]` has to be the class before a model can use it. With grouped queries every
    query head has columns of its own. There is no cache: generate with `use_cache=False`.

    Class attributes:
        rungs: the ways to attend by name, which are the backends beside "loops"; "auto" takes the
            first. Without any, `one_head_loops` is all that is needed.
    """

    rungs: ClassVar[dict[str, Rung]] = {}

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.backends = (*cls.rungs, "loops")

    def one_head(self, q: Tensor, k: Tensor, v: Tensor, scale: float
                 ) -> tuple[Tensor, Tensor, Tensor]:
        """Return keys and values of the columns, (N, D), and the table of intervals, (L, n, 2).

        Values have to be linear in v: the package finds what a column is made of with v = 1.
        """
        raise NotImplementedError

    def one_head_loops(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """Return the output of one head, (L, D), row by row; the first rung unless replaced."""
        rung = next(iter(self.rungs.values()))
        return rung(q, *self.one_head(q, k, v, scale), scale)

    def row_by_row(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        """Attend with `one_head_loops`."""
        return _of_heads(lambda q, k, v: self.one_head_loops(q, k, v, call.scale), q, k, v)

    def attention(self, q: Tensor, k: Tensor, v: Tensor, **keywords: Any) -> Tensor:
        """Attend with the rung that `backend` names; arguments as in `Mechanism.attention`."""
        if self.backend == "loops" or not self.rungs:
            return self.loops(q, k, v, **keywords)
        scale = self.call(q, k, v, **keywords).scale
        rung = self.rungs[next(iter(self.rungs)) if self.backend == "auto" else self.backend]
        return _of_heads(lambda q, k, v: rung(q, *self.one_head(q, k, v, scale), scale), q, k, v)

    def columns(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> list[Columns]:
        """Return the columns of all heads, and with v = 1 what each is made of.

        Without `one_head` every row has one column of its own: its output.
        """
        ones = torch.eye(q.shape[2], dtype=v.dtype, device=v.device).expand(*v.shape[:2], -1, -1)
        if not self.rungs:
            own = torch.eye(q.shape[2], dtype=torch.bool, device=q.device)[None, None]
            return [Columns(q, q, self.row_by_row(q, k, v, call), own,
                            pooling=lambda: self.row_by_row(q, k, ones, call))]

        def part(index: int, values: Tensor = v) -> Tensor:
            return _of_heads(lambda q, k, v: self.one_head(q, k, v, call.scale)[index],
                             q, k, values)

        return [Columns(q, part(0), part(1), part(2), pooling=lambda: part(1, ones))]

    def exact_when(self, length: int) -> bool:
        """Return False: a subclass knows better."""
        return False


def _of_heads(function: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return function(q, k, v) of every text and query head, stacked: (B, H, ...)."""
    repeats = q.shape[1] // k.shape[1]
    return torch.stack([
        torch.stack([function(q[b, h], k[b, h // repeats], v[b, h // repeats])
                     for h in range(q.shape[1])]) for b in range(q.shape[0])])
