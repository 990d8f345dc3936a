"""What a model, a cache or an evaluation cannot take is refused by name, in one sentence."""

import inspect
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from cca_lab.mechanisms import CCA
from cca_lab.mechanisms.caches import CACHES, CCACache
from cca_lab.mechanisms.caching.base import CHOICE
from cca_lab.models import (
    attention_maps,
    attention_of,
    disable_attention_dropout,
    interface,
    restore_attention,
    swap_attention,
)
from cca_lab.models.checkpoints import load_pretrained, save_pretrained
from cca_lab.models.evaluate import exact_match, perplexity
from cca_lab.models.recipe import FinetuneConfig
from cca_lab.tasks.corpus import load_corpus
from cca_lab.tasks.mixture import Mixture
from cca_lab.tasks.reading import Reading
from tests.models.tiny import FAMILIES, VOCABULARY, left_padded, logits, text, tiny

LEARNT = ("gpt2", "opt")  # positions added to the embeddings, 128 of them
every_family = pytest.mark.parametrize("family", FAMILIES)


def swapped(family: str = "gpt2", name: str = "cca", **options):
    return swap_attention(tiny(family), name, **options or {"group": 4, "window": 6})


# ---- a forward


@every_family
@pytest.mark.parametrize(("ids", "message"), [
    (text(9) + VOCABULARY, "input_ids: got token ids from 6. to .* wanted 0 to 60"),
    (text(9) - VOCABULARY, "input_ids: got token ids from -"),
    (text(9).double(), "input_ids: got torch.float64, wanted token ids"),
    ([[1, 2, 3]], "input_ids: got list, wanted a tensor"),
])
def test_ids_that_are_not_the_models_are_named(family, ids, message):
    with pytest.raises(ValueError, match=message):
        swapped(family)(ids)
    with pytest.raises(ValueError, match=message):
        attention_maps(tiny(family), ids)


@every_family
def test_a_text_beyond_the_last_position_is_named_and_rotary_positions_have_none(family):
    model, long = swapped(family), text(129)
    assert logits(model, long[:, :128]).isfinite().all()
    if family not in LEARNT:
        assert logits(model, long).isfinite().all()
        return
    for call in (lambda: model(long), lambda: attention_maps(tiny(family), long),
                 lambda: model(inputs_embeds=torch.zeros(1, 129, 32, dtype=torch.float64)),
                 lambda: model.generate(text(126), past_key_values=CCACache(model),
                                        max_new_tokens=5)):
        with pytest.raises(ValueError, match="got 129 tokens, wanted at most 128"):
            call()


@pytest.mark.parametrize("family", LEARNT)
def test_padding_takes_no_position(family):
    ids, mask, positions = left_padded([text(100)[0], text(120, seed=1)[0]], holes=20)
    # OPT counts them from the mask
    positions = {} if family == "opt" else {"position_ids": positions}
    assert logits(swapped(family), ids, attention_mask=mask, **positions).isfinite().all()


@pytest.mark.parametrize("model", [None, "gpt2", 3, torch.nn.Linear(2, 2)], ids=repr)
def test_what_is_no_model_is_named(model, tmp_path):
    for call in (lambda: swap_attention(model, "cca"), lambda: attention_maps(model, text(5)),
                 lambda: perplexity(model, text(50)[0], length=9),
                 lambda: save_pretrained(model, tmp_path / "m"),
                 lambda: exact_match(model, None, length=50)):
        with pytest.raises(ValueError, match="model: got .*wanted a model of transformers"):
            call()


@pytest.mark.parametrize("model", [None, "gpt2", 3], ids=repr)
@pytest.mark.parametrize("call",
                         [attention_of, restore_attention, disable_attention_dropout, CCACache])
def test_what_is_no_model_is_named_by_the_small_ones_too(call, model):
    with pytest.raises(ValueError, match="model: got .*wanted a model"):
        call(model)


# ---- options


def test_numpy_numbers_among_the_options_are_saved_as_json(tmp_path):
    model = swap_attention(tiny("gpt2"), "cca", group=np.uint8(4), window=np.int32(6))
    assert torch.equal(logits(model, text(20)), logits(swapped(), text(20)))
    save_pretrained(model, tmp_path / "model")
    assert attention_of(load_pretrained(tmp_path / "model")[0]) == CCA(group=4, window=6)


@pytest.mark.parametrize("value", [torch.ones(2), {1, 2}, object(), 2**63, True, np.bool_(True)],
                         ids=lambda value: type(value).__name__)
def test_options_that_are_no_numbers_are_named(value):
    with pytest.raises(ValueError, match="group"):
        swap_attention(tiny("gpt2"), "cca", group=value)


# ---- what transformers calls, asks for, and cannot have


@every_family
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


@pytest.mark.parametrize("trace", [lambda model: torch.jit.trace(model, text(9)),
                                   lambda model: torch.export.export(model, (text(9),),
                                                                     {"use_cache": False})],
                         ids=["trace", "export"])
def test_a_trace_says_what_is_the_matter(trace):
    model = swapped()
    with pytest.raises(ValueError, match="cannot be traced or exported"):
        trace(model.requires_grad_(False))


def test_guidance_says_what_is_the_matter():
    model = swapped()
    options = dict(guidance_scale=1.5, max_new_tokens=3, do_sample=False)
    with pytest.raises(ValueError, match="guidance_scale one more for its second text, whatever is "
                                         "passed.*use_cache"):
        model.generate(text(9), past_key_values=CCACache(model), **options)
    assert model.generate(text(9), use_cache=False, **options).shape == (1, 12)


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


@every_family
def test_a_model_that_was_not_swapped_refuses_a_cache_at_once(family):
    with pytest.raises(ValueError,
                       match="past_key_values: the model's attention does not read this cache"):
        logits(tiny(family), text(5), past_key_values=CCACache(swapped(family)))


# ---- evaluation, reading, training, files

STREAM = text(200)[0]


@pytest.mark.parametrize(("changes", "message"),
                         [({"stream": STREAM.tolist()}, "stream: got list"),
                          ({"stream": STREAM + 60}, "stream: got token ids"),
                          ({"stream": STREAM.double()}, "stream: got torch.float64"),
                          ({"length": 129}, "length: got 129 tokens"),
                          ({"length": 2.0}, "length: got 2.0"),
                          ({"windows": "4"}, "windows: got '4'"), ({"batch": 0}, "batch: got 0")])
def test_perplexity_names_what_it_cannot_take(changes, message):
    with pytest.raises(ValueError, match=message):
        perplexity(tiny("gpt2"), **{"stream": STREAM, "length": 16, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"length": 129}, "length: got 129 tokens"), ({"questions": 0}, "questions: got 0"),
     ({"batch": 2.5}, "batch: got 2.5"), ({"positions": (0.5, 2)}, "positions: got 2"),
     ({"positions": ("end",)}, "positions: got 'end'"), ({"text": [1, 2]}, "text: got list"),
     ({"text": STREAM + 60}, "text: got token ids"), ({"seed": -1}, "seed: got -1")])
def test_exact_match_names_what_it_cannot_take(changes, message):
    task = SimpleNamespace(document_length=8, question_length=4)
    with pytest.raises(ValueError, match=message):
        exact_match(tiny("gpt2"), task, **{"length": 64, "text": STREAM, **changes})


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [*((FinetuneConfig, name, value) for name in ("steps", "warmup", "save_every", "accumulation")
       for value in (-1, 2.5, "3", None, True, 2**63)),
     *((FinetuneConfig, name, value) for name in ("learning_rate", "weight_decay", "clip", "grow")
       for value in (-1, float("nan"), float("inf"), "1", None)),
     *((Reading, name, value) for name in ("length", "rows", "seed", "shift")
       for value in (-1, 2.5, "3", True)),
     *((Reading, "text_share", value) for value in (-0.1, 1.1, float("nan"), "half", None)),
     *((Mixture, name, value) for name in ("length", "rows", "seed", "shift")
       for value in (-1, 2.5, "3", None, True)),
     *((Mixture, "stream", value) for value in (STREAM.tolist(), None, "text", STREAM[None],
                                                STREAM[:5])), (Mixture, "text_share", "half")])
def test_settings_of_training_are_named(kind, name, value):
    settings = {"stream": STREAM, "tasks": (), "length": 16, "rows": 2,
                "text_share": 1.0} if kind is Mixture else {}
    with pytest.raises(ValueError, match=f"{name}.*: got"):
        kind(**settings | {name: value})


def test_places_that_are_no_paths_are_named(tmp_path):
    (tmp_path / "file").touch()
    model = tiny("gpt2")
    for value in (None, 3, "", [tmp_path]):
        with pytest.raises(ValueError, match="folder: got"):
            save_pretrained(model, value)
        with pytest.raises(ValueError, match="path_or_name: got"):
            load_pretrained(value)
    with pytest.raises(ValueError, match="folder: cannot write to"):
        save_pretrained(model, tmp_path / "file" / "model")
    with pytest.raises(ValueError, match="tokenizer: got str"):
        save_pretrained(model, tmp_path / "model", "gpt2")
    with pytest.raises(ValueError, match="dtype: got 'float32'"):
        load_pretrained(tmp_path, dtype="float32")
    with pytest.raises(ValueError, match="text: got int"):
        load_corpus(3)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("changes", [{"length": "9"}, {"length": -1}, {"length": 2.5}, {"batch": 0},
                                     {"itemsize": None}], ids=str)
@pytest.mark.parametrize("name", sorted(CACHES))
def test_sizes_that_are_none_are_refused(name, changes):
    sizes = {"length": 9, "batch": 1, "itemsize": 4, **changes}
    cache = CACHES[name](swap_attention(tiny("gpt2"), name))
    with pytest.raises(ValueError, match=f"{next(iter(changes))}: got"):
        cache.expected_bytes(sizes.pop("length"), **sizes)
