"""Text and parameters both spread over the same processes: context parallelism beside FSDP
(`fully_shard`)."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from cca_lab.mechanisms import CCA
from cca_lab.models import local_inputs, swap_attention
from tests.models.test_context import CONFIGS, gradients, losses, model_of
from tests.processes import run_in_processes

pytestmark = pytest.mark.nightly

LENGTH = 61


def blocks_of(model):
    """The model's layers, whose parameters are gathered one layer at a time."""
    (layers,) = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    return list(layers)


def sharded(group):
    """Return, for each family, the gaps of loss and gradients to one process, and the share of
    parameters held."""
    mesh, found = init_device_mesh("cpu", (dist.get_world_size(),)), []
    for config in CONFIGS:
        ids = torch.randint(97, (2, LENGTH), generator=torch.Generator().manual_seed(1))
        alone = swap_attention(model_of(config), CCA(group=4, window=6))
        given = {"input_ids": ids, "use_cache": False,
                 "shift_labels": F.pad(ids[:, 1:], (0, 1), value=-100)}
        loss, _ = losses(alone, given | {"labels": ids})
        loss.backward()
        model = swap_attention(model_of(config), CCA(group=4, window=6), context_parallel=group)
        for module in (*blocks_of(model), model):
            fully_shard(module, mesh=mesh)
        part, _ = losses(model, local_inputs(model, ids, ids))
        part.backward()
        total = part.detach().clone()
        dist.all_reduce(total, group=group)
        whole = {name: gradient.full_tensor() for name, gradient in gradients(model).items()}
        # FSDP averages, and the shares of a text add up; the mutant takes the average
        right, mutant = (max(float((gradient * factor - gradients(alone)[name]).abs().max())
                             for name, gradient in whole.items()) for factor in (group.size(), 1))
        assert mutant > 1e-3
        held = sum(parameter.to_local().numel() for parameter in model.parameters())
        everything = sum(parameter.numel() for parameter in alone.parameters())
        found.append((max(right, float((total - loss.detach()).abs())), held / everything))
    return found


def test_a_text_and_the_parameters_are_spread_over_the_same_processes():
    for found in run_in_processes(2, sharded):
        for gap, share in found:
            assert gap < 1e-12 and share < 0.55, found
