"""Classes of wrong calls, each refused in one ValueError by every mechanism, cache and family."""

import pytest
import torch
from torch import nn

from cca_lab import MECHANISMS, mechanism_of, pool_groups
from cca_lab.attention.parallel import Shards
from cca_lab.mechanisms.base import Mechanism
from cca_lab.mechanisms.caches import CACHES, fitted, sized
from cca_lab.mechanisms.cca.parallel import context_parallel_cca
from cca_lab.models import attention_maps, swap_attention
from cca_lab.models.checkpoints import load_pretrained, save_pretrained
from cca_lab.models.context import local_inputs
from cca_lab.models.evaluate import exact_match, perplexity
from cca_lab.models.finetune import Finetuner
from cca_lab.models.recipe import FinetuneConfig
from cca_lab.tasks.corpus import load_corpus
from cca_lab.tasks.mixture import Mixture
from cca_lab.tasks.prompts import chosen_task
from tests.mechanisms.options import OPTIONS
from tests.models.tiny import FAMILIES, logits, text, tiny

every_mechanism = pytest.mark.parametrize("name", MECHANISMS)


def save_to(path):
    save_pretrained(tiny("gpt2"), path)


def load_from(path):
    load_pretrained(path)


def tensors(batch=1, heads=4, kv_heads=2, length=8, head_dim=4):
    return (torch.randn(batch, heads, length, head_dim),
            *(torch.randn(batch, kv_heads, length, head_dim) for _ in range(2)))


@pytest.mark.parametrize("size", ["batch", "heads", "kv_heads", "length", "head_dim"])
@every_mechanism
def test_a_size_of_zero_has_one_message(name, size):
    """The mutant that does not look divides by zero."""
    with pytest.raises(ValueError, match="^[qkv]: got the empty shape"):
        mechanism_of(name, OPTIONS[name][0]).attention(*tensors(**{size: 0}))


@pytest.mark.parametrize("size", ["heads", "kv_heads", "head_dim"])
def test_groups_of_no_head_are_refused_and_those_of_no_token_are_none(size):
    with pytest.raises(ValueError, match="^[qkv]: got the empty shape"):
        pool_groups(*tensors(**{size: 0}), 3)
    assert pool_groups(*tensors(length=0), 3)[0].shape == (1, 2, 0, 4)


KINDS = {"integers": lambda x: x.long(), "bools": lambda x: x > 0, "float8":
         lambda x: x.to(torch.float8_e4m3fn), "meta": lambda x: x.to("meta"),
         "sparse": lambda x: x.to_sparse(), "an array": lambda x: x.numpy(),
         "a list": lambda x: x.tolist(), "nothing": lambda x: None}


@pytest.mark.parametrize("kind", KINDS)
@every_mechanism
def test_tensors_of_another_kind_are_named(name, kind):
    """The mutant with any of the checks removed ends in an error of torch."""
    mechanism = mechanism_of(name, OPTIONS[name][0])
    for which in range(3):
        given = list(tensors())
        given[which] = KINDS[kind](given[which])
        with pytest.raises(ValueError, match="^[qkv]: got"):
            mechanism.attention(*given)


@pytest.mark.parametrize("kind", ["integers", "meta", "an array", "a list"])
def test_rotary_tables_of_another_kind_are_named(kind):
    table = torch.randn(8, 4)
    for pair in ((KINDS[kind](table), table), (table, KINDS[kind](table))):
        with pytest.raises(ValueError, match="^rotation: got"):
            mechanism_of("cca", {"group": 3, "window": 2}).attention(*tensors(), rotation=pair)


@every_mechanism
def test_a_module_that_a_mechanism_would_not_use_is_refused(name):
    """The mutant takes any module, and computes without it."""
    mechanism = mechanism_of(name, OPTIONS[name][0])
    if type(mechanism).new_module is not Mechanism.new_module:
        assert name == "lococo"
        return
    with pytest.raises(ValueError, match="^module: got Linear, wanted None: .* nothing to train"):
        mechanism.attention(*tensors(), module=nn.Linear(4, 4))


@pytest.mark.parametrize("options", [None, [], "group", 5])
def test_options_are_a_dict(options):
    with pytest.raises(ValueError, match="^options: got"):
        mechanism_of("cca", options)


OTHER_SIZES = {"layers": {"n_layer": 3}, "heads": {"n_head": 2}, "width": {"n_embd": 64}}


@pytest.mark.parametrize("size", OTHER_SIZES)
@pytest.mark.parametrize("name", CACHES)
def test_a_cache_of_another_model_is_refused(name, size):
    """The mutant that compares mechanisms only ends in an IndexError or in sizes of tensors."""
    options, ids = OPTIONS[name][0], text(12)
    model = swap_attention(tiny("gpt2"), name, **options)
    other = swap_attention(tiny("gpt2", **OTHER_SIZES[size]), name, **options)
    for read in (0, 8):  # an empty cache, too
        cache = CACHES[name](model)
        if read:
            logits(model, ids[:, :read], past_key_values=cache)
        with pytest.raises(ValueError, match="^past_key_values: the cache was made for"):
            logits(other, ids[:, read:], past_key_values=cache)
    again = swap_attention(tiny("gpt2"), name, **options)  # of the same sizes
    assert torch.equal(logits(again, ids, past_key_values=CACHES[name](model)),
                       logits(model, ids, past_key_values=CACHES[name](model)))


@pytest.mark.parametrize("change, named", [
    (lambda cache: cache.reorder_cache(torch.tensor([0, 5])), "rows: got"),
    (lambda cache: cache.reorder_cache(torch.tensor([0, -1])), "rows: got"),
    (lambda cache: cache.batch_select_indices(torch.tensor([], dtype=torch.long)), "rows: got"),
    (lambda cache: cache.batch_repeat_interleave(-1), "repeats: got -1"),
    (lambda cache: cache.batch_repeat_interleave(0), "repeats: got 0"),
    (lambda cache: cache.batch_repeat_interleave(1.5), "repeats: got 1.5")])
@pytest.mark.parametrize("name", CACHES)
def test_rows_that_a_cache_has_not_are_refused(name, change, named):
    model = swap_attention(tiny("gpt2"), name, **OPTIONS[name][0])
    cache = CACHES[name](model)
    logits(model, text(8, rows=2), past_key_values=cache)
    with pytest.raises(ValueError, match=f"^{named}"):
        change(cache)


IDS = text(9, rows=2)
FORWARDS = {
    "one axis": (dict(input_ids=IDS[0]), "input_ids: got shape"),
    "three axes": (dict(input_ids=IDS[None]), "input_ids: got shape"),
    "no token": (dict(input_ids=IDS[:, :0]), "input_ids: got shape"),
    "no text": (dict(input_ids=IDS[:0]), "input_ids: got shape"),
    "flat embeddings": (dict(inputs_embeds=torch.zeros(9, 32).double()), "inputs_embeds: got"),
    "fewer positions": (dict(input_ids=IDS, position_ids=torch.arange(8)[None]), "position_ids"),
    "real positions": (dict(input_ids=IDS, position_ids=torch.arange(9.0)[None]), "position_ids"),
    "negative positions": (dict(input_ids=IDS, position_ids=torch.arange(9)[None] - 5),
                           "position_ids: got -5"),
    "a mask of weights": (dict(input_ids=IDS, attention_mask=torch.full((2, 9), 0.5)),
                          "attention_mask: got other numbers"),
    "a mask of twos": (dict(input_ids=IDS, attention_mask=torch.full((2, 9), 2)),
                       "attention_mask: got other numbers"),
    "a mask with nan": (dict(input_ids=IDS, attention_mask=torch.full((2, 9), torch.nan)),
                        "attention_mask: got other numbers")}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", FORWARDS)
def test_inputs_that_no_model_reads_are_named(family, kind):
    """The mutant without the check of shapes ends in an error of torch, another in each family."""
    given, named = FORWARDS[kind]
    with pytest.raises(ValueError, match=f"^{named}"):
        swap_attention(tiny(family), "cca", group=3, window=4)(**given)


@pytest.mark.parametrize("ids", [torch.tensor(5), IDS[:1, :0], IDS, IDS[None]])
def test_maps_are_of_one_text(ids):
    with pytest.raises(ValueError, match="^input_ids: got shape"):
        attention_maps(tiny("gpt2"), ids)


SHARDS = Shards(12, 2)
CALLS = {
    "a rank beyond": lambda: SHARDS.tokens(2), "a negative rank": lambda: SHARDS.positions(-1),
    "a piece of no process": lambda: SHARDS.piece(torch.zeros(12), 7, 0),
    "parts of other sizes": lambda: SHARDS.joined([torch.zeros(2)], 0),
    "no shards": lambda: context_parallel_cca(mechanism_of("cca", {}), *tensors(), None, None),
    "no model": lambda: local_inputs(None, IDS),
    "no ids": lambda: local_inputs(tiny("gpt2"), None),
    "nothing to train": lambda: Finetuner(None, None, FinetuneConfig()),
    "no task": lambda: exact_match(tiny("gpt2"), None, length=64),
    "a task that is a number": lambda: chosen_task(5),
    "a difficulty that is a number": lambda: chosen_task("key_values", [5]),
    "a stream of two axes": lambda: perplexity(tiny("gpt2"), text(5, rows=5), length=4),
    "a corpus of no name": lambda: load_corpus(""),
    "a stream of real numbers": lambda: Mixture(torch.arange(99.0), (), 64, 2, 1.0),
    "questions that are a number": lambda: Mixture(torch.arange(99), (5,), 64, 2, 0.5),
    "a step before the first": lambda: Mixture(torch.arange(99), (), 64, 2, 1.0).batch(-1),
    "a name that is too long": lambda: save_pretrained(tiny("gpt2"), "s" * 300),
    "a name with a zero": lambda: save_pretrained(tiny("gpt2"), "a\0b"),
    "a budget of no model": lambda: fitted(None, "cca", 30, 64),
    "a budget of no mechanism": lambda: fitted(tiny("gpt2").config, "nope", 30, 64),
    "a budget of no cache": lambda: fitted(tiny("gpt2").config, "longlora", 30, 64),
    "a budget below nothing": lambda: sized("cca", -1, 64),
    "no mixture": lambda: Finetuner(tiny("gpt2"), None, FinetuneConfig())}


@pytest.mark.parametrize("call", CALLS)
def test_nothing_in_place_of_something_is_named(call):
    """The mutants end in an AttributeError of None, or in an IndexError."""
    with pytest.raises(ValueError, match=r"^[\w, ]+: got .*wanted"):
        CALLS[call]()


@pytest.mark.parametrize("use", [save_to, load_from])
def test_nobody_s_home_folder_is_named(use):
    with pytest.raises(ValueError, match="^[a-z_]+: ~nobody-here/x is in nobody's home folder"):
        use("~nobody-here/x")
