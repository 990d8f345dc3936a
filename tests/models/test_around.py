"""What people do around a swapped model: each of it gives the right result, or is refused."""

import copy
import io
import pickle

import pytest
import torch
from peft import LoraConfig, PrefixTuningConfig, get_peft_model
from torch import nn
from transformers import DynamicCache, pipeline

from cca_lab.mechanisms import CCA, Full, LoCoCo
from cca_lab.mechanisms.caches import CACHES, CCACache
from cca_lab.models import (
    attention_of,
    load_pretrained,
    restore_attention,
    save_pretrained,
    swap_attention,
    swapped,
)
from tests.mechanisms.options import OPTIONS
from tests.models.tiny import TWO, logits, text, tiny

MECHANISM = CCA(group=4, window=8)


def cca(family="llama", **changes):
    return swap_attention(tiny(family, **changes), MECHANISM)


def greedy(model, ids, count=6, **kwargs):
    return model.generate(ids, max_new_tokens=count, do_sample=False, **kwargs)[:, ids.shape[1]:]


def recomputed(model, ids, count=6):
    return greedy(model, ids, count, use_cache=False)


# ---- a cache outlives its attention


@pytest.mark.parametrize("read", [0, 12])
@pytest.mark.parametrize("leave", [
    lambda model: model.set_attn_implementation("sdpa"),
    lambda model: model.set_attn_implementation("eager"),
    lambda model: setattr(model.config, "_attn_implementation", "sdpa"),
    lambda model: swap_attention(model, "streaming_llm"),
    restore_attention], ids=["sdpa", "eager", "config", "swap", "restore"])
def test_a_cache_that_the_present_attention_does_not_read_is_refused(leave, read):
    model, ids = cca(), text(20)
    cache = CCACache(model)
    if read:
        logits(model, ids[:, :read], past_key_values=cache)
    leave(model)
    with pytest.raises(ValueError, match="^past_key_values: "):
        logits(model, ids[:, read:], past_key_values=cache)
    assert cache.get_seq_length() == read


# ---- a swap that fails changes nothing


@pytest.mark.parametrize("kept", [lambda weight: None, lambda weight: nn.Parameter(
    weight.detach().to(torch.uint8), requires_grad=False)], ids=["int8", "4 bits"])
def test_modules_beside_quantised_weights_have_the_models_dtype(kept):
    """Stored as no parameter at all, or as bytes."""
    model = cca()
    for layer in model.model.layers:
        for part in layer.self_attn.children():
            part.weight = kept(part.weight)
    swap_attention(model, LoCoCo(slots=6, segment=4))
    learnt = model.model.layers[0].self_attn.cca_lab_compressor
    assert {weight.dtype for weight in learnt.parameters()} == {torch.float64}


@pytest.mark.parametrize("before", [MECHANISM, LoCoCo(slots=4, segment=3), Full()], ids=str)
def test_a_swap_that_fails_leaves_the_model_as_it_was(before, monkeypatch):
    model, ids = swap_attention(tiny("gpt2"), before), text(30)
    wanted = logits(model, ids)

    def fails(*args):
        raise RuntimeError("no memory")

    monkeypatch.setattr(LoCoCo, "new_module", fails)
    with pytest.raises(RuntimeError, match="no memory"):
        swap_attention(model, LoCoCo(slots=6, segment=4))
    assert attention_of(model) == before and torch.equal(logits(model, ids), wanted)


# ---- a cache beside what drops it


@pytest.mark.parametrize("family", TWO)
def test_gradient_checkpointing_in_training_refuses_a_cache(family):
    model, ids = cca(family), text(20)
    wanted = recomputed(model, ids)
    model.gradient_checkpointing_enable()
    for given in ({}, {"past_key_values": CCACache(model)}):
        with pytest.raises(ValueError, match="gradient checkpointing.*model.eval"):
            greedy(model.train(), ids, **given)
        assert torch.equal(greedy(model.eval(), ids, **given), wanted)


def test_a_cache_and_use_cache_false_are_refused_together():
    model, ids = cca(), text(20)
    for call in (greedy, logits):
        with pytest.raises(ValueError, match="a cache and use_cache=False; give one"):
            call(model, ids, past_key_values=CCACache(model), use_cache=False)
    model.generation_config.use_cache = False
    with pytest.raises(ValueError, match="a cache and use_cache=False; give one"):
        greedy(model, ids, past_key_values=CCACache(model))


def test_prefix_tuning_is_refused_and_lora_generates():
    model, ids = cca(), text(20)
    with pytest.raises(ValueError, match="prefix tuning.*such as LoRA"):
        get_peft_model(copy.deepcopy(model), PrefixTuningConfig(
            task_type="CAUSAL_LM", num_virtual_tokens=4)).double()(input_ids=ids, use_cache=False)
    full = DynamicCache()
    with pytest.raises(ValueError, match=r"leave it out, or pass CCACache\(model\)"):
        greedy(model, ids, past_key_values=full)
    with swapped(model, "full"):
        logits(model, ids[:, :9], past_key_values=full)
    with pytest.raises(ValueError, match="another attention has read"):
        logits(model, ids[:, 9:], past_key_values=full)
    peft = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"]))
    assert torch.equal(peft.generate(ids, max_new_tokens=6, do_sample=False)[:, 20:],
                       recomputed(model, ids))
    with pytest.raises(ValueError, match=r"model.get_base_model\(\)"):
        swap_attention(peft, MECHANISM)


# ---- one cache, another text, model or state


@pytest.mark.parametrize("other", [text(40, seed=1), text(20, seed=1), text(20)],
                         ids=["longer", "shorter", "the same again"])
def test_a_cache_that_holds_another_text_is_refused(other):
    model = cca()
    cache = CCACache(model)
    greedy(model, text(20), past_key_values=cache)
    with pytest.raises(ValueError, match="has read 25 tokens with which this text"):
        greedy(model, other, past_key_values=cache)
    cache.reset()
    assert torch.equal(greedy(model, other, past_key_values=cache), recomputed(model, other))


def test_a_text_goes_on_with_the_cache_that_has_read_its_beginning():
    """Chat: the second call gives the whole text, or its new tokens and a mask for all."""
    model, ids = cca(), text(20, rows=2)
    cache = CCACache(model)
    first = greedy(model, ids, past_key_values=cache)
    whole = torch.cat([ids, first, text(7, rows=2, seed=2)], dim=1)
    alone = copy.deepcopy(cache)
    wanted = recomputed(model, whole)
    assert torch.equal(greedy(model, whole, past_key_values=cache), wanted)
    got = model.generate(whole[:, 25:], past_key_values=alone, max_new_tokens=6, do_sample=False,
                         attention_mask=torch.ones_like(whole))
    assert torch.equal(got[:, -6:], wanted)


@pytest.mark.parametrize("copied", [
    copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))], ids=["deepcopy", "pickle"])
def test_a_prompt_that_was_read_once_has_many_continuations(copied):
    model, prompt = cca(), text(20)
    read = CCACache(model)
    logits(model, prompt, past_key_values=read)
    for seed in range(3):
        whole = torch.cat([prompt, text(4 + seed, seed=seed)], dim=1)
        assert torch.equal(greedy(model, whole, past_key_values=copied(read)),
                           recomputed(model, whole))
    with pytest.raises(ValueError, match=r"batch_repeat_interleave\(n\)"):
        greedy(model, whole, past_key_values=copied(read), num_beams=3)
    together = torch.cat([prompt.expand(3, -1), text(5, rows=3)], dim=1)
    read.batch_repeat_interleave(3)
    assert torch.equal(greedy(model, together, past_key_values=read), recomputed(model, together))


def pressed(*args):
    raise KeyboardInterrupt


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("part", ["input_layernorm", "mlp"])
def test_a_cache_of_an_interrupted_forward_is_refused(layer, part):
    model, ids = cca(), text(20)
    cache = CCACache(model)
    hook = getattr(model.model.layers[layer], part).register_forward_pre_hook(pressed)
    with pytest.raises(KeyboardInterrupt):
        logits(model, ids[:, :9], past_key_values=cache)
    hook.remove()
    with pytest.raises(ValueError, match="attention does not read this cache"):
        logits(tiny("llama"), ids, past_key_values=copy.deepcopy(cache))
    if cache.layers[0].columns != cache.layers[1].columns:
        with pytest.raises(ValueError, match="layers have read 0 to 9 tokens.*interrupted"):
            logits(model, ids, past_key_values=cache)
        cache.reset()
    done = cache.get_seq_length()  # what every layer has read stays
    assert torch.equal(logits(model, ids[:, done:], past_key_values=cache)[:, -1:],
                       logits(model, ids, past_key_values=CCACache(model))[:, -1:])


def test_a_state_that_was_interrupted_is_refused(monkeypatch):
    model = cca(num_hidden_layers=1)
    cache = CCACache(model)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(type(cache.layers[0].states[0]), "_attend", pressed)
        logits(model, text(9), past_key_values=cache)
    with pytest.raises(ValueError, match="interrupted"):
        logits(model, text(9), past_key_values=cache)


def test_a_cache_that_another_model_has_filled_is_refused():
    first, second, ids = cca(), cca("llama", tie_word_embeddings=False), text(20)
    cache = CCACache(first)
    logits(first, ids[:, :9], past_key_values=cache)
    with pytest.raises(ValueError, match="another model has read"):
        logits(second, ids[:, 9:], past_key_values=cache)
    cache.reset()
    assert torch.equal(logits(second, ids, past_key_values=cache),
                       logits(second, ids, past_key_values=CCACache(second)))


# ---- angles, precision, devices


@pytest.mark.parametrize("rope", [
    {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4},
    {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 24,
     "long_factor": [4.0] * 4, "short_factor": [1.0] * 4, "factor": 2.0}],
    ids=lambda rope: rope["rope_type"])
def test_angles_that_change_with_the_length_end_a_cache(rope):
    model, ids = cca(max_position_embeddings=24, rope_parameters=rope), text(30)
    cache = CCACache(model)
    got = [logits(model, part, past_key_values=cache) for part in ids[:, :24].split(8, dim=1)]
    assert torch.allclose(torch.cat(got, dim=1), logits(model, ids[:, :24], use_cache=False))
    with pytest.raises(ValueError, match="wanted at most 24 with a cache.*use_cache=False"):
        logits(model, ids[:, 24:25], past_key_values=cache)
    assert logits(model, ids, use_cache=False).isfinite().all()


@pytest.mark.parametrize("name", CACHES)
def test_autocast_may_be_around_a_part_of_the_text(name):
    model, ids = swap_attention(tiny("llama").float(), name, **OPTIONS[name][0]), text(20)
    for parts in ((True, False), (False, True)):
        cache = CACHES[name](model)
        for lower, part in zip(parts, ids.split(15, dim=1), strict=True):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=lower):
                got = logits(model, part, past_key_values=cache)
        assert got.isfinite().all() and cache.layers[0].dtype == (
            torch.bfloat16 if parts[0] else torch.float32)


# ---- files


def test_what_a_trainer_saved_says_who_must_save(tmp_path):
    model = swap_attention(tiny("llama"), LoCoCo(slots=6, segment=4))
    model.save_pretrained(tmp_path / "trainer")
    with pytest.raises(ValueError, match="by a Trainer.*save with cca_lab.models.save_pretrained"):
        load_pretrained(tmp_path / "trainer")
    save_pretrained(model, tmp_path / "lab")
    with pytest.raises(ValueError, match="merged: got True without an adapter"):
        load_pretrained(tmp_path / "lab", merged=True)


# ---- the inner model


def test_an_inner_model_is_swapped_with_its_whole(tmp_path):
    model, ids = tiny("gpt2"), text(30)
    full = logits(model, ids)
    swap_attention(model.transformer, MECHANISM)
    assert attention_of(model) == MECHANISM and not torch.equal(logits(model, ids), full)
    for call in (restore_attention, lambda model: swap_attention(model, "cca"),
                 lambda model: save_pretrained(model, tmp_path / "saved")):
        with pytest.raises(ValueError, match="a part of it.*restore_attention on that part"):
            call(model)
    restore_attention(model.transformer)
    assert attention_of(model) == Full() and torch.equal(logits(model, ids), full)
    wanted = logits(cca("gpt2"), ids)
    assert torch.equal(logits(swap_attention(model, MECHANISM), ids), wanted)
    for call in (restore_attention, lambda part: swap_attention(part, "cca")):
        with pytest.raises(ValueError, match="a part of a model that was swapped"):
            call(model.transformer)
    assert torch.equal(logits(model, ids), wanted)


# ---- generation as users of transformers write it


@pytest.mark.parametrize("name", CACHES)
def test_a_swapped_model_generates_with_its_own_cache(name):
    model, ids = swap_attention(tiny("llama"), name, **OPTIONS[name][0]), text(20)
    out = model.generate(ids, max_new_tokens=4, do_sample=False, return_dict_in_generate=True)
    assert type(out.past_key_values) is CACHES[name]
    wanted = greedy(model, ids, 4, past_key_values=CACHES[name](model))
    assert torch.equal(out.sequences[:, 20:], wanted)
    step, tokens = model(ids, use_cache=True), []  # a loop of one's own
    for _ in range(4):
        tokens.append(step.logits[:, -1:].argmax(-1))
        step = model(tokens[-1], past_key_values=step.past_key_values, use_cache=True)
    assert torch.equal(torch.cat(tokens, dim=1), wanted)


def test_copies_and_files_of_a_model_generate_with_their_own_cache():
    model, ids, file = cca(), text(20), io.BytesIO()
    wanted = recomputed(model, ids)
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        restore_attention(model)
        assert torch.equal(greedy(other, ids), wanted)
        with torch.no_grad():
            other.lm_head.weight.zero_()
        assert not torch.equal(greedy(other, ids), wanted), "another model generated"
        swap_attention(model, MECHANISM)


def test_a_pipeline_takes_a_swapped_model_for_several_texts():
    model, tokenizer = load_pretrained("data/models/gpt2-mini", "cca", group=4, window=16)
    texts = ["The river ran", "Once upon a time there was a small"]
    run = pipeline("text-generation", model=model, tokenizer=tokenizer)
    got = run(texts, max_new_tokens=5, do_sample=False, return_full_text=True)
    for prompt, [answer] in zip(texts, got, strict=True):
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        wanted = model.generate(ids, max_new_tokens=5, do_sample=False, use_cache=False)
        assert answer["generated_text"] == tokenizer.decode(wanted[0], skip_special_tokens=True)
    cache = CCACache(model)
    with pytest.raises(ValueError, match="does not begin; make a new cache"):
        run(texts, max_new_tokens=5, do_sample=False, past_key_values=cache)


@pytest.mark.parametrize("before", [Full(), MECHANISM, LoCoCo(slots=4, segment=3)], ids=str)
def test_a_swap_within_a_context(before):
    model, ids = swap_attention(tiny("gpt2"), before), text(30)
    wanted = logits(model, ids)
    inside = logits(swap_attention(tiny("gpt2"), "cca", group=2, window=3), ids)
    with pytest.raises(KeyError), swapped(model, "cca", group=2, window=3) as same:
        assert same is model and torch.equal(logits(model, ids), inside)
        raise KeyError
    assert attention_of(model) == before and torch.equal(logits(model, ids), wanted)
