"""Fetching rows from the processes that hold them: one all-to-all, and its transpose for the gradients."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from cca_lab.parallel.shards import Ranges, common, merged, place, size


@dataclass(frozen=True)
class Route:
    """Which rows of a tensor that is spread over processes each process holds, and which it wants.

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


def all_to_all(sent: Tensor, incoming: list[int], outgoing: list[int], group: ProcessGroup) -> Tensor:
    """Send rows to each process and return those that arrive from each; the gradient goes the other way."""
    # imported late: it imports Triton, which notebooks set up first
    from torch.distributed._functional_collectives import all_to_all_single_autograd

    return all_to_all_single_autograd(sent, incoming, outgoing, group)


def fetch(x: Tensor, route: Route, rank: int, group: ProcessGroup) -> Tensor:
    """Return the rows that this process wants, its own and those of others; every process of the group has to call it.

    The gradient goes back the way the rows came, and is added up where a row was sent to several processes.

    Args:
        x: the rows that this process has, (rows, ...), range after range.
        route: who has and who wants which rows; the same in every process.
        rank: of this process in the group.
        group: the processes.

    Returns:
        (wanted rows, ...), range after range.
    """
    have, ranks = route.have[rank], range(len(route.have))
    outgoing = [route.travels(rank, target) for target in ranks]
    incoming = [route.travels(source, rank) for source in ranks]
    sent = torch.cat([x[:0], *(x[place(have, piece)] for pieces in outgoing for piece in pieces)])
    arrived = x[:0]
    if route.rows:  # the same in every process: all call the collective, or none
        arrived = all_to_all(sent, [size(pieces) for pieces in incoming], [size(pieces) for pieces in outgoing], group)
    own = common(have, route.want[rank])
    held = [(piece, x[place(have, piece)]) for piece in own]
    lengths = [stop - start for pieces in incoming for start, stop in pieces]
    held += zip((piece for pieces in incoming for piece in pieces), arrived.split(lengths), strict=True)
    held.sort(key=lambda pair: pair[0])
    if merged([piece for piece, _ in held]) != merged(route.want[rank]):
        raise ValueError(f"route: process {rank} wants {route.want[rank]}, which the processes do not all have")
    # a process that receives nothing still has to take part in backward
    return torch.cat([x[:0], arrived[:0], *(rows for _, rows in held)])
