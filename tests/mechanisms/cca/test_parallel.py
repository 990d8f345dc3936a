"""Context-parallel CCA equals CCA in one process, in exactly the bytes of the closed form."""

from concurrent.futures import ThreadPoolExecutor
from time import sleep
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

from cca_lab.attention.parallel import Shards, size
from cca_lab.mechanisms import CCA
from cca_lab.mechanisms.cca import parallel as cca
from cca_lab.mechanisms.cca.groups import pairs
from cca_lab.mechanisms.cca.parallel import Plan, context_parallel_cca
from cca_lab.mechanisms.indices import core_count, first_raw
from tests.mechanisms.cca.campaign import CASES, campaigns, errors
from tests.mutants.parallel import MUTANTS, mutated, unfinished
from tests.processes import run_in_processes

# Sums run in another order: about L rounding errors of the largest term, which is a few units.
TOLERANCES = {torch.float64: 1e-12, torch.float32: 2e-5}
MUTATED = [case for case in CASES if case.length in (37, 97)]


def bytes_of(case, ranks, rank):
    """Return the bytes that a process receives: entries, and its groups' rotary tables."""
    plan = Plan(Shards(case.length, ranks, case.balance), case.group, case.window)
    number = torch.finfo(case.dtype).bits // 8
    core_heads = case.heads if case.per_query_head else case.kv_heads
    found = 2 * case.batch * case.dim * number * (plan.halo.received(rank) * case.kv_heads
                                                  + plan.cores.received(rank) * core_heads)
    return found + case.rotary * 2 * case.dim * number * plan.tables.received(rank)


def everything(group):
    """Return what `campaigns` and `order` find: processes begin once for both."""
    return campaigns(group, CASES, MUTATED, MUTANTS), order(group)


@pytest.fixture(scope="module")
def pair():
    return run_in_processes(2, everything)


def test_processes_attend_as_one(pair):
    """Outputs and gradients of every case, and the bytes; each mutant is found by some case."""
    check_results([campaign for campaign, _ in pair])


@pytest.mark.nightly
def test_four_processes_attend_as_one():
    check_results(run_in_processes(4, campaigns, CASES, MUTATED, MUTANTS))


def check_results(results):
    ranks = len(results)
    for index, case in enumerate(CASES):
        for rank, found in enumerate(results):
            gaps, received = found[""][index]
            assert max(gaps) < TOLERANCES[case.dtype], f"{case}, process {rank}: {gaps}"
            assert received == bytes_of(case, ranks, rank), f"{case}, process {rank}"
    for mutant in MUTANTS:
        worst = max(max(gaps) for found in results for gaps, _ in found[mutant])
        assert worst > 1e-3, f"{mutant}: {worst}"
        outputs = max(gaps[0] for found in results for gaps, _ in found[mutant])
        assert (outputs < 1e-12) == (mutant == "no_way_back")  # only gradients show it


class Link(ProcessGroup):
    """A group whose exchanges take five milliseconds, which pass in a thread before rows travel."""

    def __init__(self, group):
        super().__init__(group.rank(), group.size())
        self.group, self.thread = group, ThreadPoolExecutor(1)

    def all_to_all_single(self, output, input, incoming, outgoing, *_):
        """Begin an exchange, see `torch.distributed.all_to_all_single`."""
        def send():
            sleep(5e-3)
            dist.all_to_all_single(output, input, incoming, outgoing, self.group)

        return SimpleNamespace(wait=self.thread.submit(send).result)

    alltoall_base = all_to_all_single  # its name in older versions of torch


def pairs_of(plan, rank):
    """Return how many query-key pairs the rows of one process score."""
    before = {0: 0} | {end: pairs(end, plan.group, plan.window)
                       for piece in plan.shards.pieces[rank] for end in piece if end}
    return sum(before[stop] - before[start] for start, stop in plan.shards.pieces[rank])


def order(group):
    """Return what happened in which order, right and with each mutant, and errors over a link."""
    torch.use_deterministic_algorithms(True)  # memory holds no numbers until they arrive
    events, begin, attend = {}, dist.all_to_all_single, cca.interval_attention
    for mutant in ("", "waits_at_once"):
        log = events[mutant] = []

        def begins(*args, log=log, **options):
            log.append("begins")
            work = begin(*args, **options)
            return SimpleNamespace(wait=lambda: (log.append("ends"), work.wait()))

        def attends(q, k, *args, log=log, **options):
            log.append("attends")
            k.register_hook(lambda _: log.append("attends"))
            return attend(q, k, *args, **options)

        with (mutated(mutant), patch.object(dist, "all_to_all_single", begins),
              patch.object(cca, "interval_attention", attends)):
            errors(group, MUTATED[0])
    link = Link(group)
    for mutant in ("", "never_waits"):
        with mutated(mutant):
            events[f"error {mutant}"] = errors(link, MUTATED[0])[0]
    for work, _ in unfinished:
        work.wait()
    return events


def test_rows_attend_to_raw_tokens_while_cores_travel(pair):
    """Forward and backward; one mutant waits before it attends, another does not wait at all."""
    halo = ["begins", "ends"]
    for _, found in pair:
        overlapped = ["begins", "attends", "ends"]
        assert found[""] == [*halo, *overlapped, "attends", "attends", *overlapped, *halo]
        assert found["waits_at_once"] != found[""]
        assert max(found["error "]) < 1e-12
        assert any(not gap < 1e-3 for gap in found["error never_waits"])  # or not a number


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_the_closed_forms_count_what_travels(ranks):
    for length in (0, 1, 5, 63, 64, 65, 200, 513):
        for group in (1, 2, 7, 16, 100):
            for window in (1, 3, 16, 64, 300):
                plan = Plan(Shards(length, ranks), group, window)
                for rank, pieces in enumerate(plan.shards.pieces):
                    raw = sum(a - first_raw(a, group, window) for a, b in pieces if a < b)
                    cores = sum(min(a // group, core_count(b, group, window))
                                for a, b in pieces if a < b)
                    assert (plan.halo.received(rank), plan.cores.received(rank)) == (raw, cores)
                    assert raw <= window + group and cores <= length // group
                    assert plan.tables.received(rank) < group


@pytest.mark.parametrize("balance", ["contiguous", "zigzag"])
def test_each_core_is_pooled_once_and_each_token_held_once(balance):
    for length, ranks, group, window in [(37, 4, 4, 5), (3, 4, 2, 1), (200, 7, 16, 3),
                                         (64, 2, 50, 20)]:
        plan = Plan(Shards(length, ranks, balance), group, window)
        tokens = [t for own in plan.shards.pieces for start, stop in own
                  for t in range(start, stop)]
        cores = [p for own in plan.cores.have for start, stop in own for p in range(start, stop)]
        assert sorted(tokens) == list(range(length))
        assert max(map(plan.shards.tokens, range(ranks))) <= -(-length // ranks) + 1
        assert sorted(cores) == list(range(max(0, (length - window) // group)))


def test_zigzag_evens_the_pairs():
    spread = {}
    for balance in ("contiguous", "zigzag"):
        plan = Plan(Shards(2**16, 8, balance), 16, 1024)
        counts = [pairs_of(plan, rank) for rank in range(8)]
        spread[balance] = max(counts) / (sum(counts) / 8)
    assert spread["contiguous"] > 1.4 and spread["zigzag"] < 1.03


def test_shards_cut_and_join():
    x = torch.arange(2 * 11).view(2, 11)
    for balance in ("contiguous", "zigzag"):
        for ranks in (1, 2, 4, 16):
            shards = Shards(11, ranks, balance)
            assert torch.equal(shards.joined([shards.piece(x, rank, 1) for rank in range(ranks)],
                                             1), x)
            assert sum(size(own) for own in shards.pieces) == 11


@pytest.mark.parametrize("arguments, words", [
    ((-1, 2), "length: got -1"), ((4, 0), "ranks: got 0"),
    ((4, 2, "even"), "balance: got 'even', wanted one of"),
])
def test_wrong_shards_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        Shards(*arguments)


def test_sinks_are_refused():
    x = torch.zeros(1, 2, 4, 2)
    with pytest.raises(ValueError, match="sinks: got 4, wanted 0 over several processes"):
        context_parallel_cca(CCA(sinks=4), x, x, x, Shards(4, 2), None)
    with pytest.raises(ValueError, match="proportional: got True, wanted False"):
        context_parallel_cca(CCA(proportional=True), x, x, x, Shards(4, 2), None)


def test_a_part_of_the_wrong_length_is_named():
    with pytest.raises(ValueError, match="x: got 5 entries along dimension 0, wanted 4"):
        Shards(4, 2).piece(torch.zeros(5), 0, 0)
