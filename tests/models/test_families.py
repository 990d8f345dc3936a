"""Families of transformers by what their attention does: those that fit, and those that do not."""

import re

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from cca_lab.files import repository
from cca_lab.mechanisms.caches import CCACache
from cca_lab.models import attention_of, load_pretrained, save_pretrained, swap_attention
from cca_lab.models.adapters import add_lora
from tests.models.tiny import PAD, VOCABULARY, logits, text, tiny

WIDE = {"sliding_window": 64}  # wider than the text
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2,
           "moe_intermediate_size": 48, "shared_expert_intermediate_size": 48}
HEADS = {"head_dim": 8}
FITTING = {"gpt2": {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0},
           "opt": {"dropout": 0.0}, "llama": {}, "qwen2": {}, "gemma": HEADS, "qwen3": HEADS,
           "seed_oss": HEADS, "mistral": WIDE, "phi3": WIDE, "starcoder2": WIDE, "smollm3": {},
           "olmo": {}, "olmo2": {}, "granite": {}, "arcee": {}, "apertus": {}, "bitnet": {},
           "biogpt": {}, "mixtral": EXPERTS | WIDE, "qwen2_moe": EXPERTS,
           "qwen3_moe": EXPERTS | HEADS, "olmoe": EXPERTS, "granitemoe": EXPERTS,
           "phimoe": EXPERTS, "flex_olmo": EXPERTS}
ONE_MATRIX = {"gpt2": {"c_attn"}, "phi3": {"qkv_proj"}}  # of queries, keys and values
OTHERS = {"gpt_neox": "rotates a part of its features", "phi": "rotates a part",
          "glm": "rotates a part", "cohere": "rotates other pairs of features",
          "helium": "rotates other pairs", "gemma2": "sliding-window or other layers",
          "olmo3": "sliding-window or other layers", "bloom": "compute attention themselves",
          "falcon": "compute attention themselves", "bert": "reads later tokens",
          "bart": "24 modules are attention layers", "mamba": "0 modules are attention layers",
          "gpt_bigcode": "do not take past_key_values"}


def model_of(name, layers=2, **changes):
    """Return a random model of 2 layers and width 32, two query heads to a key-value head."""
    torch.manual_seed(0)
    sizes = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=layers,
                 num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
                 # large weights: with the usual 0.02 attention is nearly uniform
                 initializer_range=0.3, attention_dropout=0.0, attention_probs_dropout_prob=0.0,
                 hidden_dropout_prob=0.0, residual_dropout=0.0, vocab_size=VOCABULARY,
                 pad_token_id=PAD, bos_token_id=1, eos_token_id=None)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **sizes | changes))
    # PyTorch multiplies experts in single precision
    return model.to(torch.float32 if "num_experts" in changes else torch.float64).eval()


@pytest.mark.parametrize("name", FITTING)
def test_a_family_that_fits(name):
    """A wide window is full attention, chunks are one forward, training works, files keep it."""
    model, ids = model_of(name, **FITTING[name]), text(30, rows=2)
    close = dict(rtol=0, atol=1e-3 if model.dtype == torch.float32 else 1e-10)
    full = logits(model, ids, use_cache=False)
    wide = logits(swap_attention(model, "cca", group=3, window=30), ids, use_cache=False)
    torch.testing.assert_close(wide, full, **close)
    whole = logits(swap_attention(model, "cca", group=3, window=5), ids, use_cache=False)
    assert (whole - full).abs().max() > 0.1, "the swap changed nothing"
    cache = CCACache(model)
    chunks = [logits(model, part, past_key_values=cache) for part in ids.split([11, 1, 1, 17], 1)]
    torch.testing.assert_close(torch.cat(chunks, dim=1), whole, **close)
    assert torch.equal(model.generate(ids, max_new_tokens=3, do_sample=False),
                       model.generate(ids, max_new_tokens=3, do_sample=False, use_cache=False))
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.01), []
    for _ in range(3):
        losses.append(model.train()(ids, labels=ids, use_cache=False).loss)
        losses[-1].backward()
        optimizer.step()
        optimizer.zero_grad()
    assert losses[2] < losses[1] < losses[0]
    add_lora(model, 2)
    trained = {name.split(".")[-4] for name, part in model.named_parameters()
               if part.requires_grad}
    assert trained == ONE_MATRIX.get(name, {"q_proj", "k_proj", "v_proj"})
    model.delete_adapter("default")


@pytest.mark.parametrize("name", FITTING)
def test_a_family_that_fits_is_loaded_as_it_was_saved(name, tmp_path):
    model, ids = model_of(name, **FITTING[name]).float(), text(20)
    save_pretrained(swap_attention(model, "cca", group=3, window=5), tmp_path / "saved")
    again, _ = load_pretrained(tmp_path / "saved")
    assert attention_of(again) == attention_of(model)
    assert torch.equal(logits(again, ids), logits(model, ids))


@pytest.mark.parametrize("name", OTHERS)
def test_a_family_that_does_not_fit_is_refused_in_one_line(name):
    model = model_of(name)
    with pytest.raises(ValueError, match=f"^model: got a '{name}', .*{OTHERS[name]}.*models.md"):
        swap_attention(model, "cca")


@pytest.mark.parametrize(("model", "reason"), [
    (lambda: model_of("smollm3", layers=4), "rotate differently from one another"),
    (lambda: model_of("mistral", num_hidden_layers=4, layer_types=None, attn_logit_softcapping=30.),
     "caps its logits"),
    (lambda: tiny("gpt2", add_cross_attention=True), "cross-attention"),
    (lambda: tiny("qwen2", use_sliding_window=True, sliding_window=8, max_window_layers=1),
     "use_sliding_window=False")], ids=["nope layers", "softcap", "cross", "sliding"])
def test_a_variant_that_does_not_fit_is_refused(model, reason):
    with pytest.raises(ValueError, match=reason):
        swap_attention(model(), "cca")


@pytest.mark.parametrize("name", [name for name in FITTING if "sliding_window" in FITTING[name]])
def test_a_text_beyond_a_models_own_window_is_refused(name):
    model, ids = swap_attention(model_of(name, **FITTING[name]), "cca", group=3, window=5), text(65)
    cache = CCACache(model)
    logits(model, ids[:, :64], past_key_values=cache)
    for call in (dict(input_ids=ids[:, 64:], past_key_values=cache),
                 dict(input_ids=ids, use_cache=False)):
        with pytest.raises(ValueError, match="sees 64 tokens.*the text has 65"):
            model(**call)


def test_a_layer_that_attends_twice_takes_no_cache():
    model, ids = swap_attention(model_of("diffllama"), "cca", group=3, window=5), text(20)
    assert logits(model, ids, use_cache=False).isfinite().all()
    with pytest.raises(ValueError, match="attends twice"):
        model.generate(ids, max_new_tokens=2)


def test_the_page_lists_the_families_that_are_tested_here():
    page = (repository() / "docs" / "use" / "models.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (?!differs)", page, re.MULTILINE)
    assert sorted(rows) == sorted(FITTING)
