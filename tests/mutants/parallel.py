"""Wrong context-parallel attention: what travels is too little, too much, or does not come back."""

from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import patch

import torch
import torch.distributed as dist

from cca_lab.attention import parallel
from cca_lab.attention.parallel import fetch, place, size
from cca_lab.mechanisms.cca import parallel as cca


def _in_the_halo(change):
    """A fetch that changes the rows of others that arrive in front of the own ones."""
    def wrong(x, route, rank, group):
        rows, received = fetch(x, route, rank, group)(), route.received(rank)
        raw = route.want[rank] and x.dim() == 4 and x.shape[1] and route.have[rank] and \
            size(route.have[rank]) == len(x) and route.have[rank][0][0] > route.want[rank][0][0]
        return lambda: change(rows, received) if raw and received else rows

    return wrong


def one_token_short(rows, received):
    """The oldest token of the halo is missing: zeros stand in its place."""
    return torch.cat([torch.zeros_like(rows[:1]), rows[1:]])


def no_way_back(rows, received):
    """The gradient of what others sent is dropped."""
    return torch.cat([rows[:received].detach(), rows[received:]])


def cores_of_the_future(start, stop, group, window):
    """Every row of a piece that sees a core sees all that its process fetched."""
    found = right(start, stop, group, window).clone()
    found[..., 1] = found[..., 1].max()
    return found


right = cca.core_intervals


def halves(outs, lses):
    """The raw tokens and the cores weigh as much, however large their sums."""
    return (outs[0] + outs[1]) / 2, lses[0]


def waits_at_once(*arguments):
    """Nothing is computed while rows travel."""
    arrived = send(*arguments)()
    return lambda: arrived


send, begin = parallel.all_to_all, dist.all_to_all_single
unfinished = []  # their memory must stay, as they still write to it


def never_waits(*arguments, **options):
    """What should have arrived is read before it has."""
    if not options:  # the thread of a simulated link
        return begin(*arguments)
    unfinished.append((begin(*arguments, **options), arguments))
    return SimpleNamespace(wait=lambda: None)


@contextmanager
def mutated(name):
    """Compute with a wrong form within the context; "" is the right one."""
    wrong = {"": (), "one_token_short": (cca, "fetch", _in_the_halo(one_token_short)),
             "no_way_back": (cca, "fetch", _in_the_halo(no_way_back)),
             "cores_of_the_future": (cca, "core_intervals", cores_of_the_future),
             "halves": (cca, "merge", halves),
             "own_tokens_only": (cca, "fetch", own_tokens_only),
             "waits_at_once": (parallel, "all_to_all", waits_at_once),
             "never_waits": (dist, "all_to_all_single", never_waits)}[name]
    if not wrong:
        yield
        return
    with patch.object(*wrong):
        yield


def own_tokens_only(x, route, rank, group):
    """Each process uses what it has; what would come from others is zero."""
    have, rows = route.have[rank], []
    for start, stop in route.want[rank]:
        for row in range(start, stop):
            known = any(a <= row < b for a, b in have)
            rows.append(x[place(have, (row, row + 1))] if known else x.new_zeros(1, *x.shape[1:]))
    return lambda: torch.cat([x[:0], *rows])


MUTANTS = ("one_token_short", "no_way_back", "cores_of_the_future", "halves", "own_tokens_only")
