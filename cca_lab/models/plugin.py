"""Swap a transformers model's attention for one of the lab's, restore it, and read its maps."""

import copy
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from cca_lab.attention.rotary import rotate
from cca_lab.mechanisms import MECHANISMS, Full, Mechanism, class_of, mechanism_of
from cca_lab.mechanisms.caching.base import (
    CHOICE,
    IMPLEMENTATION,
    CacheSizes,
    MechanismCache,
    has_rotary,
    mechanism_in,
)
from cca_lab.mechanisms.static_cache import StaticCache
from cca_lab.models.context import check_context, install
from cca_lab.models.inputs import check_length, check_model
from cca_lab.models.interface import MODULE, attention_hook, input_hook, model_hook, own_cache

ADVICE = "docs/use/models.md says what fits, and how a family is added"
STATE = "_cca_lab_swap"
STATIC = "_prepare_static_cache"  # what transformers calls for cache_implementation="static"


@dataclass
class Swap:
    """What is needed to restore a swapped model."""

    previous: str  # transformers' name of the original attention
    handles: list[RemovableHandle]


def swap_attention(model: PreTrainedModel, mechanism: Mechanism | str, *,
                   context_parallel: ProcessGroup | None = None, **options: Any) -> PreTrainedModel:
    """Make a model attend with a mechanism of the lab, in place.

    Padding to the left or right of the text is supported: groups begin at the first real token of
    each row. `generate` makes the mechanism's cache, for CCA a `CCACache(model)`, unless one is
    given as `past_key_values`. `output_attentions=True` returns the effective
    attention (B, H, L, L) of each layer, without gradient. The cos/sin tables and the scale of the
    logits are the model's own. Attention dropout is not supported: see `disable_attention_dropout`.

    A mechanism with weights gets a new module in each attention layer, in the layer's dtype and on
    its device, initialised at random (`torch.manual_seed`). Modules that are there keep their
    weights if they have the shapes that the options ask for; `restore_attention` removes them.

    Args:
        model: a causal language model of transformers, such as GPT-2, OPT, Llama, Qwen or Mistral.
        mechanism: such as `CCA(group=16, window=256)`, or its name and, as further arguments, its
            options: "cca", group=16, window=256. `Full()` or "full" restores the original
            attention.
        context_parallel: processes that share each text, each with a part of its tokens ("cca"
            only): call the model with `local_inputs(model, input_ids)` in each of them.
        options: options of a mechanism given by its name; those left out keep their defaults.

    Returns:
        The same model.

    Raises:
        ValueError: for a model whose attention does not fit, an unknown mechanism, or an option
            that the mechanism does not take. The model is then unchanged.
    """
    chosen = checked_choice(mechanism, options)
    check_context(chosen, context_parallel)
    if chosen.name == "full":
        return restore_attention(model)
    check_family(model)
    sizes = CacheSizes.of(model.config)
    chosen.check_config(sizes.layers, sizes.kv_heads)
    modules = _new_modules(model, chosen)  # all that may fail comes before the first change
    if getattr(model, STATE, None) is None:
        _give_its_own_config(model)
        handles = [module.register_forward_pre_hook(hook, with_kwargs=True)
                   for module, hook in _hooks(model)]
        setattr(model, STATE, Swap(model.config._attn_implementation, handles))
        if hasattr(model, "generate"):  # an inner model has none
            vars(model)["generate"] = partial(generate, model)
            vars(model)[STATIC] = partial(static_cache, model)
    setattr(model.config, CHOICE, {"name": chosen.name, **copy.deepcopy(chosen.options())})
    _attach(model, modules)
    install(attention_modules(model), context_parallel)
    model.set_attn_implementation(IMPLEMENTATION)
    return model


@contextmanager
def swapped(model: PreTrainedModel, mechanism: Mechanism | str,
            **options: Any) -> Iterator[PreTrainedModel]:
    """Let a model attend with a mechanism within the context, and as before after it.

    Arguments as in `swap_attention`. What the mechanism before had learnt is put back.
    """
    before, learnt = attention_of(model), _modules(model)
    swap_attention(model, mechanism, **options)
    try:
        yield model
    finally:
        swap_attention(model, before)
        _attach(model, learnt)


def generate(model: PreTrainedModel, inputs: Tensor | None = None,
             generation_config: Any = None, *further: Any, **kwargs: Any) -> Any:
    """Generate as the model's class does, with a cache of the model's mechanism.

    A cache that is given must have read nothing, or the beginning of the text.
    """
    settings = generation_config or model.generation_config
    uses = kwargs.get("use_cache", settings.use_cache) is not False
    named = kwargs.get("cache_implementation", settings.cache_implementation)
    cache = kwargs.get("past_key_values")
    ids = kwargs.get("input_ids", inputs)
    if cache is None and uses and named is None:
        if (cache := own_cache(model, kwargs)) is not None:
            kwargs["past_key_values"] = cache
    elif isinstance(cache, MechanismCache) and ids is not None:
        mask = kwargs.get("attention_mask")
        if mask is None or mask.shape[1] == ids.shape[1]:  # else the new tokens alone are given
            cache.check_text(ids)
    of_class: Any = type(model)  # PreTrainedModel itself does not generate
    return of_class.generate(model, inputs, generation_config, *further, **kwargs)


def static_cache(model: PreTrainedModel, *, cache_implementation: str, max_cache_len: int,
                 **others: Any) -> StaticCache:
    """Return the cache for `generate(cache_implementation="static")`."""
    if cache_implementation != "static":
        raise ValueError(f"cache_implementation: got {cache_implementation!r}, wanted 'static' or "
                         f"none with {mechanism_in(model.config).name!r} attention")
    return StaticCache(model, max_cache_len)


def _give_its_own_config(model: PreTrainedModel) -> None:
    """Copy the config, where the choice is written: another model may have been made with it."""
    own = copy.deepcopy(model.config)
    for module in model.modules():  # an inner model that was swapped before has a config of its own
        if type(getattr(module, "config", None)) is type(own):
            vars(module)["config"] = own


def restore_attention(model: PreTrainedModel) -> PreTrainedModel:
    """Restore the attention that a model had before `swap_attention`, if it was swapped."""
    check_whole(model)
    swap: Swap | None = getattr(model, STATE, None)
    if swap is not None:
        for handle in swap.handles:
            handle.remove()
        model.set_attn_implementation(swap.previous)
        delattr(model, STATE)
        for name in ("generate", STATIC):
            vars(model).pop(name, None)
        _attach(model, _new_modules(model, Full()))
        install(attention_modules(model), None)
    if hasattr(model.config, CHOICE):
        delattr(model.config, CHOICE)
    return model


def check_whole(model: PreTrainedModel) -> None:
    """Raise ValueError unless the model, and no part of it or whole around it, was swapped."""
    check_model(model)
    parts = [module for module in model.modules() if isinstance(module, PreTrainedModel)]
    if any(STATE in vars(part) for part in parts if part is not model):
        raise ValueError("model: a part of it, the inner model, was swapped by itself; call "
                         "restore_attention on that part first, and then swap the whole model")
    if STATE not in vars(model) and mechanism_in(model.config).name != "full" and \
            any(hook is model_hook for hook in model._forward_pre_hooks.values()):
        raise ValueError("model: it is a part of a model that was swapped; swap, restore and save "
                         "that whole model")


def _modules(model: PreTrainedModel) -> list[nn.Module | None]:
    """Return the mechanism's trainable module of each attention layer, None where it has none."""
    return [getattr(layer, MODULE, None) for layer in attention_modules(model)]


def _new_modules(model: PreTrainedModel, mechanism: Mechanism) -> list[nn.Module | None]:
    """Return a module for each attention layer: the present one if its shapes fit, or a new one."""
    modules: list[nn.Module | None] = []
    for layer, old in zip(attention_modules(model), _modules(model), strict=True):
        new = mechanism.new_module(model.config)
        if old is not None and new is not None and shapes(old) == shapes(new):
            new = old
        elif new is not None:
            # quantised weights are integers, or no parameters at all
            floats = (weight for weight in layer.parameters() if weight.is_floating_point())
            like = next(floats, model)
            new = new.to(like.device, like.dtype).train(layer.training)
        modules.append(new)
    return modules


def _attach(model: PreTrainedModel, modules: list[nn.Module | None]) -> None:
    """Give each attention layer its module, in place of any other."""
    for layer, module in zip(attention_modules(model), modules, strict=True):
        if hasattr(layer, MODULE):
            delattr(layer, MODULE)
        if module is not None:
            layer.add_module(MODULE, module)


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
    # that of a layer: an inner model that was swapped by itself has a config of its own
    layer = next(iter(attention_modules(model)), model)
    # the caller may modify its lists
    return copy.deepcopy(mechanism_in(getattr(layer, "config", model.config)))


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
    """Raise ValueError unless a model's attention is such that a mechanism can take its place."""
    check_whole(model)
    if (reason := _unfit(model)) is not None:
        raise ValueError(f"model: got a {model.config.model_type!r}, {reason}; {ADVICE}")


def _unfit(model: PreTrainedModel) -> str | None:
    """Return why the mechanisms do not fit a model's attention, None if they do.

    Only what a mechanism relies on is looked at: each layer calls the attention function that
    transformers registers, on all of its past, with keys that are rotated in all features and in
    every layer alike, or in none.
    """
    config, layers = model.config, attention_modules(model)
    if getattr(config, "add_cross_attention", False) or config.is_encoder_decoder:
        return "which has cross-attention, wanted a decoder alone"
    if len(layers) != getattr(config, "num_hidden_layers", -1):
        return (f"in which {len(layers)} modules are attention layers, wanted one in each of the "
                "config's layers")
    codes = [inspect.unwrap(type(layer).forward).__code__ for layer in layers]
    calls = [set(code.co_names) for code in codes]
    if not all("ALL_ATTENTION_FUNCTIONS" in names for names in calls):
        return "whose layers compute attention themselves, wanted transformers' attention interface"
    if not all(getattr(layer, "is_causal", True) for layer in layers):
        return "which reads later tokens, wanted causal attention"
    if set(getattr(config, "layer_types", None) or ()) - {"full_attention"}:
        return ("which has sliding-window or other layers of its own (config.layer_types), wanted "
                "full attention in every layer, as Qwen2 has with use_sliding_window=False")
    if getattr(config, "attn_logit_softcapping", None) is not None:
        return "which caps its logits (attn_logit_softcapping), wanted a plain softmax"
    if any(hasattr(layer, "sinks") for layer in layers):
        return "whose softmax has a learned sink, wanted a plain softmax"
    if has_rotary(config) and (reason := _misturned(model, layers, calls)) is not None:
        return reason
    if not all("past_key_values" in code.co_varnames for code in codes):
        return "whose layers do not take past_key_values, wanted transformers' call of a cache"
    return None


def _misturned(model: PreTrainedModel, layers: list[nn.Module],
               calls: list[set[str]]) -> str | None:
    """Return in what a model's rotary positions differ from `cca_lab.attention.rotary`'s."""
    rope, config = model.config.rope_parameters or {}, model.config
    of_layers = [*(getattr(config, "no_rope_layers", None) or ()),
                 *(getattr(layer, "use_rope", True) for layer in layers)]
    if not all(of_layers) or any(isinstance(part, dict) for part in rope.values()):
        return "whose layers rotate differently from one another, wanted the same in all"
    if rope.get("partial_rotary_factor", 1) != 1 or hasattr(config, "qk_rope_head_dim"):
        return "which rotates a part of its features, wanted all or none"
    if "mrope_section" in rope:
        return "whose positions have several axes, wanted one"
    turns = [getattr(inspect.getmodule(type(layer)), "apply_rotary_pos_emb", None)
             for layer in layers]
    if None in turns or not all("apply_rotary_pos_emb" in names for names in calls):
        return "which rotates in a way of its own, wanted apply_rotary_pos_emb in every layer"
    x, cos, sin = torch.arange(24.0, device="cpu").view(3, 1, 2, 4).unbind()  # (1, T, D) each
    for turn in dict.fromkeys(turns):
        got = turn(x[:, None], x[:, None], cos, sin)  # type: ignore[misc]  # none is None
        if not all(torch.allclose(y, rotate(x[:, None], cos, sin)) for y in got):
            return "which rotates other pairs of features, wanted feature j with j + D/2"
    return None


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
        ValueError: for several texts, or a text longer than the model's positions.
    """
    check_model(model)
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
