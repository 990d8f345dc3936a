"""What travels when one text is spread over processes: `cca-lab study wire`.

Measured in gloo processes of this machine, a layer forward and backward: the largest difference to
one process, and the bytes over the loopback interface, against the closed forms of
`mechanisms.cca.parallel`. Planned by these: a long text on many GPUs, beside ring attention and
Ulysses.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

from cca_lab.attention.parallel import BALANCES, Shards, run_in_processes
from cca_lab.mechanisms import CCA
from cca_lab.mechanisms.cca.parallel import (
    Plan,
    Shape,
    context_parallel_cca,
    entries_received,
    pairs_of,
    resident_entries,
    ring_received,
    ulysses_bytes,
)
from cca_lab.reporting import machine, print_table
from cca_lab.settings import option
from cca_lab.studies.study import Study

MEASURED = Shape(heads=8, kv_heads=2, head_dim=64, number=4)
PLANNED = Shape()
COUNTERS = Path("/proc/net/dev")
RATE = 400e12  # FLOP/s of attention assumed on one GPU, for the link that hides the traffic


@dataclass(frozen=True, kw_only=True)
class Wire(Study):
    """Count what travels when one text is spread over processes, here and on many GPUs."""

    processes: tuple[int, ...] = option((2, 4), "Number of processes to measure with; repeatable.",
                                        least=1, most=16)
    length: int = option(8192, "Tokens of the measured text.", least=1, most=2**16)
    group: int = option(16, "Group size.", least=1, most=2**16)
    window: int = option(256, "Local window, in tokens.", least=1, most=2**16)
    tokens: int = option(2**20, "Tokens of the planned text.", least=1,
                         most=2**40)
    gpus: int = option(64, "GPUs of the plan.", least=2, most=512)

    def result(self) -> dict[str, Any]:
        """Measure and plan, a list of rows each."""
        measured = [row for count in self.processes
                    for row in measure(count, self.length, self.group, self.window)]
        return {"machine": machine(), "shape": asdict(MEASURED), "length": self.length,
                "group": self.group, "window": self.window, "measured": measured,
                "planned_shape": asdict(PLANNED), "planned_size": (self.tokens, self.gpus),
                "flops": RATE, "planned": plan(self.tokens, self.gpus)}

    def show(self, result: Mapping[str, Any]) -> None:
        """Print both tables."""
        print_table("One layer, forward and backward, in processes of this machine",
                    ("processes", "pieces", "largest error", "KiB received, closed form",
                     "on the wire", "ring"),
                    [(row["ranks"], row["balance"], f"{row['error']:.1e}",
                      f"{row['bytes'] / 1024:.0f}",
                      "-" if row["wire"] is None else f"{row['wire'] / 1024:.0f}",
                      f"{row['ring_bytes'] / 1024:.0f}")
                     for row in result["measured"]])
        tokens, gpus = result["planned_size"]
        print_table(f"{tokens} tokens on {gpus} GPUs, one layer forward, the busiest GPU",
                    ("method", "MB received", "MB of keys and values", "pairs over the mean",
                     "TFLOP", "GB/s to hide"),
                    [(row["method"], f"{row['bytes'] / 1e6:.1f}", f"{row['resident'] / 1e6:.0f}",
                      f"{row['balance']:.2f}", f"{row['flop'] / 1e12:.2f}",
                      f"{row['link'] / 1e9:.2f}")
                     for row in result["planned"]])


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


def plan(length: int, ranks: int, shape: Shape = PLANNED) -> list[dict[str, Any]]:
    """Return what one layer's forward costs the busiest GPU: bytes, pairs, and the link needed."""
    rows, every = [], range(ranks)

    def add(method: str, pairs: list[int], received: int, resident: int) -> None:
        flop = 4 * shape.batch * shape.heads * shape.head_dim * max(pairs)
        rows.append({"method": method, "bytes": received, "resident": resident,
                     "balance": max(pairs) * len(pairs) / sum(pairs), "flop": flop,
                     "link": received * RATE / flop})

    for group, window in ((16, 1024), (16, 4096), (64, 1024)):
        for balance in BALANCES:
            cca = Plan(Shards(length, ranks, balance), group, window)
            add(f"CCA, g {group}, s {window}, {balance}", [pairs_of(cca, rank) for rank in every],
                max(entries_received(cca, rank) for rank in every) * shape.entry,
                max(resident_entries(cca, rank) for rank in every) * shape.entry)
    full = Plan(Shards(length, ranks, "zigzag"), 1, 1)  # every key stays: groups of one token
    causal = [pairs_of(full, rank) for rank in every]
    received = max(ring_received(full, rank) for rank in every) * shape.entry
    add("full, ring, zigzag", causal, received, 2 * length // ranks * shape.entry)
    add("full, keys gathered, zigzag", causal, received, length * shape.entry)
    if shape.heads >= ranks:
        heads, kv_heads = -(-shape.heads // ranks), max(1, shape.kv_heads // ranks)
        add("full, Ulysses", [heads * sum(causal) // shape.heads] * ranks,
            int(ulysses_bytes(length, ranks, shape)),
            2 * length * kv_heads * shape.head_dim * shape.number * shape.batch)
    return rows
