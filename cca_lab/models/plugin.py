"""Swap a transformers model's attention for one of the lab's, restore it, and read its maps."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedConfig, PreTrainedModel

from cca_lab.mechanisms import MECHANISMS, Full, Mechanism, class_of, mechanism_of
from cca_lab.mechanisms.caching.base import CHOICE, IMPLEMENTATION, CacheSizes, mechanism_in
from cca_lab.models.context import check_context, install
from cca_lab.models.inputs import check_length, check_model, check_token_ids
from cca_lab.models.interface import MODULE, attention_hook, input_hook, model_hook

FAMILIES = ("gpt2", "opt", "llama", "qwen2")
STATE = "_cca_lab_swap"


@dataclass
class Swap:
    """What is needed to restore a swapped model."""

    previous: str  # transformers' name of the original attention
    handles: list[RemovableHandle]


def swap_attention(model: PreTrainedModel, mechanism: Mechanism | str, *,
                   context_parallel: ProcessGroup | None = None, **options: Any) -> PreTrainedModel:
    """Make a model attend with a mechanism of the lab, in place.

    Padding to the left or right of the text is supported: groups begin at the first real token of
    each row. Generation needs the mechanism's cache, for CCA
    `generate(..., past_key_values=CCACache(model))`. `output_attentions=True` returns the effective
    attention (B, H, L, L) of each layer, without gradient. The cos/sin tables and the scale of the
    logits are the model's own. Attention dropout is not supported: see `disable_attention_dropout`.

    A mechanism with weights gets a new module in each attention layer, in the layer's dtype and on
    its device, initialised at random (`torch.manual_seed`). Modules that are there keep their
    weights if they have the shapes that the options ask for; `restore_attention` removes them.

    Args:
        model: a GPT-2, OPT, Llama or Qwen2 model of transformers.
        mechanism: such as `CCA(group=16, window=256)`, or its name and, as further arguments, its
            options: "cca", group=16, window=256. `Full()` or "full" restores the original
            attention.
        context_parallel: processes that share each text, each with a part of its tokens ("cca"
            only): call the model with `local_inputs(model, input_ids)` in each of them.
        options: options of a mechanism given by its name; those left out keep their defaults.

    Returns:
        The same model.

    Raises:
        ValueError: for another model, an unknown mechanism, or an option that the mechanism does
            not take.
    """
    chosen = checked_choice(mechanism, options)
    check_context(chosen, context_parallel)
    if chosen.name == "full":
        return restore_attention(model)
    check_family(model)
    sizes = CacheSizes.of(model.config)
    chosen.check_config(sizes.layers, sizes.kv_heads)
    if getattr(model, STATE, None) is None:
        _give_its_own_config(model)
        handles = [module.register_forward_pre_hook(hook, with_kwargs=True)
                   for module, hook in _hooks(model)]
        setattr(model, STATE, Swap(model.config._attn_implementation, handles))
    setattr(model.config, CHOICE, {"name": chosen.name, **copy.deepcopy(chosen.options())})
    attach_modules(model, chosen)
    install(attention_modules(model), context_parallel)
    model.set_attn_implementation(IMPLEMENTATION)
    return model


def _give_its_own_config(model: PreTrainedModel) -> None:
    """Copy the config, where the choice is written: another model may have been made with it."""
    shared, model.config = model.config, copy.deepcopy(model.config)
    for module in model.modules():
        if getattr(module, "config", None) is shared:
            vars(module)["config"] = model.config


def restore_attention(model: PreTrainedModel) -> PreTrainedModel:
    """Restore the attention that a model had before `swap_attention`, if it was swapped."""
    check_model(model)
    swap: Swap | None = getattr(model, STATE, None)
    if swap is not None:
        for handle in swap.handles:
            handle.remove()
        model.set_attn_implementation(swap.previous)
        delattr(model, STATE)
        attach_modules(model, Full())
        install(attention_modules(model), None)
    if hasattr(model.config, CHOICE):
        delattr(model.config, CHOICE)
    return model


def attach_modules(model: PreTrainedModel, mechanism: Mechanism) -> None:
    """Add a mechanism's trainable module to each attention layer, in place of any other's."""
    for layer in attention_modules(model):
        old, new = getattr(layer, MODULE, None), mechanism.new_module(model.config)
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
    """Return the mechanism's trainable modules by layer number; empty if it has none."""
    return {str(layer.layer_idx): getattr(layer, MODULE) for layer in attention_modules(model)
            if hasattr(layer, MODULE)}


def attention_of(model: PreTrainedModel) -> Mechanism:
    """Return the mechanism that a model attends with; `Full()` for transformers' own attention."""
    check_model(model)
    return copy.deepcopy(mechanism_in(model.config))  # the caller may modify its lists


@contextmanager
def group_size(model: PreTrainedModel, size: Callable[[int], int]) -> Iterator[None]:
    """Map the group size of a model's attention, if it has one, to another within the context.

    A share of the text (LongLoRA's) stays.
    """
    choice = getattr(model.config, CHOICE, {})
    choice = choice.get("others", choice)  # of kept heads
    before = choice.get("group")
    if not isinstance(before, int):
        yield
        return
    try:
        choice["group"] = size(before)
        yield
    finally:
        choice["group"] = before


def disable_attention_dropout(model: PreTrainedModel) -> PreTrainedModel:
    """Set the dropout on attention weights to 0, in modules and config; other dropout stays.

    Training with a mechanism other than full attention requires it; GPT-2's default is 0.1.
    """
    check_model(model)
    for module in attention_modules(model):
        if isinstance(dropout := getattr(module, "attn_dropout", None), nn.Dropout):  # GPT-2
            dropout.p = 0.0
        for attribute in ("attention_dropout", "dropout"):  # Llama and Qwen2, OPT
            if isinstance(getattr(module, attribute, None), float):
                setattr(module, attribute, 0.0)
    for attribute in ("attn_pdrop", "attention_dropout"):
        if hasattr(model.config, attribute):
            setattr(model.config, attribute, 0.0)
    return model


def checked_choice(mechanism: Mechanism | str, options: dict[str, Any]) -> Mechanism:
    """Return the mechanism for a name and options, or raise ValueError naming what is valid."""
    if isinstance(mechanism, Mechanism):
        if options:
            raise ValueError(f"{next(iter(options))}: got it beside a {type(mechanism).__name__}, "
                             "wanted options in the mechanism, or with its name")
        if MECHANISMS.get(mechanism.name) is not type(mechanism):
            raise ValueError(
                f"mechanism: got a {type(mechanism).__name__} called {mechanism.name!r}, wanted a "
                "class of MECHANISMS, by whose name a config finds it; list it there")
        return mechanism
    if mechanism == "full" and options:
        raise ValueError(f"{next(iter(options))}: not an option of 'full', wanted none; the model "
                         "attends itself")
    return mechanism_of(mechanism, options)


def check_family(model: PreTrainedModel) -> None:
    """Raise ValueError unless the model is one whose attention the mechanisms can replace."""
    check_model(model)
    config: PreTrainedConfig = model.config
    if config.model_type not in FAMILIES:
        raise ValueError(f"model: got a {config.model_type!r}, wanted one of {', '.join(FAMILIES)}")
    if getattr(config, "add_cross_attention", False):
        raise ValueError(
            "model: has cross-attention (config.add_cross_attention), wanted a decoder alone")
    if "sliding_attention" in (getattr(config, "layer_types", None) or ()):
        raise ValueError("model: has sliding-window layers of its own (config.layer_types), wanted "
                         "full attention in every layer; load it with use_sliding_window=False")


def attention_modules(model: PreTrainedModel) -> list[nn.Module]:
    """Return the self-attention layers of a model."""
    return [module for module in model.modules()
            if hasattr(module, "layer_idx") and type(module).__name__.endswith("Attention")]


def _hooks(model: PreTrainedModel) -> list[tuple[nn.Module, Callable[..., Any]]]:
    models = [module for module in model.modules() if isinstance(module, PreTrainedModel)]
    return [*((module, model_hook) for module in models), (model, input_hook),
            *((module, attention_hook) for module in attention_modules(model))]


def written_choice(name: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return a mechanism's options, JSON values by name, after checking that it takes them."""
    class_of(name, "attention")
    checked_choice(name, options)
    return options


def attention_maps(model: PreTrainedModel, input_ids: Tensor) -> Tensor:
    """Return how strongly each token attends to each earlier one, in every layer and head.

    With full attention these are the softmax weights; with a mechanism that pools, the effective
    attention E = A P, in which the weight of a pooled token is distributed over its members. Every
    row sums to 1. Needs O(layers H L^2) memory.

    Args:
        model: a causal language model; its attention implementation is restored afterwards.
        input_ids: (L,) or (1, L) token ids.

    Returns:
        (layers, H, L, L) in the model's dtype: [layer, head, row, token].

    Raises:
        ValueError: for several texts, ids outside the model's vocabulary, or a text longer than its
            positions.
    """
    check_model(model)
    check_token_ids(model, "input_ids", input_ids)
    input_ids = input_ids.view(1, -1) if input_ids.ndim == 1 else input_ids
    if input_ids.ndim != 2 or len(input_ids) != 1 or input_ids.numel() == 0:
        raise ValueError(f"input_ids: got shape {tuple(input_ids.shape)}, wanted (L,) or (1, L); "
                         "pass one text at a time")
    check_length(model, "input_ids", input_ids.shape[-1])
    implementation, training = model.config._attn_implementation, model.training
    full = attention_of(model).name == "full"
    try:
        model.eval()
        if full:  # only the eager implementation returns its weights
            model.set_attn_implementation("eager")
        with torch.no_grad():
            outputs = model.base_model(input_ids=input_ids,
                                       attention_mask=torch.ones_like(input_ids), use_cache=False,
                                       output_attentions=True)
    finally:
        model.train(training)
        if full:
            model.set_attn_implementation(implementation)
    return torch.cat(outputs.attentions)  # (layers, H, L, L)
