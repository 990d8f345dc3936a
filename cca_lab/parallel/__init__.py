"""One text over several processes: context-parallel CCA-Attention on torch.distributed."""

from cca_lab.parallel.cca import Plan, context_parallel_cca
from cca_lab.parallel.exchange import Route, fetch
from cca_lab.parallel.shards import Shards

__all__ = ["Plan", "Route", "Shards", "context_parallel_cca", "fetch"]
