"""Multi-query associative recall (MQAR): look up the values of many keys in one text.

    k1 v1 k2 v2 ... kn vn  0 0 k2 0 0 0 k1 0 ...        asked at k2: v2, at k1: v1

The text begins with n pairs of a key and its value. In the rest, which is filler, each key comes
once more, as a query; the target there is its value. No value is read after the pairs, so a query
gets no help from another one.

Arora et al., "Zoology: Measuring and Improving Recall in Efficient Language Models", ICLR 2024
(Section 3 and its appendix on the synthetic task); the details are those of the public code,
github.com/HazyResearch/zoology, zoology/data/associative_recall.py (`multiquery_ar`): token 0 is
filler, keys are 1 to V/2 - 1 and values V/2 to V - 1, both drawn without replacement, and query
number i stands at an even distance 2 gap_i after the pairs, where

    P(gap) proportional to (gap + 1)^(a - 1),    gap = 0, 1, ..., (L - 2n)/2 - 1,    a = 0.01,

drawn without replacement in the order of the keys. So most queries come soon after the pairs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

UNASKED = -100  # the target of a token that is no query, which cross entropy ignores
FILLER = 0


@dataclass(frozen=True, kw_only=True)
class MQAR:
    """The settings of the task; the defaults are the shortest texts of Zoology's Figure 2.

    Attributes:
        length: L, tokens in a text; even.
        pairs: n, keys with a value, 1 or more; 4n tokens fit into a text.
        vocabulary: V, tokens of the vocabulary; even, and each half has n besides the filler.
        power: a, which is 1 for evenly distributed queries and smaller for early ones.
        random_filler: put a random token of the whole vocabulary in the place of each filler token.
    """

    length: int = 64
    pairs: int = 4
    vocabulary: int = 8192
    power: float = 0.01
    random_filler: bool = False

    @property
    def gaps(self) -> int:
        """The number of places for a query."""
        return (self.length - 2 * self.pairs) // 2

    def gap_odds(self) -> Tensor:
        """Return the probability of each gap for the first key, (gaps,), which sums to 1."""
        odds = torch.arange(1, self.gaps + 1, dtype=torch.float64) ** (self.power - 1)
        return odds / odds.sum()

    def batch(self, rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw texts: input_ids and targets, both int64 (rows, L).

        A target is the value of the key at a query, and `UNASKED` elsewhere.
        """
        half = self.vocabulary // 2
        keys = 1 + distinct(rows, self.pairs, half - 1, generator)  # (rows, n)
        values = half + distinct(rows, self.pairs, half, generator)  # (rows, n)
        gaps = torch.multinomial(self.gap_odds().expand(rows, -1), self.pairs, generator=generator)
        queries = 2 * self.pairs + 2 * gaps  # (rows, n), their positions
        input_ids = torch.full((rows, self.length), FILLER)
        if self.random_filler:
            input_ids.random_(self.vocabulary, generator=generator)
        input_ids[:, : 2 * self.pairs] = torch.stack([keys, values], dim=-1).flatten(1)
        input_ids.scatter_(1, queries, keys)
        return input_ids, torch.full_like(input_ids, UNASKED).scatter_(1, queries, values)


def distinct(rows: int, count: int, limit: int, generator: torch.Generator) -> Tensor:
    """Draw different integers below `limit` in each row, in random order: int64 (rows, count)."""
    if count**2 > limit:
        return torch.rand(rows, limit, dtype=torch.float64, generator=generator).topk(count).indices
    drawn = torch.randint(limit, (rows, count), generator=generator)
    # rows with a repeat are drawn again: faster than sorting `limit` numbers, and 60 % have none
    while True:
        repeats = (drawn.sort(dim=-1).values.diff(dim=-1) == 0).any(dim=-1)
        if not repeats.any():
            return drawn
        drawn[repeats] = torch.randint(limit, (int(repeats.sum()), count), generator=generator)
