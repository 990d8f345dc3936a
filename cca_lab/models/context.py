"""One text over several processes in a model: `swap_attention(..., context_parallel=...)`."""

from typing import Any, Self

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from transformers import PreTrainedModel

from cca_lab.attention.parallel import Shards
from cca_lab.attention.rotary import Rotation
from cca_lab.mechanisms import CCA, Mechanism
from cca_lab.mechanisms.cca.parallel import context_parallel_cca, refuse_sinks

# the attribute of attention layers, and the keyword argument that the hook makes of it
CONTEXT = "cca_lab_context"
IGNORED = -100  # the label of a token whose loss is not counted


class Context:
    """The processes that share each text of a model, and the text that they are reading.

    `shards` are the pieces of the text that the next forward reads, None before `read`.
    """

    def __init__(self, group: ProcessGroup, balance: str = "zigzag") -> None:
        self.group, self.balance = group, balance
        self.shards: Shards | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # a group of processes cannot be copied; copies of a model share it

    def read(self, length: int) -> Tensor:
        """Prepare for a text of `length` tokens; return this process's positions, int64 (T,)."""
        self.shards = Shards(length, self.group.size(), self.balance)
        return self.shards.positions(self.group.rank())

    def attend(self, mechanism: Mechanism, query: Tensor, key: Tensor, value: Tensor,
               mask: Tensor | None, scale: float, rotation: Rotation | None) -> Tensor:
        """Attend to the whole text from this process's tokens: (B, H, T, D) in and out."""
        if self.shards is None:
            raise ValueError("context_parallel: no text was announced, wanted "
                             "model(**local_inputs(model, input_ids))")
        if mask is not None and not mask.all():
            raise ValueError("attention_mask: got padding, wanted none over several processes; "
                             "give texts of one length")
        assert isinstance(mechanism, CCA)  # `install` has made sure
        return context_parallel_cca(mechanism, query, key, value, self.shards, self.group,
                                    scale=scale, rotation=rotation)


def check_context(mechanism: Mechanism, group: ProcessGroup | None) -> None:
    """Raise ValueError unless a mechanism can be spread over processes."""
    if group is not None and not isinstance(mechanism, CCA):
        raise ValueError(f"context_parallel: got it with {mechanism.name!r} attention, wanted "
                         "'cca'; its cores are few enough to be sent to every process")
    if group is not None and isinstance(mechanism, CCA):
        refuse_sinks(mechanism)


def install(layers: list[nn.Module], group: ProcessGroup | None) -> None:
    """Give attention layers a common `Context`, or take it away if there is no group."""
    context = None if group is None else Context(group)
    for layer in layers:
        layer.__dict__.pop(CONTEXT, None)
        if context is not None:
            layer.__dict__[CONTEXT] = context


def context_of(model: PreTrainedModel) -> Context | None:
    """Return what `swap_attention(..., context_parallel=...)` gave a model, None if nothing."""
    return next((module.__dict__[CONTEXT]
                 for module in model.modules() if CONTEXT in module.__dict__), None)


def local_inputs(model: PreTrainedModel, input_ids: Tensor,
                 labels: Tensor | None = None) -> dict[str, Any]:
    """Return the arguments with which this process calls its model: its tokens and their positions.

    With labels, the model returns this process's share of the mean loss of the whole text: the
    shares of all processes add up to it, and so do the gradients (sum them: `all_reduce`, or what
    averages, times the processes).

    Args:
        model: swapped with `context_parallel`.
        input_ids: the whole text, the same in every process of the group, (B, L).
        labels: the same with -100 at tokens whose prediction is not counted, (B, L).

    Returns:
        `input_ids`, `position_ids`, `attention_mask`, `use_cache`, and with labels `labels`,
        `shift_labels` and `num_items_in_batch`.

    Raises:
        ValueError: if the model was not swapped with `context_parallel`.
    """
    context = context_of(model)
    if context is None:
        raise ValueError("model: reads whole texts, wanted one swapped with swap_attention(model, "
                         "CCA(...), context_parallel=group)")
    positions = context.read(input_ids.shape[1]).to(input_ids.device)
    mine = input_ids[:, positions]
    # without it, a jump in positions means packing
    inputs: dict[str, Any] = {"input_ids": mine, "position_ids": positions[None],
                              "use_cache": False, "attention_mask": torch.ones_like(mine)}
    if labels is not None:
        following = F.pad(labels[:, 1:], (0, 1), value=IGNORED)  # what each position predicts
        inputs |= {"labels": labels[:, positions],
                   "shift_labels": following[:, positions].contiguous(),
                   "num_items_in_batch": (following != IGNORED).sum()}
    return inputs


def context_groups(size: int) -> tuple[ProcessGroup | None, int, int]:
    """Divide all processes into groups of `size` neighbours that share texts; all have to call it.

    Returns:
        The group of this process (None for `size` 1), its number, and how many groups there are.
    """
    world = dist.get_world_size() if dist.is_initialized() else 1
    rank = dist.get_rank() if dist.is_initialized() else 0
    if size < 1 or world % size:
        raise ValueError(f"context_parallel: got {size} for {world} process(es), wanted a divisor; "
                         f"start the program with torchrun --nproc_per_node {max(2, size)}")
    if size == 1:
        return None, rank, world
    groups = [dist.new_group(list(range(first, first + size))) for first in range(0, world, size)]
    return groups[rank // size], rank // size, world // size
