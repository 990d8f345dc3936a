"""The weights of GPT-2 models as text: each is a sum of parts of 16 bits a weight, in base64.

    half     a float16
    steps    a whole number from -32767 to 32767, times the step of its block of 128 weights

A model that is saved in float16 is one part, exactly. Another is its rounding to float16 (which
alone changes the second digit of logits), and the rest in steps. A model finetuned from one that
is there already is that one's parts and its difference in steps, which are small.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import GPT2Config, PreTrainedModel

MOST_BYTES = 8_000_000  # of a page
BLOCK = 128         # weights that share a step
LARGEST = 32767     # steps from 0
MOST_ERROR = 4e-6   # of a weight; a model that needs it gets another part of steps
MOST_PARTS = 3      # of one model: a float16 and two residues have more digits than a float32
LAYER = {"norm1": "ln_1", "qkv": "attn.c_attn", "out": "attn.c_proj", "norm2": "ln_2",
         "first": "mlp.c_fc", "second": "mlp.c_proj"}
COMPUTED = {"activation_function": "relu", "tie_word_embeddings": True, "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False}


@dataclass
class Packed:
    """Models in the form that `js/model.js` reads."""

    config: dict[str, Any]  # the sizes that all models share, and the epsilon of their norms
    tensors: list[tuple[str, int]]  # name and number of weights, in the order of the parts
    # base64: 2 bytes a weight, lowest byte first; of steps also a float32 for each block, first
    parts: list[dict[str, str]] = field(default_factory=list)
    # the numbers of a model's parts, and "error", the largest error of a weight
    models: list[dict[str, Any]] = field(default_factory=list)


def pack(models: Sequence[PreTrainedModel], names: Sequence[str]) -> Packed:
    """Return the weights of GPT-2 models of the same sizes, a finetuned one after its base."""
    config, first = sizes(models[0], names[0]), tensors(models[0])
    packed = Packed(config, [(name, tensor.numel()) for name, tensor in first.items()])
    count = sum(size for _, size in packed.tensors)
    # 2 bytes each, and a third more as text
    if (least := count * len(models) * 8 / 3) > MOST_BYTES:
        raise ValueError(
            f"model: {', '.join(names)} would take {least / 1e6:.1f} MB or more, wanted a page of "
            f"at most {MOST_BYTES / 1e6:.0f} MB; give fewer models, or smaller ones")
    sums: list[tuple[list[int], Tensor]] = [([], torch.zeros(count))]
    for model, name in zip(models, names, strict=True):
        if (other := sizes(model, name)) != config:
            raise ValueError(f"model: {name} has {other}, wanted the sizes of {names[0]}, "
                             f"{config}; write two pages")
        weights = torch.cat([tensor.flatten() for tensor in tensors(model).values()])
        sums.append(_add(packed, weights, sums))
    return packed


def _add(packed: Packed, weights: Tensor,
         sums: list[tuple[list[int], Tensor]]) -> tuple[list[int], Tensor]:
    """Add the parts that a model needs to the nearest sum; return its parts and their sum."""
    numbers, total = min(sums, key=lambda known: float((weights - known[1]).abs().sum()))
    numbers = list(numbers)
    while not numbers or (len(numbers) < MOST_PARTS
                          and float((weights - total).abs().max()) > MOST_ERROR):
        part, value = steps(weights - total) if numbers else half(weights)
        numbers.append(len(packed.parts))
        packed.parts.append(part)
        total = total + value  # in float32, as the page adds them
    packed.models.append({"parts": numbers, "error": float((weights - total).abs().max())})
    return numbers, total


def half(x: Tensor) -> tuple[dict[str, str], Tensor]:
    """Return x (n,) as a part of kind half, and the float32 that it stands for."""
    return {"kind": "half", "data": _text(x.half())}, x.half().float()


def steps(x: Tensor) -> tuple[dict[str, str], Tensor]:
    """Return x (n,) as a part of kind steps, and the float32 that it stands for."""
    blocks = torch.nn.functional.pad(x, (0, -len(x) % BLOCK)).view(-1, BLOCK)
    step = (blocks.abs().amax(dim=1, keepdim=True)
            / LARGEST).clamp_min(torch.finfo(torch.float32).tiny)
    counts = (blocks / step).round().clamp(-LARGEST, LARGEST)
    data = {"kind": "steps", "steps": _text(step.flatten()),
            "data": _text(counts.flatten()[: len(x)].short())}
    return data, (counts * step).flatten()[: len(x)]


def _text(x: Tensor) -> str:
    numbers = x.numpy()
    return base64.b64encode(numbers.astype(numbers.dtype.newbyteorder("<")).tobytes()).decode()


def tensors(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return a GPT-2's float32 weights, by the page's names; matrices are (m, n), out = x w^T."""
    state = {name.removeprefix("transformer."): tensor.detach().float()
             for name, tensor in model.state_dict().items()}
    weights = {"tokens": state["wte.weight"], "places": state["wpe.weight"]}
    for layer in range(model.config.n_layer):
        for name, theirs in LAYER.items():
            for kind in ("weight", "bias"):
                tensor = state[f"h.{layer}.{theirs}.{kind}"]  # GPT-2 keeps matrices as (n, m)
                weights[f"blocks.{layer}.{name}.{kind}"] = tensor.T if tensor.dim() == 2 else tensor
    return weights | {"norm.weight": state["ln_f.weight"], "norm.bias": state["ln_f.bias"]}


def sizes(model: PreTrainedModel, name: str) -> dict[str, Any]:
    """Return the sizes of a GPT-2; ValueError for a model that the page cannot compute."""
    config = model.config
    if not isinstance(config, GPT2Config):
        raise ValueError(
            f"model: {name} is a {config.model_type!r}, wanted a GPT-2 as `cca-lab pretrain` makes "
            "it; take data/models/gpt2-mini")
    for option, wanted in COMPUTED.items():
        if (got := getattr(config, option)) != wanted:
            raise ValueError(
                f"model: {name} has {option} = {got!r}, wanted {wanted!r}, as in the models of "
                "`cca-lab pretrain`; take data/models/gpt2-mini")
    if (dim := config.n_embd // config.n_head) % 4:
        raise ValueError(
            f"model: {name} has heads of {dim} numbers, wanted a multiple of 4; train one of "
            "another width")
    return {"layers": config.n_layer, "heads": config.n_head, "width": config.n_embd,
            "inner": config.n_inner or 4 * config.n_embd, "positions": config.n_positions,
            "vocabulary": config.vocab_size, "epsilon": config.layer_norm_epsilon}
