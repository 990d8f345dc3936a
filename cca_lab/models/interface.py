"""What transformers calls while a lab mechanism is on: one attention function, one mask function, two hooks.

All mechanisms share the registered name; which one runs, and with which options, is
read from the model's config, so models with different choices live side by side.
transformers hands an attention function neither the cache nor the rotary tables nor
the wish for attention maps; the hooks pass these on as keyword arguments.
"""

import inspect
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import causal_mask_function

from cca_lab.caches import CACHES, MechanismCache
from cca_lab.caches.base import CHOICE, IMPLEMENTATION, Rotation, attention_choice
from cca_lab.caches.padding import check_positions, left_padding, roll_rows
from cca_lab.mechanisms import MECHANISMS
from cca_lab.mechanisms.mechanism import EVERY_ROW
from cca_lab.models.inputs import check_forward

CACHE, ROTATION, MAPS = "cca_lab_cache", "cca_lab_rotation", "cca_lab_maps"  # keywords that the hooks add
MODULE = "cca_lab_compressor"  # where an attention layer keeps what its mechanism trains


@torch.compiler.disable(reason="its checks and its plan of blocks read values")
def attention_forward(module: nn.Module, query: Tensor, key: Tensor, value: Tensor,
                      attention_mask: Tensor | None, dropout: float = 0.0, scaling: float | None = None,
                      **kwargs) -> tuple[Tensor, Tensor | None]:
    """Attend with the mechanism named in the model's config; the signature is transformers' own.

    In a compiled model this function runs uncompiled between the graphs.

    Args:
        query: (B, H, T, D).
        key, value: (B, Hk, N, D), already rotated, already passed through the cache.
        attention_mask: (B, tokens), what `padding_mask` returned.
        dropout: 0; these two stand in the order of transformers' sdpa, which others call by position.
        scaling: of the logits, taken as it comes: OPT scales its queries itself and passes 1.

    Returns:
        The output (B, T, H, D), and the effective attention (B, H, T, T) if maps were asked for.
    """
    if CACHE not in kwargs:
        raise ValueError(f"attn_implementation: {IMPLEMENTATION!r} was set by name, wanted "
                         "swap_attention(model, name, ...), which installs what it needs; a model made from "
                         "the config of a swapped one shares its attn_implementation: give each a copy")
    if dropout > 0:
        raise ValueError(f"dropout: got attention dropout {dropout} in training, wanted 0, as pooled "
                         "attention has none; call cca_lab.models.disable_attention_dropout(model)")
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    query, key = query.to(value.dtype), key.to(value.dtype)  # autocast leaves rotated ones in float32
    options = dict(getattr(module.config, CHOICE))
    name, rotation, cache = options.pop("name"), kwargs.get(ROTATION), kwargs[CACHE]
    cached = isinstance(cache, MechanismCache)
    if query.shape[2] != key.shape[2]:
        raise ValueError(_wrong_cache(cache, name))
    past = cache.get_seq_length(module.layer_idx) if cached else 0
    _check_mask(attention_mask, (query.shape[0], past + query.shape[2]))
    if module.layer_idx == 0:
        check_positions(kwargs.get("position_ids"), attention_mask, past)
    if cached:
        attend = partial(_attend_cached, cache, module)
    else:
        compressor = getattr(module, MODULE, None)
        options |= {} if compressor is None else {"compressor": compressor}
        attend = partial(_attend_whole, name, options)
    return attend(query, key, value, attention_mask, scaling, rotation, maps=kwargs.get(MAPS, False))


def _check_mask(mask: Tensor | None, wanted: tuple[int, int]) -> None:
    if mask is not None and tuple(mask.shape) != wanted:
        raise ValueError(f"attention_mask: got shape {tuple(mask.shape)}, wanted {wanted}: 1 at real tokens, "
                         "0 at padding, for cached tokens too; the mechanism decides itself who sees whom")


def _wrong_cache(cache: object, name: str) -> str:
    own = f"past_key_values={CACHES[name].__name__}(model), or " if name in CACHES else ""
    return (f"past_key_values: got {type(cache).__name__}, which knows nothing of {name!r} attention "
            f"(generate() makes one by itself, and with guidance_scale one more for its second text, whatever "
            f"is passed); pass {own}use_cache=False to recompute, which guidance_scale needs")


def _attend_cached(cache: MechanismCache, module: nn.Module, query: Tensor, key: Tensor, value: Tensor,
                   mask: Tensor | None, scale: float, rotation: Rotation | None, *,
                   maps: bool) -> tuple[Tensor, None]:
    if maps:
        raise ValueError("output_attentions: maps need the whole text in one forward, got a cache; call "
                         "attention_maps(model, input_ids), or the model without past_key_values")
    choice = attention_choice(module.config)
    if cache.choice != choice:
        raise ValueError(f"past_key_values: the cache was made for {cache.choice}, the model now uses "
                         f"{choice}; make a new cache")
    layer = cache.layers[module.layer_idx]
    output = layer.attend(query, key, value, scale=scale, rotation=rotation, mask=mask)
    return output.transpose(1, 2), None


def _attend_whole(name: str, options: dict, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None,
                  scale: float, rotation: Rotation | None, *, maps: bool) -> tuple[Tensor, Tensor | None]:
    """Attend within whole rows, each shifted to begin at its first real token."""
    shift = None
    if mask is not None:
        shift = left_padding(mask)  # (B,)
        mechanism = MECHANISMS[name]
        alone = mechanism.causal_scope(**options) != EVERY_ROW or mechanism.length_matters(**options)
        if alone and not mask.all():
            return _attend_each(name, options, query, key, value, mask, shift, scale, rotation, maps=maps)
        shift = shift if shift.any() else None
    if shift is not None:
        query, key, value = (roll_rows(x, shift, 2) for x in (query, key, value))
        rotation = rotation and tuple(roll_rows(t.expand(len(shift), -1, -1), shift, 1) for t in rotation)
    output, weights = _attend(name, options, query, key, value, scale, rotation, maps)
    if shift is not None:
        output = roll_rows(output, -shift, 2)
        weights = None if weights is None else roll_rows(roll_rows(weights, -shift, 2), -shift, 3)
    if weights is not None and mask is not None:
        weights = weights * mask.to(weights)[:, None, :, None]  # a padded row attends to nothing
    return output.transpose(1, 2), weights


def _attend_each(name: str, options: dict, query: Tensor, key: Tensor, value: Tensor, mask: Tensor,
                 first: Tensor, scale: float, rotation: Rotation | None, *,
                 maps: bool) -> tuple[Tensor, Tensor | None]:
    """Attend within each row without its padding: for mechanisms that choose from, or count, all tokens given."""
    outputs, maps_of_rows = [], []
    for row, (start, count) in enumerate(zip(first.tolist(), mask.bool().sum(dim=-1).tolist(), strict=True)):
        own = slice(row, row + 1), slice(None), slice(start, start + count)
        around = start, mask.shape[1] - start - count
        if count == 0:
            outputs.append(torch.zeros_like(query[own[0]]))
            maps_of_rows.append(query.new_zeros(1, query.shape[1], mask.shape[1], mask.shape[1]))
            continue
        tables = rotation and tuple((t if len(t) == 1 else t[own[0]])[:, own[2]] for t in rotation)
        output, weights = _attend(name, options, query[own], key[own], value[own], scale, tables, maps)
        outputs.append(F.pad(output, (0, 0, *around)))
        maps_of_rows.append(weights if weights is None else F.pad(weights, (*around, *around)))
    return torch.cat(outputs).transpose(1, 2), torch.cat(maps_of_rows) if maps else None


def _attend(name: str, options: dict, query: Tensor, key: Tensor, value: Tensor, scale: float,
            rotation: Rotation | None, maps: bool) -> tuple[Tensor, Tensor | None]:
    """Call the mechanism: output (B, H, L, D), and the effective attention (B, H, L, L) if asked for."""
    mechanism = MECHANISMS[name]
    if rotation is not None:
        options = {**options, "rotation": rotation}
    output = mechanism.attention(query, key, value, scale=scale, **options)
    if not maps:
        return output, None
    options = {option: chosen for option, chosen in options.items() if option != "backend"}
    if "values" in inspect.signature(mechanism.effective).parameters:  # what it trains reads the values too
        options["values"] = value
    with torch.no_grad():
        return output, mechanism.effective(query, key, scale=scale, **options)


def padding_mask(*, attention_mask: Tensor | None = None, mask_function=None, **kwargs) -> Tensor | None:
    """Return the (B, tokens) padding mask untouched; transformers' own masks would take O(L^2) memory."""
    # under torch.compile transformers always adds its packed-sequence mask; check_positions covers that case
    if mask_function is not causal_mask_function and not torch.compiler.is_compiling():
        raise ValueError("attention_mask: got a mask that is not plain causal (packed sequences, a sliding "
                         "window or bidirectional attention), wanted causal attention with at most padding")
    return attention_mask


def model_hook(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Before a model's forward: refuse a foreign cache or mask early; pass on the wish for maps."""
    choice = attention_choice(module.config)
    if choice["name"] == "full":
        return args, kwargs
    if torch.jit.is_tracing() or torch.compiler.is_exporting():
        raise ValueError("model: a swapped one cannot be traced or exported, as it plans its blocks from values; "
                         "call it as it is, compile it, or trace it after restore_attention(model)")
    cache = kwargs.get("past_key_values")
    if cache is not None and not isinstance(cache, MechanismCache):
        raise ValueError(_wrong_cache(cache, choice["name"]))
    mask = kwargs.get("attention_mask")
    if mask is not None and getattr(mask, "ndim", 0) != 2:
        raise ValueError(f"attention_mask: got shape {tuple(getattr(mask, 'shape', ()))}, wanted (batch, "
                         "tokens); the mechanism decides itself who sees whom")
    if kwargs.get("output_attentions", getattr(module.config, "output_attentions", False)):
        kwargs[MAPS] = True
    return args, kwargs


def input_hook(module: nn.Module, args: tuple, kwargs: dict) -> None:
    """Before the forward of the model that was swapped: refuse what it cannot read, which torch would not name."""
    if torch.compiler.is_compiling():
        return
    cache = kwargs.get("past_key_values")
    check_forward(module, kwargs.get("input_ids", args[0] if args else None), embeds=kwargs.get("inputs_embeds"),
                  past=cache.get_seq_length() if isinstance(cache, MechanismCache) else 0,
                  positions=kwargs.get("position_ids"), mask=kwargs.get("attention_mask"))


def attention_hook(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Before an attention layer's forward: pass on the cache, told that it will be read, and the rotary tables."""
    kwargs[CACHE] = cache = kwargs.get("past_key_values")
    if isinstance(cache, MechanismCache):
        cache.layers[module.layer_idx].expected = True
    kwargs[ROTATION] = kwargs.get("position_embeddings")
    return args, kwargs


AttentionInterface.register(IMPLEMENTATION, attention_forward)
AttentionMaskInterface.register(IMPLEMENTATION, padding_mask)
