"""Attention transfer: each layer by itself, answers count more, and training lowers the error."""

import copy

import pytest
import torch

from cca_lab.mechanisms import CCA, KeptHeads
from cca_lab.models import swap_attention, transfer
from cca_lab.models.finetune import Finetuner
from cca_lab.models.plugin import attention_modules
from cca_lab.models.recipe import FinetuneConfig
from cca_lab.models.transfer import ANSWERS, Teacher, row_errors, weights_of
from cca_lab.tasks.mixture import Mixture
from tests.models.tiny import FAMILIES, text, tiny
from tests.mutants import transfer as wrong

LENGTH = 24


def swapped(family, mechanism=None):
    return swap_attention(tiny(family), mechanism or CCA(group=4, window=3))


def errors(model, teacher, ids):
    return row_errors(model, teacher, ids, torch.ones(ids.shape)).detach()


@pytest.mark.parametrize("family", FAMILIES)
def test_full_attention_has_no_error_and_pooled_has(family):
    ids = text(LENGTH, rows=2)
    exact = swapped(family, CCA(group=4, window=LENGTH))
    assert errors(exact, Teacher(exact), ids).max() < 1e-12
    model = swapped(family)
    assert errors(model, Teacher(model), ids).min() > 1e-6


def layer_by_layer(model, ids):
    """The error of each layer, from the inputs that full attention gives it; written out."""
    full, found = Teacher(model).model, []
    for index, layer in enumerate(attention_modules(model)):
        seen = {}
        original = attention_modules(full)[index]
        handle = original.register_forward_hook(
            lambda module, args, given, out, seen=seen: seen.update(given=given, args=args,
                                                                    out=out[0]),
            with_kwargs=True)
        with torch.no_grad():
            full.base_model(input_ids=ids, use_cache=False)
            handle.remove()
            got = layer(*seen["args"], **seen["given"] | {"attention_mask": None})[0]
        # summed over tokens and features, by the mean size of a token's vector
        off = (got - seen["out"]).float()
        found.append((off**2).sum((1, 2)) / (seen["out"].float()**2).sum(-1).mean(1))
    return torch.stack(found).mean(0)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_error_is_the_mean_over_the_layers(family):
    model, ids = swapped(family), text(LENGTH, rows=2)
    together = errors(model, Teacher(model), ids)
    assert torch.allclose(together, layer_by_layer(model, ids), rtol=1e-5)
    apart = torch.cat([errors(model, Teacher(model), row[None]) for row in ids])
    assert torch.allclose(together, apart, rtol=1e-5), "a row's error depends on the others"


def test_full_attention_has_nothing_to_learn():
    config = FinetuneConfig(steps=1, objective="attention", precision="float32")
    with pytest.raises(ValueError, match="^objective: got 'attention' for a model with full"):
        Finetuner(tiny("llama"), Mixture(text(500)[0], (), LENGTH, 4, 1.0, 0), config)


def test_a_layer_reads_what_the_full_model_gives_it(monkeypatch):
    check_independence()
    monkeypatch.setattr(transfer, "row_errors", wrong.one_layer_after_another)
    with pytest.raises(AssertionError, match="another layer's weights"):
        check_independence()


def check_independence():
    """Another first layer changes the first layer's error alone."""
    model, ids = swapped("llama"), text(LENGTH, rows=2)
    teacher, other = Teacher(model), copy.deepcopy(model)
    with torch.no_grad():
        attention_modules(other)[0].v_proj.weight.mul_(1.5)
    second = attention_modules(model)[1].q_proj.weight, attention_modules(other)[1].q_proj.weight
    gradients = [torch.autograd.grad(
        transfer.row_errors(each, teacher, ids, torch.ones(ids.shape)).sum(), weight)[0]
        for each, weight in zip((model, other), second, strict=True)]
    assert torch.equal(*gradients), "another layer's weights matter"


def test_tokens_that_predict_an_answer_count_more():
    known = torch.zeros(3, 6, dtype=torch.bool)
    known[0] = True  # text
    known[1, 3:5] = True  # an answer of two tokens
    weights = weights_of(known, torch.tensor([False, True, True]))
    wanted = torch.ones(3, 6)
    wanted[1, 2:4] = ANSWERS
    assert torch.equal(weights, wanted)


@pytest.mark.parametrize(("strategy", "mechanism"), [
    ("qkv", CCA(group=4, window=3)),
    ("lora", KeptHeads.around(CCA(group=4, window=3), [[1], []]))], ids=str)
def test_training_lowers_the_error(strategy, mechanism):
    model = swapped("llama", mechanism).float()
    mixture = Mixture(text(500)[0], (), LENGTH, 4, 1.0, 0)
    config = FinetuneConfig(steps=80, strategy=strategy, objective="attention", rank=8, grow=0,
                            learning_rate=1e-2, precision="float32", warmup=1)
    finetuner = Finetuner(model, mixture, config)
    assert finetuner.teacher is not None
    before = {name: weight.clone() for name, weight in finetuner.teacher.model.named_parameters()}
    records = finetuner.run()
    first, last = (sum(record["text_loss"] for record in part) for part in (records[:5],
                                                                            records[-5:]))
    assert last < 0.9 * first
    assert all(torch.equal(weight, before[name])
               for name, weight in finetuner.teacher.model.named_parameters())
