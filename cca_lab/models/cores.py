"""What a core keeps of a document: its weight phi on the answer, and the attention it gets.

A row that attends to token t of a closed group p through the group's core gives it the effective
weight

    E_it = a_ip phi_pt,   a_ip = sum of E_i over the group,   phi_pt = E_it / a_ip

so both factors can be computed from the effective attention of any layer and head. An answer is
found where both are large: the core's key must match the question, and phi must keep the answer.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from cca_lab.mechanisms.indices import core_count
from cca_lab.models.plugin import attention_maps, attention_of
from cca_lab.tasks.mixture import random_windows
from cca_lab.tasks.multi_document_qa import MultiDocumentQA

TINY = 1e-30


@dataclass(frozen=True)
class CoreReading:
    """How the last token of a question attends to a document before the local window.

    The sum of `kept` over a document is document_length / g, its length in groups.
    """

    phi: NDArray[np.float64]  # (offsets, layers, H): mean weight of the answer in its group
    attention: NDArray[np.float64]  # (offsets, layers, H): of its core in the question's row
    kept: NDArray[np.float64]  # (offsets, layers, H, document): mean phi on each of its tokens

    def best_head(self) -> tuple[int, int]:
        """Return (layer, head) with the largest mean effective weight on the answer."""
        weight = (self.phi * self.attention).mean(0)
        layer, head = np.unravel_index(weight.argmax(), weight.shape)
        return int(layer), int(head)


@torch.no_grad()
def core_reading(model: PreTrainedModel, task: MultiDocumentQA, *, length: int, text: Tensor,
                 offsets: int, contexts: int = 4, position: float = 0.5,
                 seed: int = 3) -> CoreReading:
    """Measure what cores keep, and whether the question attends to them, at each offset.

    0, 1, ... `offsets` - 1 tokens drawn from `text` (n,) stand before the documents. There are
    `contexts` questions per offset; the answering document is at `position`, 0 (first) to 1 (last).
    """
    attention: Any = attention_of(model)
    if attention.sinks:
        raise ValueError(f"sinks: got {attention.sinks}, wanted 0; groups are read from token 0 "
                         "on, so measure a model that was swapped without sinks")
    group, window = attention.group, attention.window
    # the answer follows the repeated words
    size, answer_at = task.document_length, task.question_length
    count = task.documents_in(length - offsets + 1)
    readings = []
    for offset in range(offsets):
        generator = torch.Generator().manual_seed(seed)
        drawn = task.batch(contexts, length - offsets + 1, generator, position)
        before = random_windows(text, contexts, offset, generator)
        ids = torch.cat([before, drawn.input_ids], dim=1)  # (contexts, L)
        answer = offset + round(position * (count - 1)) * size + answer_at
        cores = core_count(ids.shape[1], group, window)  # that the last row sees
        closed = cores * group
        for row in ids:
            maps = attention_maps(model, row.to(model.device))
            row_weights = maps[:, :, -1].double().cpu()  # (layers, H, L)
            groups = row_weights[..., :closed].unflatten(-1, (-1, group))
            core = groups.sum(-1, keepdim=True).clamp(min=TINY)  # a_ip
            phi = (groups / core).flatten(-2)  # (layers, H, closed)
            at = torch.arange(closed - offset) % size  # in its document
            kept = phi.new_zeros(*phi.shape[:2], size).index_add(2, at, phi[..., offset:closed])
            kept /= torch.bincount(at, minlength=size)
            readings.append((phi[..., answer], core[..., answer // group, 0], kept))
    return CoreReading(*(torch.stack(factor).unflatten(0, (offsets, contexts)).mean(1).numpy()
                         for factor in zip(*readings, strict=True)))
