"""Several processes of one group, for tests of what they compute together."""

import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

# after which a collective that some process does not call is an error
PATIENCE = timedelta(seconds=120)


def run_in_processes(ranks: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Call function(group, *arguments) in new processes of one group; return all results.

    Args:
        ranks: how many processes; each computes with one thread.
        function: it has to be importable.
        arguments: they are pickled.

    Raises:
        torch.multiprocessing.ProcessRaisedException: if the function raises in a process.
    """
    with tempfile.TemporaryDirectory() as folder:
        spawn(_process, (ranks, folder, function, arguments), nprocs=ranks)
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=False)
                for rank in range(ranks)]


def _process(rank: int, ranks: int, folder: str, function: Callable[..., Any],
             arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank,
                            world_size=ranks, timeout=PATIENCE)
    try:
        torch.save(function(dist.group.WORLD, *arguments), Path(folder) / f"{rank}.pt")
        dist.barrier()
    finally:
        dist.destroy_process_group()


def run_alone(function: Callable[..., Any]) -> Any:
    """Call function(group) with a group of this process alone, which takes no time to begin."""
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        try:
            return function(dist.group.WORLD)
        finally:
            dist.destroy_process_group()
