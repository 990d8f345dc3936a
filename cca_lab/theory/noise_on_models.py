"""Figure 3b of DGA on a real model: how far noise in the attention moves the next-token distribution.

    KL(p || p') = sum_w p(w) (ln p(w) - ln p'(w)),   p without noise, p' with it, averaged over positions

Differs from the paper, which says neither where its noise is put nor how: two places are measured, Gaussian in both.
  * "keys": noise on every key as it arrives, of the same size in every direction, such that a token's logit gets
    noise of standard deviation sigma (root mean square over the queries of a head). A quantised cache does this;
    pooling averages it (model "softmax" of `noise_models`). Every mechanism can take it.
  * "logits": noise of standard deviation sigma on every logit that enters a softmax; a pooled token has one logit
    (model "pooled"). The weights that pool are not noised.
  * "keys, choice kept": the first, for mechanisms that choose tokens, with the tokens chosen without noise.
Each mechanism is compared with itself without noise.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from cca_lab.attention import causal_intervals, masked_attention, visible_mask
from cca_lab.mechanisms import MECHANISMS, cca, dga
from cca_lab.mechanisms.inputs import expand_heads
from cca_lab.mechanisms.mechanism import Mechanism
from cca_lab.models.evaluate import Estimate, bootstrap_mean
from cca_lab.models.interface import ROTATION
from cca_lab.models.plugin import attention_of

KEPT = "keys, choice kept"
SITES = ("keys", "logits", KEPT)
NOISY = "cca_lab_noise"  # transformers' name of the attention that adds noise
WITH_COLUMNS = ("full", "cca", "dga")


@dataclass(frozen=True)
class Noise:
    """Where noise is put, and how much.

    Attributes:
        site: one of SITES.
        sigma: standard deviation of the noise on the logit of a token.
        seed: of the draw; every forward under `added` goes on in the same stream.
    """

    site: str
    sigma: float
    seed: int = 0

    def __post_init__(self) -> None:
        if self.site not in SITES:
            raise ValueError(f"site: got {self.site!r}, wanted one of {', '.join(SITES)}")
        if not self.sigma >= 0:
            raise ValueError(f"sigma: got {self.sigma}, wanted 0 or more")


@contextmanager
def added(model: PreTrainedModel, noise: Noise, kept: dict[int, Any] | None = None) -> Iterator[None]:
    """Add noise to the attention of every layer while the context lasts; the model attends as before afterwards.

    Args:
        model: under any attention that `sites_of` allows the noise for.
        noise: what to add.
        kept: for site KEPT, the choice of each layer; a layer that has none yet chooses, and leaves it here.

    Raises:
        ValueError: for a place of noise that the model's attention does not have.
    """
    name, options = attention_of(model)
    if noise.site not in sites_of(name):
        raise ValueError(f"site: got {noise.site!r} for {name!r} attention, wanted one of {sites_of(name)}; "
                         "noise on keys works for every mechanism")
    before = model.config._attn_implementation
    generator = torch.Generator(model.device).manual_seed(noise.seed)
    if noise.site == "logits":
        form = partial(_on_logits, partial(columns, name, options))
    else:
        chosen = partial(_with_choice, MECHANISMS[name], options, {} if kept is None else kept)
        form = partial(_on_keys, ALL_ATTENTION_FUNCTIONS[before] if noise.site == "keys" else chosen)
    AttentionInterface.register(NOISY, partial(form, noise.sigma, generator))
    AttentionMaskInterface.register(NOISY, ALL_MASK_ATTENTION_FUNCTIONS[before])
    try:
        model.set_attn_implementation(NOISY)
        yield
    finally:
        model.set_attn_implementation(before)


def sites_of(name: str) -> tuple[str, ...]:
    """Return the places of noise that a mechanism has."""
    return ("keys", *(["logits"] if name in WITH_COLUMNS else []), *([KEPT] if MECHANISMS[name].select else []))


def _with_choice(mechanism: Mechanism, options: dict, kept: dict[int, Any], module: nn.Module, query: Tensor,
                 key: Tensor, value: Tensor, attention_mask: Tensor | None, scaling: float,
                 **kwargs) -> tuple[Tensor, None]:
    layer, rotation = module.layer_idx, kwargs.get(ROTATION)
    if layer not in kept:
        choosing = {option: value for option, value in options.items() if option != "backend"}
        kept[layer] = mechanism.select(query, key, scale=scaling, **choosing)
    runtime = {"selection": kept[layer]} | ({} if rotation is None else {"rotation": rotation})
    return mechanism.attention(query, key, value, scale=scaling, **runtime, **options).transpose(1, 2), None


def _on_keys(attend, sigma: float, generator: torch.Generator, module: nn.Module, query: Tensor, key: Tensor,
             value: Tensor, attention_mask: Tensor | None, scaling: float | None = None,
             **kwargs) -> tuple[Tensor, Tensor | None]:
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    lengths = query.square().sum(-1).unflatten(1, (key.shape[1], -1)).mean((0, 2, 3)).sqrt()       # (Hk,)
    size = (sigma / (scale * lengths))[:, None, None]
    draw = torch.randn(key.shape, generator=generator, device=key.device, dtype=key.dtype)
    return attend(module, query, key + size * draw, value, attention_mask, scaling=scaling, **kwargs)


def _on_logits(columns_of, sigma: float, generator: torch.Generator, module: nn.Module, query: Tensor, key: Tensor,
               value: Tensor, attention_mask: Tensor | None, scaling: float | None = None,
               **kwargs) -> tuple[Tensor, None]:
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    keys, values, visible = columns_of(query, key, value, scale, kwargs.get(ROTATION))
    output = noisy_attention(query, keys, values, visible, scale, sigma, generator)
    return output.transpose(1, 2), None


def columns(name: str, options: dict, q: Tensor, k: Tensor, v: Tensor, scale: float,
            rotation: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return what the rows of a mechanism attend to, and which row sees which.

    Args:
        name, options: "full", "cca" or "dga" with its options.
        q: (B, H, L, D).
        k, v: (B, Hk, L, D).
        scale: of the logits.
        rotation: RoPE's tables, where the model has them.

    Returns:
        keys and values (B, H, N, D), pooled ones included, and visible, bool, (b, h, L, N).
    """
    options = {option: value for option, value in options.items() if option != "backend"}
    if name == "full":
        keys, values, intervals = k, v, causal_intervals(q.shape[2], device=q.device)
    elif name == "cca":
        options = {"per_query_head": False, "pooling": "softmax", **options}
        keys, values, _ = cca.columns(q, k, v, scale=scale, rotation=rotation, **options)
        intervals = cca.intervals(q.shape[2], options["group"], options["window"], q.device)
    else:
        rule = dga.FocalRule(**options)
        focal = dga.select(q, k, scale=scale, **options)
        keys, values, _ = dga.columns(q, k, v, focal, rule, scale, rotation)
        intervals = dga.intervals(focal, rule)
    heads = q.shape[1]
    visible = visible_mask(intervals, keys.shape[2])
    visible = visible if visible.shape[1] == 1 else expand_heads(visible, heads)
    return expand_heads(keys, heads), expand_heads(values, heads), visible


def noisy_attention(q: Tensor, keys: Tensor, values: Tensor, visible: Tensor, scale: float, sigma: float,
                    generator: torch.Generator) -> Tensor:
    """Return softmax(scale q K^T + sigma eta) V over the visible columns, eta independent N(0, 1), (B, H, L, D)."""
    if sigma == 0:
        return masked_attention(q, keys, values, visible, scale=scale)
    logits = scale * (q @ keys.mT)                                  # (B, H, L, N)
    logits = logits + sigma * torch.randn(logits.shape, generator=generator, device=q.device, dtype=q.dtype)
    return torch.softmax(logits.masked_fill(~visible, float("-inf")), dim=-1) @ values


@torch.no_grad()
def log_probabilities(model: PreTrainedModel, input_ids: Tensor) -> Tensor:
    """Return the log-probability of each next token, (B, L, V) float32."""
    return torch.log_softmax(model(input_ids=input_ids, use_cache=False).logits.float(), dim=-1)


def divergence(model: PreTrainedModel, input_ids: Tensor, noise: Noise, clean: Tensor | None = None) -> Tensor:
    """Return KL(p || p') of the next-token distribution, averaged over the positions of each row.

    Args:
        model: in evaluation mode, under any attention.
        input_ids: (B, L).
        noise: what is added.
        clean: ln p, what `log_probabilities` returns without noise; None to compute it here.

    Returns:
        (B,) in nats.
    """
    clean = log_probabilities(model, input_ids) if clean is None else clean
    kept: dict[int, Any] = {}
    if noise.site == KEPT:
        with added(model, Noise(KEPT, 0.0), kept):  # only to choose
            log_probabilities(model, input_ids)
    with added(model, noise, kept):
        noisy = log_probabilities(model, input_ids)
    return (clean.exp() * (clean - noisy)).sum(-1).mean(-1)


def divergences(model: PreTrainedModel, input_ids: Tensor, sigmas: Sequence[float], seeds: Sequence[int],
                sites: Sequence[str] | None = None) -> dict[str, dict[float, tuple[Estimate, list[float]]]]:
    """Measure the divergence at each place and strength of noise.

    Args:
        model: in evaluation mode, under any attention.
        input_ids: (B, L), the texts, the same for every mechanism that is compared.
        sigmas: strengths.
        seeds: of the noise.
        sites: where to put it; None for every place that the attention has.

    Returns:
        By site and sigma: the mean over texts (each the mean over seeds) with its bootstrap interval over
        texts, and the mean of every seed.
    """
    clean, sites = log_probabilities(model, input_ids), sites or sites_of(attention_of(model)[0])
    found: dict[str, dict[float, tuple[Estimate, list[float]]]] = {site: {} for site in sites}
    for site in sites:
        for sigma in sigmas:
            drawn = [divergence(model, input_ids, Noise(site, sigma, seed), clean) for seed in seeds]
            drawn = torch.stack(drawn).double().cpu()               # (seeds, B)
            found[site][sigma] = bootstrap_mean(drawn.mean(0).numpy()), drawn.mean(1).tolist()
    return found
