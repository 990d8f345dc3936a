"""What travels when one text is spread over processes, and how long: `cca-lab study wire`.

Measured in gloo processes of this machine, a layer forward and backward: the largest difference to
one process, the bytes over the loopback interface against the closed forms of
`mechanisms.cca.parallel`, and how much of a slow link's time the local window's work hides. Planned
by the closed forms and by measured rates: a long text on many machines, beside ring attention.
"""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import sleep
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from cca_lab.attention.parallel import BALANCES, Shards, run_in_processes
from cca_lab.files import results_folder
from cca_lab.freed_memory import keep_freed_memory
from cca_lab.mechanisms import CCA
from cca_lab.mechanisms.cca.groups import pairs
from cca_lab.mechanisms.cca.parallel import (
    Plan,
    Shape,
    context_parallel_cca,
    entries_received,
    pairs_of,
    resident_entries,
    ring_received,
)
from cca_lab.reporting import machine, print_table
from cca_lab.settings import option
from cca_lab.studies.benchmarks.timing import ROUNDS, rotating, seconds, useful_flops
from cca_lab.studies.study import Study

MEASURED = Shape(heads=8, kv_heads=2, head_dim=64, number=4)
PLANNED, LAYERS, GROUP, WINDOW = Shape(), 32, 16, 1024
RATES = "attention-xeon-bfloat16.json"  # the measured rates of the plan, as many bytes a number
COUNTERS = Path("/proc/net/dev")
LATENCY = 1e-3  # seconds that an exchange takes over a link, beside its bytes
PASSES = ("forward", "forward+backward")

Table = tuple[Sequence[str], list[list[str]]]


@dataclass(frozen=True, kw_only=True)
class Wire(Study):
    """Measure what travels when one text is spread over processes, and plan a long text."""

    processes: tuple[int, ...] = option((2, 4), "Number of processes to measure with; repeatable.",
                                        least=1, most=16)
    length: int = option(2**14, "Tokens of the measured text.", least=1, most=2**16)
    group: int = option(16, "Group size.", least=1, most=2**16)
    window: int = option(256, "Local window, in tokens.", least=1, most=2**16)
    rate: tuple[float, ...] = option((2.0, 5.0, 10.0, 20.0), "MB/s of a link that is simulated "
                                     "between two processes; repeatable.", above=0.1, most=1e6)
    rounds: int = option(7, ROUNDS, least=1, most=100)
    tokens: int = option(2**20, "Tokens of the planned text.", least=1, most=2**40)
    ranks: tuple[int, ...] = option((8, 32, 128), "Machines of the plan; repeatable.", least=2,
                                    most=512)
    link: float = option(1250.0, "MB/s of the plan's links.", above=0.0, most=1e6)

    def result(self) -> dict[str, Any]:
        """Measure and plan, a list of rows each."""
        measured = [row for count in self.processes
                    for row in measure(count, self.length, self.group, self.window)]
        hidden = overlap(self.length, self.group, self.window, self.rate, self.rounds)
        rates = measured_rates()
        return {"machine": machine(), "shape": asdict(MEASURED), "length": self.length,
                "group": self.group, "window": self.window, "measured": measured,
                "latency": LATENCY, "rounds": self.rounds, "hidden": hidden,
                "planned_shape": asdict(PLANNED) | {"layers": LAYERS}, "tokens": self.tokens,
                "link": self.link, "rates": rates,
                "planned": plan(self.tokens, self.ranks, self.link, rates)}

    def show(self, result: Mapping[str, Any]) -> None:
        """Print the three tables."""
        print_table("One layer, forward and backward, in processes of this machine",
                    *measured_table(result))
        print_table("One layer in two processes, over a simulated link", *hidden_table(result))
        print_table(f"{result['tokens']} tokens, computed, not measured; the busiest machine",
                    *planned_table(result))


def measured_table(result: Mapping[str, Any]) -> Table:
    """Return the header and the rows of the table of errors and bytes."""
    return (("processes", "pieces", "largest error, float32", "KiB, closed form",
             "KiB on the wire", "KiB, ring"),
            [[str(row["ranks"]), row["balance"], f"{row['error']:.1e}",
              *("-" if size is None else f"{size / 1024:.0f}"
                for size in (row["bytes"], row["wire"], row["ring_bytes"]))]
             for row in result["measured"]])


def hidden_table(result: Mapping[str, Any]) -> Table:
    """Return the header and the rows of the table of what an overlap hides."""
    return (("pass", "MB/s of the link", "ms, cores on the link", "ms, waiting", "ms, overlapping",
             "of the link's time hidden"),
            [[row["pass"], f"{row['rate']:g}",
              *(f"{1e3 * row[name]:.0f}" for name in ("cores", "waiting", "overlapping")),
              f"{100 * row['hidden']:.0f} %"] for row in result["hidden"]])


def planned_table(result: Mapping[str, Any]) -> Table:
    """Return the header and the rows of the table of the plan."""
    return (("machines", "method", "GB of keys and values, forward", "GB, kept for backward",
             "MB received a layer", "10^9 pairs a layer", "s, attention", "s, exchange",
             "s, of it hidden", "min, all layers"),
            [[str(row["ranks"]), row["method"], f"{row['forward_bytes'] / 1e9:.1f}",
              f"{row['backward_bytes'] / 1e9:.1f}", f"{row['bytes'] / 1e6:.0f}",
              f"{row['pairs'] / 1e9:.2f}", f"{row['attention']:.1f}", f"{row['exchange']:.2f}",
              f"{row['hidden']:.2f}", f"{row['total'] / 60:.1f}"] for row in result["planned"]])


def measure(ranks: int, length: int, group: int, window: int) -> list[dict[str, Any]]:
    """Return a row for each way to cut the text: errors, bytes in closed form and on the wire."""
    results = run_in_processes(ranks, _measured, length, group, window)
    rows = []
    for balance in BALANCES:
        plan_ = Plan(Shards(length, ranks, balance), group, window)
        entries = [entries_received(plan_, rank) for rank in range(ranks)]
        wires = [result[balance]["wire"] for result in results]
        ring = sum(ring_received(plan_, rank) for rank in range(ranks))
        rows.append({"ranks": ranks, "balance": balance, "entries": entries,
                     "error": max(result[balance]["error"] for result in results),
                     "bytes": 2 * sum(entries) * MEASURED.entry,  # and the gradients back
                     "wire": None if None in wires else wires[0],
                     "ring_bytes": 3 * ring * MEASURED.entry})
    return rows


def _measured(processes: ProcessGroup, length: int, group: int,
              window: int) -> dict[str, dict[str, Any]]:
    """Measure one process: its largest error, and the bytes on the loopback interface meanwhile."""
    generator = torch.Generator().manual_seed(0)
    mechanism, rank = CCA(group=group, window=window), processes.rank()
    q, k, v, loss = (torch.randn(1, heads, length, MEASURED.head_dim, generator=generator)
                     for heads in (MEASURED.heads, MEASURED.kv_heads, MEASURED.kv_heads,
                                   MEASURED.heads))
    whole = [x.clone().requires_grad_() for x in (q, k, v)]
    expected = mechanism.attention(*whole)
    (expected * loss).sum().backward()
    measured = {}
    for balance in BALANCES:
        shards = Shards(length, processes.size(), balance)
        mine = [shards.piece(x, rank, 2).clone().requires_grad_() for x in (q, k, v)]
        before = _sent()
        output = context_parallel_cca(mechanism, mine[0], mine[1], mine[2], shards, processes)
        (output * shards.piece(loss, rank, 2)).sum().backward()
        sent = _sent()
        errors = [0.0]
        for got, wanted in ((output, expected), *((x.grad, y.grad) for x, y in zip(mine, whole,
                                                                                strict=True))):
            if got is not None and wanted is not None and got.numel():
                errors.append((got - shards.piece(wanted, rank, 2)).abs().amax().item())
        measured[balance] = {"error": max(errors),
                             "wire": None if before is None or sent is None else sent - before}
    return measured


def _sent() -> int | None:
    """Return the bytes that the loopback interface has sent so far, or None if unknown."""
    dist.barrier()
    lines = COUNTERS.read_text().splitlines() if COUNTERS.exists() else []
    sent = [int(line.split(":")[1].split()[8]) for line in lines if line.strip().startswith("lo:")]
    dist.barrier()
    return sent[0] if sent else None


class Link(ProcessGroup):
    """A group whose exchanges take as long as over a slow link, as wide in both directions.

    The time passes in a thread, before the rows travel. So what a process computes until it waits
    hides it, as on a real link.
    """

    def __init__(self, group: ProcessGroup, rate: float, *, waits: bool = False) -> None:
        """Take the processes, the bytes a second, and whether each exchange is waited for."""
        super().__init__(group.rank(), group.size())  # type: ignore[call-arg]  # of two
        self.group, self.rate, self.waits = group, rate, waits
        self.thread = ThreadPoolExecutor(1)

    def all_to_all_single(self, output: Tensor, input: Tensor, incoming: list[int],
                          outgoing: list[int], *_: Any) -> Any:
        """Begin an exchange, see `torch.distributed.all_to_all_single`."""

        def send() -> None:
            sleep(LATENCY + max(output.nbytes, input.nbytes) / self.rate)
            dist.all_to_all_single(output, input, incoming, outgoing, self.group)

        sent = self.thread.submit(send)
        if self.waits:
            sent.result()
        return SimpleNamespace(wait=sent.result)

    alltoall_base: Any = all_to_all_single  # its name in older versions of torch


def overlap(length: int, group: int, window: int, rates: Sequence[float],
            rounds: int) -> list[dict[str, Any]]:
    """Return a row for each pass and rate in MB/s: seconds of a layer that waits, or overlaps."""
    times = run_in_processes(2, _timed, length, group, window, rates, rounds)
    cores, rows = Plan(Shards(length, 2, "zigzag"), group, window).cores, []
    received = max(map(cores.received, range(2))) * MEASURED.entry
    for each in PASSES:
        for rate in rates:
            link = (1 + (each != PASSES[0])) * (LATENCY + received / (1e6 * rate))
            # of each round, the slower process
            waiting, overlapping = (list(map(max, *(process[each, rate, waits]
                                                    for process in times)))
                                    for waits in (True, False))
            hidden = median((slow - fast) / link
                            for slow, fast in zip(waiting, overlapping, strict=True))
            rows.append({"pass": each, "rate": rate, "cores": link, "waiting": median(waiting),
                         "overlapping": median(overlapping), "hidden": hidden})
    return rows


def _timed(processes: ProcessGroup, length: int, group: int, window: int, rates: Sequence[float],
           rounds: int) -> dict[tuple[str, float, bool], list[float]]:
    """Return the seconds of each round for each pass, rate, and whether the process waits."""
    keep_freed_memory()
    mechanism, shards = CCA(group=group, window=window), Shards(length, 2, "zigzag")
    q, k, v = (torch.randn(1, heads, shards.tokens(processes.rank()), MEASURED.head_dim,
                           requires_grad=True)
               for heads in (MEASURED.heads, MEASURED.kv_heads, MEASURED.kv_heads))
    links = {(rate, waits): Link(processes, 1e6 * rate, waits=waits)
             for rate in rates for waits in (True, False)}
    times: dict[tuple[str, float, bool], list[float]] = {
        (each, *link): [] for each in PASSES for link in links}

    def layer(backward: bool, link: Link) -> None:
        with torch.set_grad_enabled(backward):
            output = context_parallel_cca(mechanism, q, k, v, shards, link)
        if backward:
            torch.autograd.grad(output.sum(), (q, k, v))

    for round_, (each, rate, waits) in rotating(list(times), rounds):
        dist.barrier()
        took = seconds(partial(layer, each != PASSES[0], links[rate, waits]))
        if round_ >= 0:
            times[each, rate, waits].append(took)
    return times


def measured_rates() -> dict[str, Any]:
    """Return the useful operations a second of CCA and of full attention, from a committed file."""
    study = json.loads((results_folder() / RATES).read_text(encoding="utf-8"))
    row = max((row for row in study["rows"] if row["implementation"] == "native"
               and row["pass"] == "forward" and row["window"] == WINDOW),
              key=lambda row: row["length"])
    shape = study["shape"]
    cca, full = (useful_flops(pairs(row["length"], group, WINDOW), shape["heads"],
                              shape["head_dim"]) / row[name]
                 for group, name in ((shape["group"], "cca_seconds"), (1, "full_seconds")))
    return {"file": RATES, "cpu": study["machine"]["cpu"], "threads": study["machine"]["threads"],
            "dtype": shape["dtype"], "length": row["length"], "cca": cca, "full": full}


def plan(length: int, ranks: Sequence[int], link: float, rates: Mapping[str, Any],
         shape: Shape = PLANNED) -> list[dict[str, Any]]:
    """Return what a long text costs the busiest of so many machines, in bytes, pairs and seconds.

    Args:
        length: tokens of the text.
        ranks: numbers of machines, each a process, with zigzag pieces.
        link: MB/s that a machine receives.
        rates: operations a second of attention, "cca" and "full".
        shape: of each of the `LAYERS` layers.
    """
    rows: list[dict[str, Any]] = []

    def add(method: str, name: str, scored: int, received: int, *, behind: int, hideable: int,
            forward: int, backward: int) -> None:
        of_pairs, of_entry = (4 * shape.batch * shape.heads * shape.head_dim / rates[name],
                              shape.entry / (1e6 * link))
        attention, exchange = scored * of_pairs, received * of_entry
        hidden = min(hideable * of_entry, behind * of_pairs)
        rows.append({"ranks": count, "method": method, "forward_bytes": forward * shape.entry,
                     "backward_bytes": backward * shape.entry, "bytes": received * shape.entry,
                     "pairs": scored, "attention": attention, "exchange": exchange,
                     "hidden": hidden, "total": LAYERS * (attention + exchange - hidden)})

    for count in ranks:
        cca, full = (Plan(Shards(length, count, "zigzag"), group, WINDOW) for group in (GROUP, 1))
        every = range(count)
        scored, causal = ([pairs_of(each, rank) for rank in every] for each in (cca, full))
        few, many = max(zip(scored, causal, strict=True))
        tokens = max(map(cca.shards.tokens, every))
        resident = max(resident_entries(cca, rank) for rank in every)
        # full attention scores g pairs where CCA scores one, with a core
        add(f"CCA, g {GROUP}, s {WINDOW}", "cca", few,
            max(entries_received(cca, rank) for rank in every),
            behind=few - (many - few) // (GROUP - 1), hideable=max(map(cca.cores.received, every)),
            forward=(LAYERS - 1) * tokens + resident, backward=LAYERS * resident)
        received = max(ring_received(full, rank) for rank in every)
        add("full, ring", "full", max(causal), received, behind=max(causal), hideable=received,
            forward=(LAYERS + 1) * tokens, backward=LAYERS * tokens)
    return rows
