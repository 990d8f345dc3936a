"""Running a function in several processes of this machine, joined by gloo: to try what `torchrun` runs on many."""

import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from cca_lab.settings import check_integers

PATIENCE = timedelta(seconds=120)  # after which a collective that some process does not call is an error


def run_in_processes(ranks: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Call a function in new processes that form one group, and return what each returned.

    Args:
        ranks: how many processes; each computes with one thread.
        function: called as function(group, *arguments); it has to be importable.
        arguments: of the function; they are pickled.

    Returns:
        The results in the order of ranks.

    Raises:
        torch.multiprocessing.ProcessRaisedException: if the function raises in a process.
    """
    check_integers(1, ranks=ranks)
    with tempfile.TemporaryDirectory() as folder:
        spawn(_process, (ranks, folder, function, arguments), nprocs=ranks)
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=False) for rank in range(ranks)]


def _process(rank: int, ranks: int, folder: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks,
                            timeout=PATIENCE)
    try:
        torch.save(function(dist.group.WORLD, *arguments), Path(folder) / f"{rank}.pt")
        dist.barrier()
    finally:
        dist.destroy_process_group()
