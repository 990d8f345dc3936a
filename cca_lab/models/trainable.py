"""Which weights finetuning trains, and on which tokens."""

import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from cca_lab.models.interface import MODULE

QKV_MODULES = ("q_proj", "k_proj", "v_proj", "c_attn")  # c_attn: GPT-2's three matrices side by side


def mark_trainable(model: PreTrainedModel, strategy: str) -> list[str]:
    """Freeze the weights that the strategy does not train; return the names of those it trains.

    "qkv" trains the three projection matrices and not their biases. In GPT-2 the
    three are the columns of one matrix, which holds nothing else. "compressor"
    trains the module that the mechanism added to each layer, and nothing of the model.

    Raises:
        ValueError: for "compressor" if the mechanism added no module.
    """
    def wanted(name: str) -> bool:
        if strategy == "qkv":
            return name.endswith(tuple(f"{module}.weight" for module in QKV_MODULES))
        if strategy == "compressor":
            return MODULE in name.split(".")
        return strategy == "full"

    trained = []
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(wanted(name))
        if parameter.requires_grad:
            trained.append(name)
    if strategy == "compressor" and not trained:
        raise ValueError("strategy: got 'compressor', but the model's attention has no module of its own to "
                         "train; swap to one that has, such as 'lococo', or choose another strategy")
    return trained


def row_losses(logits: Tensor, input_ids: Tensor, known: Tensor, positions: Tensor | None = None) -> Tensor:
    """Return the summed cross entropy, in nats, of each row's marked tokens, (rows,).

    Args:
        logits: (rows, T, V), those of the tokens at `positions`.
        input_ids: the whole rows, (rows, L).
        known: which tokens are predicted and counted, (rows, L).
        positions: int64 (T,); None means that there are logits for all tokens.
    """
    following, marked = F.pad(input_ids[:, 1:], (0, 1)), F.pad(known[:, 1:], (0, 1))  # of the token after each
    if positions is not None:
        following, marked = following[:, positions], marked[:, positions]
    row, column = marked.nonzero(as_tuple=True)  # (n,) each
    # one row of logits per marked token; the others are not copied
    own = logits.flatten(0, 1).index_select(0, row * logits.shape[1] + column).float()  # (n, V)
    losses = F.cross_entropy(own, following[row, column], reduction="none")
    return losses.new_zeros(len(input_ids)).index_add(0, row, losses)
