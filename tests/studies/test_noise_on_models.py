"""Noise in a model's attention: where it goes, how much, and that it leaves (DGA Figure 3b)."""

import pytest
import torch

from cca_lab.mechanisms import MECHANISMS
from cca_lab.mechanisms.columns import Columns
from cca_lab.models import swap_attention
from cca_lab.studies import noise_on_models
from cca_lab.studies.noise_on_models import Noise
from cca_lab.theory.noise import weight as noise
from tests.mutants import real_heads as wrong
from tests.studies import small

OPTIONS = {"full": {}, "cca": {"group": 3, "window": 4}, "dga": {"group": 3, "gamma": 0.2},
           "streaming_llm": {"sinks": 1, "recent": 3},
           # mutant: a layer gets the heads of all layers
           "kept_heads": {"kept": [[0], []], "others": {"name": "cca", "group": 3, "window": 4}}}
IDS = torch.arange(60).view(2, 30) % 37 + 1
every_place = pytest.mark.parametrize(("name", "site"), [
    (name, site) for name in OPTIONS for site in noise_on_models.sites_of(MECHANISMS[name]())])


@pytest.fixture
def model():
    """A model whose attention is sharp enough for noise to matter."""
    made = small.model().eval()
    for block in made.transformer.h:
        torch.nn.init.normal_(block.attn.c_attn.weight, std=0.3,
                              generator=torch.Generator().manual_seed(1))
    return made


@every_place
def test_no_noise_no_divergence(model, name, site):
    """At sigma = 0 the noisy forward is the mechanism itself, its columns included."""
    swap_attention(model, name, **OPTIONS[name])
    assert noise_on_models.divergence(model, IDS, Noise(site, 0.0)).abs().max() < 1e-6
    assert (noise_on_models.divergence(model, IDS, Noise(site, 0.5)) > 1e-4).all()


@every_place
def test_a_model_attends_as_before_afterwards(model, name, site):
    swap_attention(model, name, **OPTIONS[name])
    before, implementation = model(IDS).logits, model.config._attn_implementation
    with noise_on_models.added(model, Noise(site, 1.0)):
        assert not torch.equal(model(IDS).logits, before)
    assert model.config._attn_implementation == implementation
    assert torch.equal(model(IDS).logits, before)


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_takes_noise_on_its_keys(model, name):
    swap_attention(model, name)
    assert noise_on_models.divergence(model, IDS, Noise("keys", 0.0)).abs().max() < 1e-6
    assert noise_on_models.divergence(model, IDS, Noise("keys", 1.0)).isfinite().all()


@pytest.mark.parametrize("site", ["keys", "logits"])
def test_a_seed_is_a_draw(model, site):
    first, again, other = (noise_on_models.divergence(model, IDS, Noise(site, 0.5, seed))
                           for seed in (3, 3, 4))
    assert torch.equal(first, again) and not torch.equal(first, other)


def moved_logits(form, sigma: float, scaling: float | None) -> torch.Tensor:
    """Return what noise on the keys adds to every logit, (B, H, L, L), two heads a KV head."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(2, 4, 40, 8, generator=generator) * torch.tensor([1.0, 1.0, 5.0, 5.0]).view(
        4, 1, 1)
    key = torch.randn(2, 2, 40, 8, generator=generator)
    caught = []
    form(lambda module, q, k, *_, **__: caught.append(k), sigma, generator, None, query, key, key,
         None, scaling)
    scale = 8**-0.5 if scaling is None else scaling
    return scale * query @ (caught[0] - key).repeat_interleave(2, dim=1).mT


@pytest.mark.parametrize("scaling", [None, 1.0])
def test_noise_on_keys_has_the_wanted_size_on_the_logits(scaling):
    """Root mean square sigma over the queries of a KV head, whatever their length and the scale."""
    per_head = moved_logits(noise_on_models._on_keys, 0.3, scaling).square().unflatten(1, (2, 2))
    assert torch.allclose(per_head.mean((0, 2, 3, 4)).sqrt(), torch.tensor(0.3), rtol=0.1)
    broken = moved_logits(wrong.noise_of_one_size, 0.3, scaling).square().unflatten(1, (2, 2))
    assert not torch.allclose(broken.mean((0, 2, 3, 4)).sqrt(), torch.tensor(0.3), rtol=0.1)


def test_noise_on_logits_moves_weights_as_lemma_2_says():
    """Values that are the identity show the weights; keys of zeros make them even."""
    length, sigma = 8, 0.1
    q, keys = torch.zeros(1, 4000, 1, 2), torch.zeros(1, 4000, length, 2)
    values = torch.eye(length).double()
    visible = torch.ones(1, 1, 1, length, dtype=torch.bool)
    columns = Columns(q.double(), keys.double(), values.expand(1, 4000, length, length), visible)
    weights = noise_on_models.noisy_attention([columns], 1.0, sigma,
                                              torch.Generator().manual_seed(0))
    wanted = sum(c * sigma**(2 * n)
                 for n, c in enumerate(noise.variance_coefficients([1 / length] * length, 0), 1))
    assert float(weights.var(dim=1).mean()) == pytest.approx(wanted, rel=0.05)
    assert torch.allclose(weights.sum(-1), torch.ones(1).double())


def test_a_kept_choice_is_the_one_without_noise(model):
    """Under strong noise on the keys the focal tokens change, unless they are kept."""
    swap_attention(model, "dga", **OPTIONS["dga"])
    clean, kept, free = {}, {}, {}
    with noise_on_models.added(model, Noise(noise_on_models.KEPT, 0.0), clean):
        model(IDS)
    kept |= clean
    for choices in (kept, free):
        with noise_on_models.added(model, Noise(noise_on_models.KEPT, 2.0), choices):
            model(IDS)
    assert sorted(kept) == [0, 1] and all(torch.equal(kept[layer], clean[layer]) for layer in kept)
    assert not torch.equal(free[0], clean[0])
    assert noise_on_models.divergence(model, IDS, Noise(noise_on_models.KEPT, 0.5)).min() > 1e-4


def test_what_cannot_be_done_is_refused(model):
    with pytest.raises(ValueError, match="site: got 'values', wanted one of keys, logits"):
        Noise("values", 1.0)
    with pytest.raises(ValueError, match="sigma: got -1"):
        Noise("keys", -1)
    swap_attention(model, "h2o")
    with pytest.raises(ValueError,
                       match="'keys, choice kept' for 'h2o' attention.*noise on keys works"):
        noise_on_models.divergence(model, IDS, Noise(noise_on_models.KEPT, 1.0))
