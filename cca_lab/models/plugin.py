"""Switch the attention of a transformers model to one of the lab's mechanisms, and back."""

import copy
import inspect
import json
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedConfig, PreTrainedModel

from cca_lab.caches.base import CHOICE, IMPLEMENTATION, attention_choice
from cca_lab.mechanisms import MECHANISMS
from cca_lab.mechanisms.mechanism import RUNTIME
from cca_lab.models.inputs import check_model as require_model
from cca_lab.models.interface import MODULE, attention_hook, input_hook, model_hook

FAMILIES = ("gpt2", "opt", "llama", "qwen2")
STATE = "_cca_lab_swap"


@dataclass
class Swap:
    """What a swapped model needs to be restored."""

    previous: str  # transformers' name of the attention that was there
    handles: list[RemovableHandle]


def swap_attention(model: PreTrainedModel, name: str, **options) -> PreTrainedModel:
    """Make a model attend with a mechanism of the lab, in place.

    Padding to the left or right of the text is honoured: groups begin at the first
    real token of each row. Generation needs the mechanism's cache, for CCA
    `generate(..., past_key_values=CCACache(model))`. `output_attentions=True` returns
    the effective attention (B, H, L, L) of each layer, without gradient. Rotary
    tables and the scale of the logits are the model's own. Attention dropout is not
    supported: see `disable_attention_dropout`.

    A mechanism that trains something gets a new module in each attention layer, in the
    layer's dtype, on its device, drawn from torch's random numbers (`torch.manual_seed`).
    Modules that are there already stay, with what they have learnt, if they have the shapes
    that the options ask for; `restore_attention` removes them.

    Args:
        model: GPT-2, OPT, Llama or Qwen2 of transformers.
        name: a key of `cca_lab.mechanisms.MECHANISMS`; "full" restores the original attention.
        options: of the mechanism, such as group=16, window=256 for "cca"; the others keep their defaults.

    Returns:
        The same model.

    Raises:
        ValueError: for another model, an unknown mechanism, or an option that the mechanism does not take.
    """
    choice = checked_choice(name, options)
    if name == "full":
        return restore_attention(model)
    check_model(model)
    if getattr(model, STATE, None) is None:
        handles = [module.register_forward_pre_hook(hook, with_kwargs=True) for module, hook in _hooks(model)]
        setattr(model, STATE, Swap(model.config._attn_implementation, handles))
    setattr(model.config, CHOICE, choice)
    attach_modules(model, choice)
    model.set_attn_implementation(IMPLEMENTATION)
    return model


def restore_attention(model: PreTrainedModel) -> PreTrainedModel:
    """Give a model the attention back that it had before `swap_attention`; without effect if it has it."""
    require_model(model)
    swap: Swap | None = getattr(model, STATE, None)
    if swap is not None:
        for handle in swap.handles:
            handle.remove()
        model.set_attn_implementation(swap.previous)
        delattr(model, STATE)
        attach_modules(model, {"name": "full"})
    if hasattr(model.config, CHOICE):
        delattr(model.config, CHOICE)
    return model


def attach_modules(model: PreTrainedModel, choice: dict) -> None:
    """Give each attention layer the trainable module of a mechanism; take away what does not belong to it."""
    options = {option: value for option, value in choice.items() if option != "name"}
    new_module = MECHANISMS[choice["name"]].new_module
    for layer in attention_modules(model):
        old, new = getattr(layer, MODULE, None), new_module and new_module(model.config, **options)
        if old is not None and new is not None and shapes(old) == shapes(new):
            continue
        if old is not None:
            delattr(layer, MODULE)
        if new is not None:
            like = next(layer.parameters())
            layer.add_module(MODULE, new.to(like.device, like.dtype).train(layer.training))


def shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor that a module stores, by name."""
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


def modules_of(model: PreTrainedModel) -> dict[str, nn.Module]:
    """Return what the mechanism trains, by the layer's number; empty if it trains nothing of its own."""
    return {str(layer.layer_idx): getattr(layer, MODULE) for layer in attention_modules(model)
            if hasattr(layer, MODULE)}


def attention_of(model: PreTrainedModel) -> tuple[str, dict]:
    """Return name and options of the attention a model uses; ("full", {}) for any of transformers' own."""
    require_model(model)
    options = copy.deepcopy(attention_choice(model.config))
    return options.pop("name"), options


@contextmanager
def group_size(model: PreTrainedModel, size: Callable[[int], int]) -> Iterator[None]:
    """Let a model whose attention groups tokens do so in another size for a while; others stay as they are.

    Args:
        model: its size is put back at the end.
        size: from the model's own group size to the one for now.
    """
    choice = getattr(model.config, CHOICE, {})
    own = choice.get("group")
    try:
        if own is not None:
            choice["group"] = size(own)
        yield
    finally:
        if own is not None:
            choice["group"] = own


def disable_attention_dropout(model: PreTrainedModel) -> PreTrainedModel:
    """Set the dropout on attention weights to 0, in the modules and in the config; other dropout stays.

    Training with a mechanism other than full attention requires it; GPT-2's default is 0.1.
    """
    require_model(model)
    for module in attention_modules(model):
        if hasattr(module, "attn_dropout"):  # GPT-2
            module.attn_dropout.p = 0.0
        for attribute in ("attention_dropout", "dropout"):  # Llama and Qwen2, OPT
            if isinstance(getattr(module, attribute, None), float):
                setattr(module, attribute, 0.0)
    for attribute in ("attn_pdrop", "attention_dropout"):
        if hasattr(model.config, attribute):
            setattr(model.config, attribute, 0.0)
    return model


def checked_choice(name: str, options: dict) -> dict:
    """Return {"name": name, **all options}, or raise ValueError naming what is valid."""
    if not isinstance(name, str) or name not in MECHANISMS:
        raise ValueError(f"name: got {name!r}, wanted one of {', '.join(MECHANISMS)}")
    mechanism = MECHANISMS[name]
    parameters = inspect.signature(mechanism.attention).parameters.values()
    valid = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in RUNTIME]
    if name == "full":
        valid = []  # the model's own attention runs, not ours
    unknown = [option for option in options if option not in valid]
    if unknown:
        raise ValueError(f"{unknown[0]}: not an option of {name!r}, wanted {', '.join(valid) or 'none'}")
    try:  # as config.json will hold them: lists in it are nobody else's, NumPy's integers are integers
        options = json.loads(json.dumps({**mechanism.defaults, **options}, default=operator.index))
    except (TypeError, ValueError) as error:
        raise ValueError(f"options: got {options!r}, wanted JSON values: numbers, text, lists ({error})") from error
    probe, tried = torch.zeros(1, 1, 1, 2), dict(options)
    if "triton" in mechanism.rungs and options.get("backend") == "triton":
        tried["backend"] = "dense"  # kernels need a GPU, to which the model may still have to move
    mechanism.attention(probe, probe, probe, **tried)  # raises for a value that is out of range
    return {"name": name, **options}


def check_model(model: PreTrainedModel) -> None:
    """Raise ValueError unless the model is one whose attention the mechanisms can replace."""
    require_model(model)
    config: PreTrainedConfig = model.config
    if config.model_type not in FAMILIES:
        raise ValueError(f"model: got a {config.model_type!r}, wanted one of {', '.join(FAMILIES)}")
    if getattr(config, "add_cross_attention", False):
        raise ValueError("model: has cross-attention (config.add_cross_attention), wanted a decoder alone")
    if "sliding_attention" in (getattr(config, "layer_types", None) or ()):
        raise ValueError("model: has sliding-window layers of its own (config.layer_types), wanted full "
                         "attention in every layer; load it with use_sliding_window=False")


def attention_modules(model: PreTrainedModel) -> list[nn.Module]:
    """Return the self-attention layers of a model."""
    return [m for m in model.modules() if hasattr(m, "layer_idx") and type(m).__name__.endswith("Attention")]


def _hooks(model: PreTrainedModel) -> list[tuple[nn.Module, object]]:
    models = [(module, model_hook) for module in model.modules() if isinstance(module, PreTrainedModel)]
    return [*models, (model, input_hook)] + [(module, attention_hook) for module in attention_modules(model)]
