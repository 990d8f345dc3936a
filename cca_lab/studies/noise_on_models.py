"""Figure 3b of DGA on a real model: how far noise moves the next-token distribution.

    KL(p || p') = sum_w p(w) (ln p(w) - ln p'(w)),   p without noise, p' with it, over positions

Each mechanism is compared with itself. Differs from the paper, which does not say where or how
noise is added: here it is Gaussian, at one of these sites.
  * "keys": isotropic noise on every key as it arrives, of such a size that a token's logit gets
    noise of standard deviation sigma (root mean square over the queries of a head). A quantised
    cache adds such noise; pooling averages it (model "softmax" of `noise_models`).
  * "logits": noise of standard deviation sigma on every logit that enters a softmax; a pooled token
    has one logit (model "pooled"). The pooling weights get no noise.
  * "keys, choice kept": as "keys", for mechanisms that choose tokens, which choose without noise.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from cca_lab.mechanisms import Mechanism, columns
from cca_lab.models.evaluate import Estimate, bootstrap_mean
from cca_lab.models.interface import MODULE, ROTATION
from cca_lab.models.plugin import attention_of

KEPT = "keys, choice kept"
SITES = ("keys", "logits", KEPT)
NOISY = "cca_lab_noise"  # name under which transformers knows the attention with noise


@dataclass(frozen=True)
class Noise:
    """Where noise is added, and how much."""

    site: str
    sigma: float  # standard deviation on the logit of a token
    seed: int = 0  # forwards under `added` continue one random stream

    def __post_init__(self) -> None:
        if self.site not in SITES:
            raise ValueError(f"site: got {self.site!r}, wanted one of {', '.join(SITES)}")
        if not self.sigma >= 0:
            raise ValueError(f"sigma: got {self.sigma}, wanted 0 or more")


@contextmanager
def added(model: PreTrainedModel, noise: Noise,
          kept: dict[int, Any] | None = None) -> Iterator[None]:
    """Add noise to the attention of every layer within the context.

    For site KEPT, `kept` has the choice of each layer; a layer without one chooses, and stores it.
    """
    mechanism = attention_of(model)
    if noise.site not in sites_of(mechanism):
        raise ValueError(
            f"site: got {noise.site!r} for {mechanism.name!r} attention, wanted one of "
            f"{sites_of(mechanism)}; noise on keys works for every mechanism")
    before = model.config._attn_implementation
    generator = torch.Generator(model.device).manual_seed(noise.seed)
    form: Callable[..., Any]
    if noise.site == "logits":
        form = partial(_on_logits, mechanism)
    elif noise.site == "keys":
        form = partial(_on_keys, ALL_ATTENTION_FUNCTIONS[before])
    else:
        form = partial(_on_keys, partial(_with_choice, mechanism, {} if kept is None else kept))
    AttentionInterface.register(NOISY, partial(form, noise.sigma, generator))
    AttentionMaskInterface.register(NOISY, ALL_MASK_ATTENTION_FUNCTIONS[before])
    try:
        model.set_attn_implementation(NOISY)
        yield
    finally:
        model.set_attn_implementation(before)


def sites_of(mechanism: Mechanism) -> tuple[str, ...]:
    """Return the sites at which noise can be added to a mechanism."""
    return ("keys", "logits", *([KEPT] if mechanism.chooses else []))


def _with_choice(mechanism: Mechanism, kept: dict[int, Any], module: Any, query: Tensor,
                 key: Tensor, value: Tensor, attention_mask: Tensor | None, scaling: float,
                 **kwargs: Any) -> tuple[Tensor, None]:
    layer = module.layer_idx
    mechanism = mechanism.at_layer(layer)
    if layer not in kept:
        kept[layer] = mechanism.select(query, key, scale=scaling)
    output = mechanism.attention(query, key, value, scale=scaling, rotation=kwargs.get(ROTATION),
                                 selection=kept[layer], module=getattr(module, MODULE, None))
    return output.transpose(1, 2), None


def _on_keys(attend: Callable[..., Any], sigma: float, generator: torch.Generator,
             module: nn.Module, query: Tensor, key: Tensor, value: Tensor,
             attention_mask: Tensor | None, scaling: float | None = None, **kwargs: Any) -> Any:
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    squares = query.square().sum(-1).unflatten(1, (key.shape[1], -1)).mean((0, 2, 3))  # (Hk,)
    size = (sigma / (scale * squares.sqrt()))[:, None, None]
    draw = torch.randn(key.shape, generator=generator, device=key.device, dtype=key.dtype)
    return attend(module, query, key + size * draw, value, attention_mask, scaling=scaling,
                  **kwargs)


def _on_logits(mechanism: Mechanism, sigma: float, generator: torch.Generator, module: nn.Module,
               query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
               scaling: float | None = None, **kwargs: Any) -> tuple[Tensor, None]:
    mechanism = mechanism.at_layer(module.layer_idx)  # type: ignore[arg-type]  # an integer
    call = mechanism.call(query, key, value, scale=scaling, rotation=kwargs.get(ROTATION),
                          module=getattr(module, MODULE, None))
    output = noisy_attention(mechanism.columns(query, key, value, call), call.scale, sigma,
                             generator)
    return output.transpose(1, 2), None


def noisy_attention(parts: Sequence[columns.Columns], scale: float, sigma: float,
                    generator: torch.Generator) -> Tensor:
    """Return softmax(scale q K^T + sigma eta) V, eta iid N(0, 1), (B, H, L, D)."""
    logits = columns.logits(parts, scale)                           # (B, H, L, N)
    draw = torch.randn(logits.shape, generator=generator, device=logits.device, dtype=logits.dtype)
    return columns.weigh(parts, torch.softmax(logits + sigma * draw, dim=-1))


@torch.no_grad()
def log_probabilities(model: PreTrainedModel, input_ids: Tensor) -> Tensor:
    """Return the log-probability of each next token, (B, L, V) float32."""
    return torch.log_softmax(model(input_ids=input_ids, use_cache=False).logits.float(), dim=-1)


def divergence(model: PreTrainedModel, input_ids: Tensor, noise: Noise,
               clean: Tensor | None = None) -> Tensor:
    """Return KL(p || p') of the next token averaged over positions, (B,) nats.

    The model, in evaluation mode, reads ids (B, L); `clean` is ln p (B, L, V), if it is known.
    """
    clean = log_probabilities(model, input_ids) if clean is None else clean
    kept: dict[int, Any] = {}
    if noise.site == KEPT:
        with added(model, Noise(KEPT, 0.0), kept):  # only to store the choice
            log_probabilities(model, input_ids)
    with added(model, noise, kept):
        noisy = log_probabilities(model, input_ids)
    return (clean.exp() * (clean - noisy)).sum(-1).mean(-1)


def divergences(model: PreTrainedModel, input_ids: Tensor, sigmas: Sequence[float],
                seeds: Sequence[int], sites: Sequence[str] | None = None
                ) -> dict[str, dict[float, tuple[Estimate, list[float]]]]:
    """Measure the divergence by site (None: all) and sigma, in nats, for texts (B, L).

    The mean over texts (each the mean over seeds) with its bootstrap interval; every seed's mean.
    """
    clean, sites = log_probabilities(model, input_ids), sites or sites_of(attention_of(model))
    measured: dict[str, dict[float, tuple[Estimate, list[float]]]] = {site: {} for site in sites}
    for site, sigma in product(sites, sigmas):
        drawn = torch.stack([divergence(model, input_ids, Noise(site, sigma, seed), clean)
                             for seed in seeds]).double().cpu()               # (seeds, B)
        measured[site][sigma] = bootstrap_mean(drawn.mean(0).numpy()), drawn.mean(1).tolist()
    return measured
