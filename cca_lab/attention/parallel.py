"""One text over several processes: which tokens each holds, and how rows get to who needs them.

A text of L tokens is cut into contiguous pieces, one for each of R processes ("contiguous"), or 2R
of which process r holds the r-th and the r-th from the end ("zigzag": late rows read more than
early ones, so that this evens the work). `Shards` and `Route` are arithmetic of plain integers;
`fetch` sends rows, by one all-to-all whose transpose carries the gradients, while this process
computes something else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import itemgetter
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.distributed import ProcessGroup

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
        """The pieces of each process; none for one without a token."""
        count = self.ranks if self.balance == "contiguous" else 2 * self.ranks
        cuts = [self.length * piece // count for piece in range(count + 1)]
        every = list(zip(cuts, cuts[1:], strict=False))
        if self.balance == "contiguous":
            return tuple(merged([piece]) for piece in every)
        return tuple(merged([every[rank], every[-1 - rank]]) for rank in range(self.ranks))

    def of(self, rank: int) -> Ranges:
        """Return the pieces of a process; ValueError if there is none of this rank."""
        check_integers(0, rank=rank)
        if rank >= self.ranks:
            raise ValueError(f"rank: got {rank}, wanted 0 to {self.ranks - 1}")
        return self.pieces[rank]

    def tokens(self, rank: int) -> int:
        """Return how many tokens a process holds."""
        return size(self.of(rank))

    def positions(self, rank: int) -> Tensor:
        """Return the positions of a process's tokens in the text, int64 (tokens,)."""
        return torch.tensor([t for start, stop in self.of(rank) for t in range(start, stop)],
                            dtype=torch.int64)

    def piece(self, x: Tensor, rank: int, dim: int) -> Tensor:
        """Return a process's part of a tensor that has the whole text along `dim`."""
        if x.shape[dim] != self.length:
            raise ValueError(f"x: got {x.shape[dim]} entries along dimension {dim}, wanted "
                             f"{self.length}, one for each token of the text")
        return x.index_select(dim, self.positions(rank).to(x.device))

    def joined(self, parts: Sequence[Tensor], dim: int) -> Tensor:
        """Return the tensor of the whole text from those of the processes, in their order."""
        if [part.shape[dim] for part in parts] != [self.tokens(rank) for rank in range(self.ranks)]:
            raise ValueError(f"parts: got {[part.shape[dim] for part in parts]} tokens, wanted "
                             f"{[self.tokens(rank) for rank in range(self.ranks)]}, those of each "
                             "process")
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
    """Return where a range lies among stored ranges; ValueError if not in one piece."""
    before = 0
    for start, stop in ranges:
        if start <= wanted[0] and wanted[1] <= stop:
            return slice(before + wanted[0] - start, before + wanted[1] - start)
        before += stop - start
    raise ValueError(f"wanted: got {wanted}, which is in none of {ranges}")


@dataclass(frozen=True)
class Route:
    """Which rows of a tensor each process of a group holds, and which it wants.

    Attributes:
        have: the rows of each process, disjoint between processes.
        want: the rows that each process asks for; its own among them do not travel.
    """

    have: tuple[Ranges, ...]
    want: tuple[Ranges, ...]

    def travels(self, source: int, target: int) -> Ranges:
        """Return the rows that one process sends to another."""
        return () if source == target else common(self.have[source], self.want[target])

    def received(self, rank: int) -> int:
        """Return how many rows a process receives."""
        return sum(size(self.travels(source, rank)) for source in range(len(self.have)))

    @cached_property
    def rows(self) -> int:
        """How many rows travel in all."""
        return sum(self.received(rank) for rank in range(len(self.have)))


class _Step(torch.autograd.Function):
    """A function of a tensor whose gradient is what another function returns."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forth: Callable[[Tensor], Tensor],
                back: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.back = back
        return forth(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.back(gradient), None, None


def all_to_all(sent: Tensor, incoming: list[int], outgoing: list[int],
               group: ProcessGroup) -> Callable[[], Tensor]:
    """Begin to send rows to each process; the returned function waits for those that arrive.

    An empty tensor leads autograd from the beginning to the end. So in the backward pass, too, what
    is computed between them is computed while the gradient travels the other way.
    """
    under_way: list[Any] = []

    def begin(x: Tensor, incoming: list[int], outgoing: list[int]) -> Tensor:
        x, arriving = x.contiguous(), x.new_empty(sum(incoming), *x.shape[1:])
        work = dist.all_to_all_single(arriving, x, incoming, outgoing, group, async_op=True)
        under_way.extend((x, arriving, work))  # what is sent has to stay in memory, too
        return x.new_empty(0)

    def end(_: Tensor) -> Tensor:
        _, arrived, work = under_way
        under_way.clear()
        work.wait()
        return arrived

    forth, back = (partial(begin, incoming=come, outgoing=go)
                   for come, go in ((incoming, outgoing), (outgoing, incoming)))
    begun = _Step.apply(sent, forth, end)
    return lambda: _Step.apply(begun, end, back)


def fetch(x: Tensor, route: Route, rank: int, group: ProcessGroup) -> Callable[[], Tensor]:
    """Ask for the rows that this process wants; every process of the group has to call it.

    The gradient goes back the way the rows came, summed where a row was sent to several processes.

    Args:
        x: the rows that this process has, (rows, ...), range after range.
        route: who has and who wants which rows; the same in every process.
        rank: of this process in the group.
        group: the processes.

    Returns:
        A function that waits for them and returns (wanted rows, ...), range after range; every
        process has to call it once.
    """
    have, want, ranks = route.have[rank], route.want[rank], range(len(route.have))
    outgoing = [route.travels(rank, target) for target in ranks]
    incoming = [route.travels(source, rank) for source in ranks]
    own, others = common(have, want), [piece for pieces in incoming for piece in pieces]
    if merged([*own, *others]) != merged(want):
        raise ValueError(f"route: process {rank} wants {want}, which the processes do not all have")
    wait: Callable[[], Tensor] = partial(x.narrow, 0, 0, 0)
    if route.rows:  # the same in every process: all call the collective, or none
        sent = [x[place(have, piece)] for pieces in outgoing for piece in pieces]
        wait = all_to_all(torch.cat([x[:0], *sent]), [size(pieces) for pieces in incoming],
                          [size(pieces) for pieces in outgoing], group)

    def rows() -> Tensor:
        arrived = wait()
        held = [(piece, x[place(have, piece)]) for piece in own]
        held += zip(others, arrived.split([stop - start for start, stop in others]), strict=True)
        held.sort(key=itemgetter(0))
        # a process that receives nothing still has to take part in backward
        return torch.cat([x[:0], arrived[:0], *(part for _, part in held)])

    return rows
