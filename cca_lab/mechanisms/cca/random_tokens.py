"""Random tokens: one token of each older group of g, drawn at random, is kept, the others are dropped. A baseline.

The groups, the local window and so the number of entries are those of CCA-Attention (`cca.py`): row i sees

    one token of each of the n(i) = max(0, floor((i + 1 - s) / g)) oldest groups, and raw tokens [g n(i), i].

A method that chooses or pools with care should beat it at the same g and s.

The tokens are drawn with `seed`: the draw of a group does not depend on the text, the batch, the head or the
length. So every row sees its past only, and a prompt read at once or token by token gives the same result.
One draw from each group, instead of many among all older tokens, keeps the subset fixed as the text grows and
evenly spread over it. There is no paper: the comparison is this lab's.
"""

from dataclasses import dataclass
from random import Random
from typing import ClassVar

import torch
from torch import Tensor

from cca_lab.mechanisms.base import Call
from cca_lab.mechanisms.cca.grouped import Grouped
from cca_lab.mechanisms.cca.groups import core_count, intervals
from cca_lab.mechanisms.columns import Columns
from cca_lab.mechanisms.inputs import check_counts
from cca_lab.mechanisms.masked import attend_loops


@dataclass(frozen=True, kw_only=True)
class RandomTokens(Grouped):
    """One random token of each older group, and raw nearby tokens. Keys keep the positions they were rotated to.

    Attributes:
        seed: of the random draws, 0 or more.
    """

    seed: int = 0

    name: ClassVar[str] = "random_tokens"
    title: ClassVar[str] = "Random tokens"
    paper: ClassVar[str] = "A baseline; no paper"
    sizes: ClassVar[tuple[str, ...]] = ("group", "window", "seed")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(seed=self.seed)

    def row_by_row(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        """Attend to one token of each older group and to raw nearby tokens, row by row: the specification."""
        kept = kept_tokens(q.shape[2] // self.group, self.group, self.seed)

        def seen(b: int, h: int, i: int) -> list[int]:
            n = max(0, (i + 1 - self.window) // self.group)              # groups older than the window
            return kept[:n] + list(range(self.group * n, i + 1))

        return attend_loops(q, k, v, seen, call.scale)

    def columns(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> list[Columns]:
        """Return one part: the C kept tokens, then all raw ones, (B, Hk, C + L, D), with CCA-Attention's intervals."""
        length = q.shape[2]
        kept = kept_tokens(core_count(length, self.group, self.window), self.group, self.seed)
        keys, values = (torch.cat([x[:, :, kept], x], dim=2) for x in (k, v))

        def pooling() -> Tensor:
            tokens = torch.eye(length, dtype=q.dtype, device=q.device)
            return torch.cat([tokens[kept], tokens])[None, None]

        return [Columns(q, keys, values, intervals(length, self.group, self.window, q.device), pooling)]


def kept_tokens(count: int, group: int, seed: int) -> list[int]:
    """Return the kept token of each of the first `count` groups; a larger count only appends more."""
    draw = Random(int(seed))
    return [p * group + draw.randrange(group) for p in range(count)]
