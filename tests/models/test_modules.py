"""What a mechanism trains in a model, from attached to saved, and every mechanism everywhere."""

import copy
import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from cca_lab.mechanisms import MECHANISMS, Full, Mechanism, mechanism_of
from cca_lab.mechanisms.base import EVERY_ROW
from cca_lab.mechanisms.lococo import Compressor, LoCoCo
from cca_lab.models import (
    attention_maps,
    attention_of,
    interface,
    load_pretrained,
    restore_attention,
    save_pretrained,
    swap_attention,
)
from cca_lab.models.checkpoints import MODULES_FILE
from cca_lab.models.interface import MODULE
from cca_lab.models.plugin import modules_of
from tests.mechanisms.options import OPTIONS
from tests.models.tiny import PAD, TWO, left_padded, logits, text, tiny

TOLERANCE = 1e-10  # float64; logits are of order 1
SMALL = {"slots": 4, "segment": 6, "kernel": 3}
each_of_two = pytest.mark.parametrize("family", TWO)
every_mechanism = pytest.mark.parametrize("name", [name for name in MECHANISMS if name != "full"])


def assert_equal(got: torch.Tensor, wanted: torch.Tensor, tolerance: float = TOLERANCE) -> None:
    error = (got - wanted).abs().max().item()
    assert error <= tolerance, f"max error {error:.3g}, {error / tolerance:.3g} times the tolerance"


def swapped(family: str, seed: int = 0, **options):
    model = tiny(family)
    torch.manual_seed(seed)
    return swap_attention(model, "lococo", **SMALL | options)


def weights(model) -> list[torch.Tensor]:
    return [module.conv.weight for module in modules_of(model).values()]


# ---- attached and taken away


@each_of_two
def test_each_layer_gets_its_own_module(family):
    model = swapped(family)
    modules = [module for module in model.modules() if isinstance(module, Compressor)]
    assert list(modules_of(model)) == ["0", "1"] and list(modules_of(model).values()) == modules
    for module in modules:
        weight = module.conv.weight
        assert weight.shape == (4, 2 * 8, 3) and weight.dtype is torch.float64
        assert not module.training and all(p.requires_grad for p in module.parameters())
    first, second = weights(model)
    assert not torch.equal(first, second)
    assert torch.equal(weights(swapped(family))[0], first), "the same seed, the same weights"
    assert not torch.equal(weights(swapped(family, seed=1))[0], first)
    assert {name for name, _ in model.named_parameters()} > {
        name for name, _ in tiny(family).named_parameters()}


@each_of_two
def test_restoring_removes_the_modules(family):
    model, ids = tiny(family), text(20)
    wanted = logits(model, ids)
    names = list(model.state_dict())
    swap_attention(model, "lococo", **SMALL)
    assert (logits(model, ids) - wanted).abs().max() > 1e-3
    restore_attention(model)
    assert list(model.state_dict()) == names and torch.equal(logits(model, ids), wanted)
    swap_attention(swap_attention(model, "lococo", **SMALL), "cca", group=4, window=6)
    assert modules_of(model) == {} and list(model.state_dict()) == names


def test_what_was_learnt_stays_as_long_as_it_fits():
    model = swapped("gpt2")
    learnt = weights(model)
    swap_attention(model, "lococo", **SMALL | {"segment": 3, "weights": "relu"})
    assert all(map(torch.equal, weights(model), learnt)) and attention_of(model).segment == 3
    swap_attention(model, "lococo", **SMALL | {"slots": 5})
    assert [tuple(w.shape) for w in weights(model)] == [(5, 16, 3)] * 2
    swap_attention(model, "lococo", **SMALL | {"heavy": 4})
    assert modules_of(model) == {}, "nothing to train if every slot keeps a token"


def test_a_copy_has_modules_of_its_own():
    model, ids = swapped("gpt2"), text(20)
    other = copy.deepcopy(model)
    with torch.no_grad():
        weights(other)[0].zero_()
    assert (logits(other, ids) - logits(model, ids)).abs().max() > 1e-6
    restore_attention(other)
    assert len(modules_of(model)) == 2


# ---- handed over


def check_against_loops(family: str, monkeypatch) -> None:
    """The model's logits with the loops in its place; each call gets the module of its layer."""
    given = []

    def loops(self, *tensors, module=None, **call):
        given.append(module)
        return self.loops(*tensors, module=module, **call)

    model, ids = swapped(family, heavy=1), text(17)
    for module in modules_of(model).values():
        with torch.no_grad():
            module.conv.weight.mul_(4)
    got = logits(model, ids)
    monkeypatch.setattr(LoCoCo, "attention", loops)
    assert_equal(got, logits(model, ids))
    assert given == list(modules_of(model).values()), "each layer hands over its own module"


@each_of_two
def test_model_equals_the_loops(family, monkeypatch):
    check_against_loops(family, monkeypatch)


@each_of_two
def test_gradients_reach_the_modules(family):
    model, ids = swapped(family).train(), text(24, rows=2)
    model(ids, labels=ids).loss.backward()
    wanted = [w.grad.clone() for w in weights(model)]
    assert all(gradient.abs().max() > 1e-8 for gradient in wanted)
    model.zero_grad()
    model.activation_checkpointing_enable()
    model(ids, labels=ids).loss.backward()
    assert all(map(torch.equal, [w.grad for w in weights(model)], wanted))


# ---- saved and loaded


@each_of_two
def test_what_was_learnt_comes_back(family, tmp_path):
    model, ids = swapped(family).float(), text(20)
    with torch.no_grad():
        for module in modules_of(model).values():
            module.conv.bias.uniform_()
    torch.manual_seed(9)
    save_pretrained(model, tmp_path / "model")
    for choice in ([], ["lococo"]):
        options = {} if not choice else attention_of(model).options()
        again, _ = load_pretrained(tmp_path / "model", *choice, **options)
        assert attention_of(again) == attention_of(model)
        assert torch.equal(logits(again, ids), logits(model, ids))
    plain, report = AutoModelForCausalLM.from_pretrained(tmp_path / "model",
                                                         output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert attention_of(plain) == Full()
    assert_equal(logits(plain, ids), logits(tiny(family).float(), ids), 1e-5)
    half, _ = load_pretrained(tmp_path / "model", dtype=torch.float64)
    assert weights(half)[0].dtype is torch.float64
    assert torch.equal(weights(half)[0].float(), weights(model)[0])


def test_the_files_of_a_checkpoint(tmp_path):
    model = swapped("gpt2").float()
    save_pretrained(model, tmp_path / "model")
    learnt = load_file(tmp_path / "model" / MODULES_FILE)
    assert set(learnt) == {f"{layer}.conv.{kind}" for layer in (0, 1)
                           for kind in ("weight", "bias")}
    assert not any(MODULE in name for name in load_file(tmp_path / "model" / "model.safetensors"))
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["cca_lab_attention"]["slots"] == 4
    save_pretrained(swap_attention(model, "cca", group=4, window=6), tmp_path / "model")
    assert not (tmp_path / "model" / MODULES_FILE).exists()


def test_another_attention_or_another_size_loads_no_weights(tmp_path):
    save_pretrained(swapped("gpt2"), tmp_path / "model")
    assert modules_of(load_pretrained(tmp_path / "model", "full")[0]) == {}
    with pytest.raises(ValueError, match="size mismatch for 0.conv"):
        load_pretrained(tmp_path / "model", "lococo", **SMALL | {"slots": 5})
    (tmp_path / "model" / MODULES_FILE).unlink()
    with pytest.raises(ValueError, match=f"holds no {MODULES_FILE}"):
        load_pretrained(tmp_path / "model")
    save_pretrained(tiny("gpt2"), tmp_path / "model")
    assert len(modules_of(load_pretrained(tmp_path / "model", "lococo", **SMALL)[0])) == 2


# ---- every mechanism


@every_mechanism
def test_every_mechanism_runs_in_a_model(name, monkeypatch):
    """Forward, and maps that times the values are the output."""
    calls, as_written = [], MECHANISMS[name].attention

    def attention(self, q, k, v, **call):
        calls.append((v, as_written(self, q, k, v, **call)))
        return calls[-1][1]

    model, ids = swap_attention(tiny("llama"), name, **OPTIONS[name][0]), text(17)
    monkeypatch.setattr(MECHANISMS[name], "attention", attention)
    maps = attention_maps(model, ids)  # (layers, H, L, L)
    assert_equal(maps.sum(-1), torch.ones(2, 4, 17, dtype=torch.float64))
    assert maps.triu(1).abs().max() == 0
    for layer, (value, output) in enumerate(calls):
        value = value.repeat_interleave(4 // value.shape[1], dim=1)
        assert_equal(maps[layer] @ value[0], output[0])
    assert (logits(model, ids) - logits(tiny("llama"), ids)).abs().max() > 1e-6


def check_padding(name: str, family: str, options: dict) -> None:
    """Left and right of rows of different length, with maps: each row as it is alone."""
    model = swap_attention(tiny(family), name, **options)
    rows = [text(n, seed=n)[0] for n in (19, 16, 3)]
    alone = [(logits(model, tokens[None])[0], attention_maps(model, tokens)) for tokens in rows]
    left_ids, left_mask, _ = left_padded(rows, holes=2)
    right_ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    right_mask = (torch.arange(19) < torch.tensor([[19], [16], [3]])).long()
    for ids, mask in ((left_ids, left_mask), (right_ids, right_mask)):
        positions = (mask.cumsum(-1) - 1).clamp_min(0)
        with torch.no_grad():
            outputs = model(ids, attention_mask=mask, position_ids=positions,
                            output_attentions=True)
        for row, (wanted, wanted_maps) in enumerate(alone):
            real = mask[row].bool()
            assert_equal(outputs.logits[row, real], wanted)
            maps = torch.stack([layer[row] for layer in outputs.attentions])
            assert_equal(maps[:, :, real][..., real], wanted_maps)
            assert maps[:, :, ~real].abs().sum() == 0 and maps[..., ~real].abs().sum() == 0


@every_mechanism
def test_padding_changes_nothing_in_any_mechanism(name):
    for options in (OPTIONS[name][0], OPTIONS[name][-1]):
        check_padding(name, "llama", options)


def first_that_chooses() -> Mechanism:
    """A mechanism that chooses from the whole prompt."""
    each = (mechanism_of(name, options) for name, cases in OPTIONS.items() for options in cases)
    return next(mechanism for mechanism in each if mechanism.causal_scope != EVERY_ROW)


def test_a_row_without_tokens_is_zero():
    q = torch.randn(2, 2, 9, 4)
    mask = torch.tensor([[0] * 9, [0] * 4 + [1] * 5])
    output, maps = interface._attend_whole(first_that_chooses(), None, q, q, q, mask, 0.5, None,
                                           maps=True)
    assert output.shape == (2, 9, 2, 4) and maps.shape == (2, 2, 9, 9)
    assert output[0].abs().max() == maps[0].abs().max() == 0 and output[1, 4:].abs().min() > 0
