"""A converted OPT computes the same logits as a GPT-2."""

import pytest
import torch
from transformers import OPTConfig, OPTForCausalLM

from cca_lab.models import load_pretrained
from cca_lab.models.convert import gpt2_from_opt
from cca_lab.paths import models_folder
from tests.training import small


def gap(first, second, ids):
    with torch.no_grad():
        return float((first(ids).logits - second(ids).logits).abs().max())


def test_logits_are_equal_in_float64():
    opt = small.model("opt").double().eval()
    with torch.no_grad():
        for parameter in opt.parameters():  # biases too
            parameter.normal_(std=0.1)
    ids = torch.randint(1, 100, (2, 40))
    converted = gpt2_from_opt(opt)
    assert gap(opt, converted, ids) < 1e-12
    with torch.no_grad():  # the mutant: a position table that begins two rows too early
        converted.transformer.wpe.weight.copy_(opt.model.decoder.embed_positions.weight[:-2])
    assert gap(opt, converted, ids) > 1e-3


def test_the_shipped_gpt2_is_the_shipped_opt():
    opt, _ = load_pretrained(models_folder() / "opt-mini")
    gpt2, _ = load_pretrained(models_folder() / "gpt2-mini")
    assert gap(opt, gpt2, torch.randint(1, 2000, (2, 300))) < 1e-3  # float32 sums in another order


def test_post_norm_is_refused():
    config = OPTConfig(hidden_size=16, ffn_dim=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=20,
                       word_embed_proj_dim=16, do_layer_norm_before=False)
    with pytest.raises(ValueError, match="post-norm"):
        gpt2_from_opt(OPTForCausalLM(config))
