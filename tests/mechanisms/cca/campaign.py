"""What every process of a test computes: many texts, in parts and as a whole."""

from contextlib import contextmanager
from dataclasses import dataclass, replace
from unittest.mock import patch

import torch

from cca_lab.attention import parallel
from cca_lab.attention.parallel import Shards
from cca_lab.mechanisms import CCA
from cca_lab.mechanisms.cca.parallel import context_parallel_cca
from tests.mutants.parallel import mutated


@dataclass(frozen=True)
class Case:
    """One text and one layer."""

    length: int
    group: int
    window: int
    balance: str = "contiguous"
    heads: int = 4
    kv_heads: int = 2
    rotary: bool = False
    pooling: str = "softmax"
    per_query_head: bool = False
    dtype: torch.dtype = torch.float64
    batch: int = 2
    dim: int = 6

    def mechanism(self):
        return CCA(group=self.group, window=self.window, pooling=self.pooling,
                   per_query_head=self.per_query_head)


SMALL = [Case(37, 4, 5), Case(37, 4, 5, rotary=True), Case(40, 1, 3), Case(40, 16, 3),
         Case(40, 50, 3),
         Case(37, 4, 30), Case(97, 7, 60, batch=1, rotary=True),  # windows over several pieces
         Case(1, 2, 1), Case(53, 5, 7, kv_heads=4),
         Case(53, 5, 7, kv_heads=1, per_query_head=True, rotary=True),
         Case(29, 3, 4, pooling="mean", rotary=True), Case(41, 6, 2, pooling="max"),
         Case(131, 16, 20, dtype=torch.float32, rotary=True)]
CASES = [replace(case, balance=balance) for case in SMALL for balance in ("contiguous", "zigzag")]


def text(case):
    """Return q, k, v, the weights of the loss, and rotary tables scaled by a factor or None."""
    generator = torch.Generator().manual_seed(case.length)
    shapes = [(case.batch, heads, case.length, case.dim)
              for heads in (case.heads, case.kv_heads, case.kv_heads, case.heads)]
    q, k, v, loss = (torch.randn(shape, generator=generator,
                                 dtype=torch.float64) for shape in shapes)
    angles = torch.arange(case.length, dtype=torch.float64)[:, None] * torch.tensor([1.0, 0.3,
                                                                                     0.05] * 2)
    tables = (1.25 * angles.cos(), 1.25 * angles.sin()) if case.rotary else None
    return [x.to(case.dtype) for x in (q, k, v,
                                       loss)], tables and tuple(x.to(case.dtype) for x in tables)


def whole(case):
    """Return the output of one process and the gradients of q, k and v."""
    (q, k, v, loss), tables = text(case)
    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    out = case.mechanism().attention(*inputs, rotation=tables)
    (out * loss).sum().backward()
    return out.detach(), *(x.grad for x in inputs)


@contextmanager
def received_bytes():
    """Count what a process receives within the context, forward: a list of bytes."""
    received, send = [], parallel.all_to_all

    def counted(sent, incoming, outgoing, group):
        assert incoming[group.rank()] == outgoing[group.rank()] == 0  # what it has does not travel
        received.append(sum(incoming) * sent.shape[1:].numel() * sent.element_size())
        return send(sent, incoming, outgoing, group)

    with patch.object(parallel, "all_to_all", counted):
        yield received


def errors(group, case):
    """Return the largest differences of output and gradients, and the bytes received."""
    (q, k, v, loss), tables = text(case)
    shards, rank = Shards(case.length, group.size(), case.balance), group.rank()
    inputs = [shards.piece(x, rank, 2).clone().requires_grad_() for x in (q, k, v)]
    own = tables and tuple(shards.piece(table, rank, 0) for table in tables)
    with received_bytes() as received:
        out = context_parallel_cca(case.mechanism(), *inputs, shards, group, rotation=own)
    (out * shards.piece(loss, rank, 2)).sum().backward()
    found = [out.detach(), *(x.grad for x in inputs)]
    gaps = [(one - shards.piece(other, rank, 2)).abs()
            for one, other in zip(found, whole(case), strict=True)]
    return [float(gap.max()) if gap.numel() else 0.0 for gap in gaps], sum(received)


def campaign(group, cases, mutant=""):
    """Return `errors` for each case."""
    torch.use_deterministic_algorithms(True)
    with mutated(mutant):
        return [errors(group, case) for case in cases]


def campaigns(group, cases, mutated_cases, mutants):
    """Return the campaign of the right form under "", and those of mutants under their names."""
    return {"": campaign(group, cases)} | {mutant: campaign(group, mutated_cases, mutant)
                                           for mutant in mutants}
