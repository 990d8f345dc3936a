"""What transformers calls while a mechanism is active: attention, mask function and hooks.

All mechanisms share the registered name; which one runs, and with which options, stands in the
model's config. transformers passes an attention function neither the cache nor the cos/sin tables
nor the request for attention maps; the hooks add these as keyword arguments.
"""

from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.masking_utils import causal_mask_function

from cca_lab.attention.eager import eager
from cca_lab.attention.rotary import Rotation, of_rows
from cca_lab.mechanisms import Mechanism
from cca_lab.mechanisms.base import EVERY_ROW
from cca_lab.mechanisms.caches import CACHES, MechanismCache
from cca_lab.mechanisms.caching.base import IMPLEMENTATION, mechanism_in, mechanism_named_in
from cca_lab.mechanisms.static_cache import StaticCache
from cca_lab.models.context import CONTEXT, context_of
from cca_lab.models.inputs import (
    check_call,
    check_forward,
    check_positions,
    left_padding,
    roll_rows,
)

# keyword arguments that the hooks add
CACHE, ROTATION, MAPS = "cca_lab_cache", "cca_lab_rotation", "cca_lab_maps"
MODULE = "cca_lab_compressor"  # where an attention layer keeps what its mechanism trains

Arguments = tuple[tuple[Any, ...], dict[str, Any]]  # of a module's forward


class AttentionLayer(Protocol):
    """The attributes of a transformers attention layer that are read here."""

    config: PreTrainedConfig
    layer_idx: int


def attention_forward(module: AttentionLayer, query: Tensor, key: Tensor, value: Tensor,
                      attention_mask: Tensor | None, dropout: float = 0.0,
                      scaling: float | None = None, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """Attend as `checked_forward`; in a compiled model, a static cache's next token stays in it."""
    cache = kwargs.get(CACHE)
    if isinstance(cache, StaticCache) and cache.compiles and query.shape[2] == 1 \
            and dropout == 0 and not kwargs.get(MAPS):
        scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
        output = cache.layers[module.layer_idx].read(query, key, value, scaling,
                                                     kwargs.get(ROTATION))
        return output.transpose(1, 2), None
    return checked_forward(module, query, key, value, attention_mask, dropout, scaling, **kwargs)


@eager
def checked_forward(module: AttentionLayer, query: Tensor, key: Tensor, value: Tensor,
                    attention_mask: Tensor | None, dropout: float = 0.0,
                    scaling: float | None = None, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """Attend with the mechanism named in the model's config; the signature is transformers' own.

    Query (B, H, T, D), rotated key and value (B, Hk, N, D) and the mask (B, tokens) become the
    output (B, T, H, D), and the effective attention (B, H, T, T) if maps were asked for. The
    scaling of the logits is used as given: OPT scales its queries itself and passes 1.
    """
    if CACHE not in kwargs:
        raise ValueError(
            f"attn_implementation: {IMPLEMENTATION!r} was set by name, wanted "
            "swap_attention(model, name, ...), which installs what it needs; a model made from the "
            "config of a swapped one shares its attn_implementation: give each a copy")
    if dropout > 0:
        raise ValueError(
            f"dropout: got attention dropout {dropout} in training, wanted 0, as pooled attention "
            "has none; call cca_lab.models.disable_attention_dropout(model)")
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    # autocast leaves rotated q and k in float32
    if query.dtype != value.dtype:
        query, key = query.to(value.dtype), key.to(value.dtype)
    cache, rotation, maps = kwargs[CACHE], kwargs.get(ROTATION), kwargs.get(MAPS, False)
    layer = cache.layers[module.layer_idx] if isinstance(cache, MechanismCache) else None
    if query.shape[2] != key.shape[2]:
        raise ValueError(wrong_cache(cache, mechanism_named_in(module.config).name))
    past = 0 if layer is None else layer.columns
    wanted = query.shape[0], past + query.shape[2]
    check_call(getattr(layer, "longest", wanted[1]), kwargs)
    if attention_mask is not None and attention_mask.shape != wanted:
        raise ValueError(
            f"attention_mask: got shape {tuple(attention_mask.shape)}, wanted {wanted}: 1 at real "
            "tokens, 0 at padding, for cached tokens too; the mechanism decides itself who sees "
            "whom")
    if (context := kwargs.get(CONTEXT)) is not None:
        if layer is not None or maps:
            raise ValueError(
                "context_parallel: got a cache or a request for maps, wanted neither: each process "
                "holds a part of the text; swap_attention(model, ...) without context_parallel "
                "reads it whole")
        output = context.attend(mechanism_named_in(module.config), query, key, value,
                                attention_mask, scaling, rotation)
        return output.transpose(1, 2), None
    if module.layer_idx == 0:
        check_positions(kwargs.get("position_ids"), attention_mask, past)
    if layer is None:
        mechanism = mechanism_named_in(module.config).at_layer(module.layer_idx)
        return _attend_whole(mechanism, getattr(module, MODULE, None), query, key, value,
                             attention_mask, scaling, rotation, maps=maps)
    if maps:
        raise ValueError(
            "output_attentions: maps need the whole text in one forward, got a cache; call "
            "attention_maps(model, input_ids), or the model without past_key_values")
    if not layer.expected:
        raise ValueError("model: a layer attends twice in one forward, which a cache cannot "
                         "follow; pass use_cache=False")
    output = layer.attend(query, key, value, scale=scaling, rotation=rotation, mask=attention_mask)
    return output.transpose(1, 2), None


def wrong_cache(cache: Any, name: str) -> str:
    """Return what is wrong with a cache that is not one of the lab's."""
    kind = f"past_key_values: got {type(cache).__name__}"
    if getattr(cache, "get_seq_length", lambda: 0)():
        return (f"{kind} of tokens that another attention has read, or that prefix tuning made, "
                f"which {name!r} attention cannot read; read the text from its beginning, and for "
                "prefix tuning use another adapter, such as LoRA")
    if name not in CACHES:
        return f"{kind}, and {name!r} attention has no cache; pass use_cache=False to recompute"
    return (f"{kind}, which knows nothing of {name!r} attention; leave it out, or pass "
            f"{CACHES[name].__name__}(model), or use_cache=False to recompute")


def own_cache(model: PreTrainedModel, kwargs: dict[str, Any]) -> MechanismCache[Any] | None:
    """Return a new cache where transformers would make one, or None if there is none to make."""
    name = mechanism_in(model.config).name
    if kwargs.get("past_key_values") is not None or name not in CACHES \
            or context_of(model) is not None:
        return None
    return CACHES[name](model)


def _attend_whole(mechanism: Mechanism, trained: nn.Module | None, query: Tensor, key: Tensor,
                  value: Tensor, mask: Tensor | None, scale: float, rotation: Rotation | None, *,
                  maps: bool) -> tuple[Tensor, Tensor | None]:
    """Attend over the whole sequence, each row shifted to begin at its first real token."""
    shift = None
    if mask is not None:
        shift = left_padding(mask)  # (B,)
        alone = mechanism.causal_scope != EVERY_ROW or mechanism.length_matters
        if alone and not mask.all():
            return _attend_each(mechanism, trained, query, key, value, mask, shift, scale, rotation,
                                maps=maps)
        shift = shift if shift.any() else None
    if shift is not None:
        query, key, value = (roll_rows(x, shift, 2) for x in (query, key, value))
        if rotation is not None:
            cos, sin = (roll_rows(table.expand(len(shift), -1, -1), shift, 1) for table in rotation)
            rotation = cos, sin
    output, weights = _attend(mechanism, trained, query, key, value, scale, rotation, maps)
    if shift is not None:
        output = roll_rows(output, -shift, 2)
        weights = None if weights is None else roll_rows(roll_rows(weights, -shift, 2), -shift, 3)
    if weights is not None and mask is not None:
        weights = weights * mask.to(weights)[:, None, :, None]  # a padded row attends to nothing
    return output.transpose(1, 2), weights


def _attend_each(mechanism: Mechanism, trained: nn.Module | None, query: Tensor, key: Tensor,
                 value: Tensor, mask: Tensor, first: Tensor, scale: float,
                 rotation: Rotation | None, *, maps: bool) -> tuple[Tensor, Tensor | None]:
    """Attend in each row without its padding, for mechanisms that choose among all tokens."""
    outputs, maps_of_rows = [], []
    counts = mask.bool().sum(dim=-1).tolist()
    for row, (start, count) in enumerate(zip(first.tolist(), counts, strict=True)):
        real = slice(row, row + 1), slice(None), slice(start, start + count)
        around = start, mask.shape[1] - start - count
        if count == 0:
            outputs.append(torch.zeros_like(query[real[0]]))
            maps_of_rows.append(query.new_zeros(1, query.shape[1], mask.shape[1], mask.shape[1]))
            continue
        tables = rotation and of_rows(rotation, real[0], real[2])
        output, weights = _attend(mechanism, trained, query[real], key[real], value[real], scale,
                                  tables, maps)
        outputs.append(F.pad(output, (0, 0, *around)))
        if weights is not None:
            maps_of_rows.append(F.pad(weights, (*around, *around)))
    return torch.cat(outputs).transpose(1, 2), torch.cat(maps_of_rows) if maps else None


def _attend(mechanism: Mechanism, trained: nn.Module | None, query: Tensor, key: Tensor,
            value: Tensor, scale: float, rotation: Rotation | None,
            maps: bool) -> tuple[Tensor, Tensor | None]:
    """Return the mechanism's output (B, H, L, D), and its effective attention if asked for."""
    output = mechanism.attention(query, key, value, scale=scale, rotation=rotation, module=trained)
    if not maps:
        return output, None
    with torch.no_grad():
        return output, mechanism.effective(query, key, value, scale=scale, rotation=rotation,
                                           module=trained)


def padding_mask(*, attention_mask: Tensor | None = None, local_size: int | None = None,
                 mask_function: Callable[..., Any] | None = None, q_offset: Any = 0,
                 **kwargs: Any) -> Tensor | None:
    """Return the (B, tokens) padding mask; transformers' own masks would take O(L^2) memory.

    There is none after the prompt with a static cache, which refuses padding: it would grow. What
    is compiled does not look at its numbers.
    """
    # a sliding window (`local_size`) is checked against the text in `check_call`; under
    # torch.compile transformers always adds its packed-sequence mask; check_positions covers that
    if mask_function is not causal_mask_function and local_size is None \
            and not torch.compiler.is_compiling():
        raise ValueError(
            "attention_mask: got a mask that is not plain causal (packed sequences, a sliding "
            "window or bidirectional attention), wanted causal attention with at most padding")
    if not isinstance(q_offset, Tensor):
        return attention_mask
    if attention_mask is not None and not torch.compiler.is_compiling() \
            and not attention_mask.all():
        raise ValueError("attention_mask: got padding behind the prompt of a static cache, wanted "
                         "none; leave cache_implementation out")
    return None


def model_hook(module: PreTrainedModel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """Before a model's forward: reject a wrong cache or mask, pass on the request for maps.

    With `use_cache=True`, as `generate` calls it, and no cache, the model makes its own.
    """
    cache = kwargs.get("past_key_values")
    look_up = cache.mechanism_in if isinstance(cache, StaticCache) else mechanism_in
    mechanism = look_up(module.config)
    if mechanism.name == "full":
        if isinstance(cache, MechanismCache):
            raise ValueError(f"past_key_values: got a {type(cache).__name__}, but the model has "
                             "its own attention now; swap_attention(model, ...), or leave it out")
        return args, kwargs
    tracing = torch.jit.is_tracing()  # type: ignore[attr-defined]  # not in its __all__
    if tracing or torch.compiler.is_exporting():
        raise ValueError(
            "model: a swapped one cannot be traced or exported, as it plans its blocks from "
            "values; call it as it is, compile it, or trace it after restore_attention(model)")
    if kwargs.get("output_attentions", getattr(module.config, "output_attentions", False)):
        kwargs[MAPS] = True
    elif cache is None and kwargs.get("use_cache") and (
            own := own_cache(module, kwargs)) is not None:
        kwargs["past_key_values"] = cache = own
    if cache is not None and not isinstance(cache, MechanismCache):
        raise ValueError(wrong_cache(cache, mechanism.name))
    if cache is not None:
        if kwargs.get("use_cache") is False:
            raise ValueError("past_key_values: got a cache and use_cache=False; give one of them")
        if module.training and module.is_activation_checkpointing:
            raise ValueError("past_key_values: got a cache in training with gradient "
                             "checkpointing, which leaves it empty; call model.eval() to generate")
        cache.begin_forward(module.config, mechanism)
    mask = kwargs.get("attention_mask")
    if isinstance(mask, dict):  # of a static cache, by the kinds of layers, of which there is one
        mask = kwargs["attention_mask"] = mask["full_attention"]
    if mask is not None and mask.ndim != 2:  # OPT computes positions from it first
        raise ValueError(f"attention_mask: got shape {tuple(mask.shape)}, wanted (batch, tokens); "
                         "the mechanism decides itself who sees whom")
    return args, kwargs


def input_hook(module: PreTrainedModel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Before the swapped model's forward: reject inputs of which torch would say nothing."""
    cache, ids = kwargs.get("past_key_values"), kwargs.get("input_ids", args[0] if args else None)
    if torch.compiler.is_compiling():
        if isinstance(cache, StaticCache) and cache.compiles:
            cache.record(ids)
        return
    embeds = kwargs.get("inputs_embeds")
    given = ids if embeds is None else embeds
    past = cache.get_seq_length() if isinstance(cache, MechanismCache) else None
    if isinstance(cache, StaticCache) and given is not None:
        past = cache.progress.longest - given.shape[1]  # at the end, where nothing is checked
    check_forward(module, past=past, given=given, positions=kwargs.get("position_ids"),
                  mask=kwargs.get("attention_mask"))
    if isinstance(cache, MechanismCache):
        cache.record(ids)


def attention_hook(module: AttentionLayer, args: tuple[Any, ...],
                   kwargs: dict[str, Any]) -> Arguments:
    """Before an attention layer's forward: pass on cache (it expects a read now) and tables."""
    kwargs[CACHE] = cache = kwargs.get("past_key_values")
    if isinstance(cache, MechanismCache):
        cache.layers[module.layer_idx].expected = True
    kwargs[ROTATION] = kwargs.get("position_embeddings")
    kwargs[CONTEXT] = vars(module).get(CONTEXT)
    return args, kwargs


AttentionInterface.register(IMPLEMENTATION, attention_forward)
AttentionMaskInterface.register(IMPLEMENTATION, padding_mask)
