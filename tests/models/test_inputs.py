"""What a model, a cache or an evaluation cannot take is refused by name, in one sentence."""

import inspect
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from cca_lab.mechanisms import CCA
from cca_lab.mechanisms.caches import CACHES
from cca_lab.mechanisms.caching.base import CHOICE
from cca_lab.models import (
    attention_of,
    interface,
    swap_attention,
)
from cca_lab.models.checkpoints import load_pretrained, save_pretrained
from tests.models.tiny import TWO, VOCABULARY, left_padded, logits, text, tiny

LEARNT = ("gpt2", "opt")  # positions added to the embeddings, 128 of them


def swapped(family: str = "gpt2", name: str = "cca", **options):
    return swap_attention(tiny(family), name, **options or {"group": 4, "window": 6})


# ---- a forward


@pytest.mark.parametrize("family", LEARNT)
def test_padding_takes_no_position(family):
    ids, mask, positions = left_padded([text(100)[0], text(120, seed=1)[0]], holes=20)
    # OPT counts them from the mask
    positions = {} if family == "opt" else {"position_ids": positions}
    assert logits(swapped(family), ids, attention_mask=mask, **positions).isfinite().all()


# ---- options


def test_numpy_numbers_among_the_options_are_saved_as_json(tmp_path):
    model = swap_attention(tiny("gpt2"), "cca", group=np.uint8(4), window=np.int32(6))
    assert torch.equal(logits(model, text(20)), logits(swapped(), text(20)))
    save_pretrained(model, tmp_path / "model")
    assert attention_of(load_pretrained(tmp_path / "model")[0]) == CCA(group=4, window=6)


# ---- what transformers calls, asks for, and cannot have


@pytest.mark.parametrize("family", TWO)
def test_maps_asked_for_in_the_config_come_as_those_asked_for_by_keyword(family):
    model, ids = tiny(family), text(9)
    # transformers lets no other one have the wish in its config
    model.set_attn_implementation("eager")
    model.config.output_attentions = True
    swap_attention(model, "cca", group=2, window=2)
    wanted = swapped(family, group=2, window=2)(ids, output_attentions=True).attentions
    got = model(ids).attentions
    assert len(got) == len(wanted) == 2
    assert all(torch.equal(one, other) for one, other in zip(got, wanted, strict=True))
    assert model(ids, output_attentions=False).attentions is None


def test_the_attention_function_has_the_order_of_transformers_sdpa():
    """kvpress and others wrap every function, and pass mask, dropout and scaling by position."""
    ours, theirs = (list(inspect.signature(form).parameters)[:7]
                    for form in (interface.attention_forward, sdpa_attention_forward))
    assert ours == theirs
    x = torch.randn(1, 2, 9, 4, dtype=torch.float64)
    config = SimpleNamespace(**{CHOICE: {"name": "cca", "group": 2, "window": 3}})
    module = SimpleNamespace(config=config, layer_idx=1)
    output, _ = interface.attention_forward(module, x, x, x, None, 0.0, 0.3,
                                            **{interface.CACHE: None})
    wanted = CCA(group=2, window=3).attention(x, x, x, scale=0.3)
    assert torch.equal(output, wanted.transpose(1, 2))


# ---- caches


@pytest.mark.parametrize("name", CACHES)
def test_a_cache_of_another_batch_is_named_before_anything_is_stored(name):
    model = swap_attention(tiny("gpt2"), name)
    cache = CACHES[name](model)
    logits(model, text(5, rows=2), past_key_values=cache)
    with pytest.raises(ValueError, match=r"past_key_values: holds 2 row\(s\), got 3"):
        logits(model, text(1, rows=3), past_key_values=cache)
    assert logits(model, text(1, rows=2), past_key_values=cache).shape == (2, 1, VOCABULARY)
    assert cache.get_seq_length() == 6
    cache.reset()
    logits(model, text(5, rows=3), past_key_values=cache)
