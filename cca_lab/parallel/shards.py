"""Which tokens each process holds, and which rows of a sharded tensor have to move.

A text of L tokens is cut into contiguous pieces, one for each of R processes ("contiguous"), or 2R of which process r
holds the r-th and the r-th from the end ("zigzag": late rows read more than early ones, so that this evens the work).
Everything here is arithmetic of plain integers: nothing is sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from cca_lab.settings import check_integers

BALANCES = ("contiguous", "zigzag")

Range = tuple[int, int]  # the tokens, cores or rows [start, stop)
Ranges = tuple[Range, ...]  # disjoint, in order, none of them empty


@dataclass(frozen=True)
class Shards:
    """The pieces of a text that processes hold.

    Attributes:
        length: L, tokens of the text.
        ranks: R, processes.
        balance: "contiguous" or "zigzag".
    """

    length: int
    ranks: int
    balance: str = "contiguous"

    def __post_init__(self) -> None:
        check_integers(0, length=self.length)
        check_integers(1, ranks=self.ranks)
        if self.balance not in BALANCES:
            raise ValueError(f"balance: got {self.balance!r}, wanted one of {', '.join(BALANCES)}")

    @cached_property
    def pieces(self) -> tuple[Ranges, ...]:
        """The pieces of each process; none for a process that has no token, if there are more processes than tokens."""
        count = self.ranks if self.balance == "contiguous" else 2 * self.ranks
        cuts = [self.length * piece // count for piece in range(count + 1)]
        every = list(zip(cuts, cuts[1:], strict=False))
        if self.balance == "contiguous":
            return tuple(merged([piece]) for piece in every)
        return tuple(merged([every[rank], every[-1 - rank]]) for rank in range(self.ranks))

    def tokens(self, rank: int) -> int:
        """Return how many tokens a process holds."""
        return size(self.pieces[rank])

    def positions(self, rank: int) -> Tensor:
        """Return the positions of a process's tokens in the text, int64 (tokens,)."""
        return torch.tensor([t for start, stop in self.pieces[rank] for t in range(start, stop)], dtype=torch.int64)

    def piece(self, x: Tensor, rank: int, dim: int) -> Tensor:
        """Return a process's part of a tensor that has the whole text along `dim`."""
        if x.shape[dim] != self.length:
            raise ValueError(f"x: got {x.shape[dim]} entries along dimension {dim}, wanted {self.length}, one for each "
                             "token of the text")
        return x.index_select(dim, self.positions(rank).to(x.device))

    def joined(self, parts: Sequence[Tensor], dim: int) -> Tensor:
        """Return the tensor of the whole text whose parts the processes hold, in the order of processes."""
        whole = torch.cat(list(parts), dim=dim)
        order = torch.cat([self.positions(rank) for rank in range(self.ranks)])
        return whole.index_select(dim, order.argsort().to(whole.device))


def size(ranges: Ranges) -> int:
    """Return how many numbers are in the ranges."""
    return sum(stop - start for start, stop in ranges)


def merged(ranges: Sequence[Range]) -> Ranges:
    """Return the union of ranges: in order, disjoint, empty ones left out, adjacent ones joined."""
    found: list[Range] = []
    for start, stop in sorted(piece for piece in ranges if piece[0] < piece[1]):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        else:
            found.append((start, stop))
    return tuple(found)


def common(some: Ranges, others: Ranges) -> Ranges:
    """Return the numbers that are in both."""
    return merged([(max(a, c), min(b, d)) for a, b in some for c, d in others])


def place(ranges: Ranges, wanted: Range) -> slice:
    """Return where a range lies among rows that are stored range after range.

    Raises:
        ValueError: if the rows do not hold the whole range in one piece.
    """
    before = 0
    for start, stop in ranges:
        if start <= wanted[0] and wanted[1] <= stop:
            return slice(before + wanted[0] - start, before + wanted[1] - start)
        before += stop - start
    raise ValueError(f"wanted: got {wanted}, which is in none of {ranges}")
