"""Wrong context-parallel attention: what travels is too little, too much, or does not come back."""

from contextlib import contextmanager
from unittest.mock import patch

import torch

from cca_lab.attention.parallel import fetch, place, size
from cca_lab.mechanisms.cca import parallel as cca


def _in_the_halo(change):
    """A fetch that changes the rows of others that arrive in front of the own ones."""
    def wrong(x, route, rank, group):
        rows, received = fetch(x, route, rank, group), route.received(rank)
        raw = route.want[rank] and x.dim() == 4 and x.shape[1] and route.have[rank] and \
            size(route.have[rank]) == len(x) and route.have[rank][0][0] > route.want[rank][0][0]
        return change(rows, received) if raw and received else rows

    return wrong


def one_token_short(rows, received):
    """The oldest token of the halo is missing: zeros stand in its place."""
    return torch.cat([torch.zeros_like(rows[:1]), rows[1:]])


def no_way_back(rows, received):
    """The gradient of what others sent is dropped."""
    return torch.cat([rows[:received].detach(), rows[received:]])


def cores_of_the_future(start, stop, group, window):
    """Every row of a piece sees all cores that its process fetched."""
    found = right(start, stop, group, window).clone()
    found[..., 0, 1] = found[..., 0, 1].max()
    return found


right = cca.chunk_intervals


@contextmanager
def mutated(name):
    """Compute with a wrong form within the context; "" is the right one."""
    wrong = {"": (), "one_token_short": ("fetch", _in_the_halo(one_token_short)),
             "no_way_back": ("fetch", _in_the_halo(no_way_back)),
             "cores_of_the_future": ("chunk_intervals", cores_of_the_future),
             "own_tokens_only": ("fetch", own_tokens_only)}[name]
    if not wrong:
        yield
        return
    with patch.object(cca, *wrong):
        yield


def own_tokens_only(x, route, rank, group):
    """Each process uses what it has; what would come from others is zero."""
    have, rows = route.have[rank], []
    for start, stop in route.want[rank]:
        for row in range(start, stop):
            known = any(a <= row < b for a, b in have)
            rows.append(x[place(have, (row, row + 1))] if known else x.new_zeros(1, *x.shape[1:]))
    return torch.cat([x[:0], *rows])


MUTANTS = ("one_token_short", "no_way_back", "cores_of_the_future", "own_tokens_only")
