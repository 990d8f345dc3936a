"""What all rows of one layer read under a mechanism: computed once, so that another query is only looked up.

Every number comes from the functions of `mechanisms.columns` and `analysis`; nothing is computed a second way here.
"""

from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from cca_lab.attention import statistics as analysis
from cca_lab.attention.dense import expand_heads
from cca_lab.mechanisms import Full, Mechanism
from cca_lab.mechanisms.columns import Columns, effective, logits, represented
from cca_lab.views.explorer.inputs import Inputs
from cca_lab.views.explorer.kinds import kinds
from cca_lab.views.explorer.state import Column, Numbers, Row


class Reading:
    """The columns of one layer, and the weights of all its rows and heads; each is computed when first asked for.

    Args:
        mechanism: with its options.
        given: queries, keys and values.
        full: full attention's weights for them, if they are known already.

    Raises:
        ValueError: if the mechanism cannot attend with these tensors.
    """

    @torch.no_grad()
    def __init__(self, mechanism: Mechanism, given: Inputs, full: Tensor | None = None) -> None:
        q, k, v, scale, rotation, module = given
        mechanism.effective(q[:, :, :1], k[:, :, :1], v[:, :, :1])  # raises where no effective matrix exists
        self.mechanism, self.given = mechanism, given
        self.selection = mechanism.select(q, k, scale=scale)
        self._frozen: dict[str, Any] = {"scale": scale, "rotation": rotation, "module": module,
                                        "selection": self.selection}
        call = mechanism.call(q, k, v, **self._frozen)
        self.scale = call.scale
        self.parts: list[Columns] = mechanism.columns(q, k, v, call)
        self.full = Full().effective(q, k, scale=scale)[0] if full is None else full
        self._columns = lru_cache(self._columns_of)

    @cached_property
    @torch.no_grad()
    def weights(self) -> Tensor:
        """A, (H, L, C): 0 where a row does not see a column."""
        return logits(self.parts, self.scale).softmax(-1)[0]

    @cached_property
    @torch.no_grad()
    def effective(self) -> Tensor:
        """E = A P, (H, L, L)."""
        return effective(self.parts, self.scale)[0]

    @cached_property
    def seen(self) -> Tensor:
        """Which columns each row sees, bool (H, L, C)."""
        heads, length = self.given.q.shape[1:3]
        return torch.cat([part.mask()[0].expand(heads, length, -1) for part in self.parts], dim=-1)

    @cached_property
    @torch.no_grad()
    def read(self) -> Tensor:
        """Which tokens each row reads, raw or pooled, bool (H, L, L)."""
        if type(self.mechanism).represented is Mechanism.represented:
            return represented(self.parts)[0]
        q, k, v = self.given[:3]  # LoCoCo: a product of weights may underflow, while the token is in its slot
        return self.mechanism.represented(q, k, v, **self._frozen)[0]

    @cached_property
    def kinds(self) -> list[str]:
        """The kind of each column, see `kinds.kinds`."""
        return kinds(self.mechanism, self.parts, self.selection)

    @torch.no_grad()
    def pooling(self, head: int) -> Tensor:
        """Return P of one head, (C, L): the weight of each token in each column."""
        length = self.given.q.shape[2]
        return torch.cat([_pooling_of(part, length, self.given.q.shape[1], head) for part in self.parts])

    def columns(self, head: int) -> tuple[Column, ...]:
        """Return the columns of one head."""
        return self._columns(head)

    def _columns_of(self, head: int) -> tuple[Column, ...]:
        found = []
        for kind, weights in zip(self.kinds, self.pooling(head).double().cpu().numpy(), strict=True):
            tokens = weights.nonzero()[0]
            found.append(Column(kind, tokens, weights[tokens]))
        return tuple(found)

    def row(self, head: int, query: int) -> Row:
        """Return what one query reads in one head."""
        seen = self.seen[head, query].nonzero().flatten()
        own, full = self.effective[head, query], self.full[head, query]
        numbers = Numbers(lost=(full * ~self.read[head, query]).sum().item(),
                          distance=max(0.0, 1 - analysis.overlap(own, full).item()),
                          k90=int(analysis.k90(own)), k90_full=int(analysis.k90(full)),
                          entropy=analysis.entropy(own).item(), entropy_full=analysis.entropy(full).item())
        arrays = [x.double().cpu().numpy() for x in (self.weights[head, query, seen], own, full)]
        return Row(query, seen.cpu().numpy(), arrays[0], arrays[1], arrays[2], numbers)

    def pairs(self, head: int) -> int:
        """Return how many pairs of a query and a column one head scores."""
        return int(self.seen[head].sum())


def _pooling_of(part: Columns, length: int, heads: int, head: int) -> Tensor:
    """Return the rows of P of one part and one query head, (C, L)."""
    if part.pooling is None:
        return torch.eye(part.keys.shape[2], length, dtype=torch.float64)
    pooling = part.pooling()
    return (pooling if pooling.shape[1] == 1 else expand_heads(pooling, heads)[:, head, None])[0, 0].double()
