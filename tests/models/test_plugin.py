"""swap_attention: full attention where it must be, padding, gradients, maps, and clear errors."""


import pytest
import torch
from transformers import AttentionInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from cca_lab.mechanisms import CCA, Full
from cca_lab.models import (
    attention_maps,
    attention_of,
    disable_attention_dropout,
    interface,
    plugin,
    restore_attention,
    swap_attention,
)
from tests.models.tiny import FAMILIES, TWO, left_padded, logits, text, tiny
from tests.mutants import models as mutants

TOLERANCE = 1e-10  # float64; logits are of order 1
ROTARY = ("llama", "qwen2")


def assert_equal(got: torch.Tensor, wanted: torch.Tensor, tolerance: float = TOLERANCE) -> None:
    error = (got - wanted).abs().max().item()
    assert error <= tolerance, f"max error {error:.3g}, {error / tolerance:.3g} times the tolerance"


# ---- the limit case, and the way back


def check_wide_window(family: str) -> None:
    model, ids = tiny(family), text(33, rows=2)
    wanted = logits(model, ids)
    swap_attention(model, "cca", group=4, window=33)
    assert_equal(logits(model, ids), wanted)


@pytest.mark.parametrize("family", FAMILIES)
def test_wide_window_is_full(family):
    check_wide_window(family)


def test_wide_window_kills_recomputed_scaling(monkeypatch):
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "cca_lab",
                        mutants.scaling_recomputed)
    with pytest.raises(AssertionError, match="max error"):
        check_wide_window("opt")


@pytest.mark.parametrize("family", TWO)
def test_two_models_of_one_config_attend_each_in_its_own_way(family):
    """The mutant that writes the choice into the shared config changes the first model."""
    first, ids = tiny(family), text(30)
    second = type(first)(first.config).eval().double()
    plain = logits(second, ids)
    swap_attention(first, "cca", group=3, window=4)
    wanted = logits(first, ids)
    assert torch.equal(logits(second, ids), plain)
    swap_attention(second, "cca", group=5, window=2)
    assert torch.equal(logits(first, ids), wanted)
    restore_attention(second)
    assert torch.equal(logits(first, ids), wanted) and torch.equal(logits(second, ids), plain)
    assert attention_of(first) == CCA(group=3, window=4) and attention_of(second) == Full()


@pytest.mark.parametrize("family", TWO)
def test_swap_and_back_is_bit_equal(family):
    model, ids = tiny(family), text(30)
    wanted, implementation = logits(model, ids), model.config._attn_implementation
    swap_attention(model, "cca", group=4, window=6)
    changed = logits(model, ids)
    assert (changed - wanted).abs().max() > 1e-3, "the swap changed nothing"
    assert swap_attention(model, "full") is model
    assert torch.equal(logits(model, ids), wanted)
    assert attention_of(model) == Full() and model.config._attn_implementation == implementation
    assert not hasattr(model.config, "cca_lab_attention")
    assert not any(module._forward_pre_hooks for module in model.modules()), "hooks are left"
    assert torch.equal(logits(restore_attention(model), ids), wanted)
    assert torch.equal(logits(swap_attention(model, "cca", group=4, window=6), ids), changed)


# ---- against the specification


def check_against_loops(family: str, monkeypatch) -> None:
    """The model's logits with the mechanism's loops in place of its vectorised form."""
    def loops(mechanism, q, k, v, **call):
        assert (call["rotation"] is not None) == (family
                                                  in ROTARY), "rotary tables: missing or too many"
        return mechanism.loops(q, k, v, **call)

    model, ids = swap_attention(tiny(family), "cca", group=3, window=5), text(23)
    got = logits(model, ids)
    monkeypatch.setattr(CCA, "attention", loops)
    assert_equal(got, logits(model, ids))


@pytest.mark.parametrize("family", FAMILIES)
def test_model_equals_the_loops(family, monkeypatch):
    check_against_loops(family, monkeypatch)


@pytest.mark.parametrize("family", ROTARY)
def test_loops_kill_rotary_tables_that_are_dropped(family, monkeypatch):
    monkeypatch.setattr(plugin, "attention_hook", mutants.rotation_dropped)
    with pytest.raises(AssertionError, match="rotary tables"):
        check_against_loops(family, monkeypatch)


# ---- padding


def check_padding(family: str) -> None:
    model = swap_attention(tiny(family), "cca", group=4, window=6)
    rows = [text(n, seed=n)[0] for n in (29, 26, 24, 3)]  # padding 2, 5, 7, 28
    ids, mask, positions = left_padded(rows, holes=2)
    got = logits(model, ids, attention_mask=mask, position_ids=positions)
    assert got.isfinite().all()
    for row, tokens in enumerate(rows):
        assert_equal(got[row, -len(tokens):], logits(model, tokens[None])[0])


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_changes_nothing(family):
    check_padding(family)


def test_padding_kills_a_mask_that_is_ignored(monkeypatch):
    monkeypatch.setattr(interface, "left_padding", mutants.padding_ignored)
    with pytest.raises(AssertionError, match="max error"):
        check_padding("llama")


def test_padded_gradients_are_finite_and_equal():
    model, tokens = swap_attention(tiny("llama"), "cca", group=4, window=6), text(21)[0]
    (wanted,) = torch.autograd.grad(model(tokens[None]).logits.square().sum(), model.lm_head.weight)
    ids, mask, positions = left_padded([tokens], holes=3)
    real = model(ids, attention_mask=mask, position_ids=positions).logits[:, 3:]
    (got,) = torch.autograd.grad(real.square().sum(), model.lm_head.weight)
    assert_equal(got, wanted, 1e-10 * wanted.abs().max().item())


@pytest.mark.parametrize(("kwargs", "message"), [
    (dict(attention_mask=torch.tensor([[1, 1, 0, 1, 1, 1, 1, 1]])), "between real tokens"),
    (dict(attention_mask=torch.ones(1, 1, 8, 8, dtype=torch.bool)), "attention_mask: got shape"),
    (dict(position_ids=torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4]])), "packed sequences"),
    (dict(position_ids=torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4]]), use_cache=False),
     "packed sequences"),
])
def test_what_cannot_be_honoured_is_refused(kwargs, message):
    model = swap_attention(tiny("llama"), "cca", group=2, window=3)
    with pytest.raises(ValueError, match=message):
        logits(model, text(8), **kwargs)


# ---- training


@pytest.mark.parametrize("family", TWO)
def test_gradient_checkpointing_changes_no_gradient(family):
    def gradients(model):
        model.zero_grad()
        model(ids, labels=ids).loss.backward()
        return [p.grad.clone() for p in model.parameters()]

    model, ids = swap_attention(tiny(family), "cca", group=4, window=6).train(), text(24, rows=2)
    wanted = gradients(model)
    model.activation_checkpointing_enable()
    got = gradients(model)
    assert any(g.abs().max() > 0 for g in got)
    assert all(torch.equal(g, w) for g, w in zip(got, wanted, strict=True))


@pytest.mark.parametrize("family", TWO)
def test_attention_dropout_is_refused_in_training_only(family):
    model, ids = swap_attention(tiny(family, dropout=0.1), "cca", group=4, window=6), text(12)
    logits(model, ids)
    with pytest.raises(ValueError, match="disable_attention_dropout"):
        model.train()(ids)
    disable_attention_dropout(model)(ids)


def test_autocast_runs_in_the_lower_precision():
    model, ids = swap_attention(tiny("llama").float(), "cca", group=4, window=6), text(24)
    wanted = logits(model, ids)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = logits(model, ids)
    assert 0 < (got - wanted).abs().max() < 0.2


@pytest.mark.nightly
def test_compiled_model_gives_the_same_logits_and_gradients():
    torch.compiler.reset()
    model = swap_attention(tiny("llama", num_hidden_layers=1), "cca", group=4, window=6)
    compiled, ids = torch.compile(model, backend="aot_eager"), text(24)
    wanted = torch.autograd.grad(model(ids, labels=ids, use_cache=False).loss,
                                 model.lm_head.weight)[0]
    got = torch.autograd.grad(compiled(ids, labels=ids, use_cache=False).loss,
                              model.lm_head.weight)[0]
    assert_equal(got, wanted)
    padded, mask, positions = left_padded([text(20)[0], text(23)[0]], holes=1)
    padding = dict(attention_mask=mask, position_ids=positions, use_cache=False)
    assert_equal(logits(compiled, padded, **padding), logits(model, padded, **padding))
    mask[1, 9] = 0
    with pytest.raises(ValueError, match="between real tokens"):
        logits(compiled, padded, **padding)
    positions[1, 12] = 0
    with pytest.raises(ValueError, match="packed sequences"):
        logits(compiled, padded, **padding | dict(attention_mask=torch.ones_like(mask)))
    torch.compiler.reset()


# ---- maps


@pytest.mark.parametrize("family", FAMILIES)
def test_maps_of_full_attention_are_the_softmax_weights(family):
    model, ids = tiny(family), text(17)
    full, implementation = attention_maps(model, ids), model.config._attn_implementation
    assert full.shape == (2, 4, 17, 17) and implementation == "sdpa"
    single = 1e-6  # transformers' eager softmax is in float32
    assert_equal(full.sum(-1), torch.ones(2, 4, 17, dtype=torch.float64), single)
    swap_attention(model, "cca", group=4, window=17)
    assert_equal(attention_maps(model, ids[0]), full, single)


def test_maps_are_computed_only_when_asked_for(monkeypatch):
    calls, own = [], CCA.effective

    def effective(*args, **call):
        calls.append(1)
        return own(*args, **call)

    monkeypatch.setattr(CCA, "effective", effective)
    model = swap_attention(tiny("gpt2"), "cca", group=4, window=6)
    logits(model, text(12))
    logits(model, text(12), output_attentions=False)
    assert calls == []
    logits(model, text(12), output_attentions=True)
    assert len(calls) == 2


# ---- bookkeeping


def test_a_mechanism_is_taken_as_it_is_or_by_its_name():
    model, ids, mechanism = tiny("gpt2"), text(30), CCA(group=4, window=6, pooling="mean")
    wanted = logits(swap_attention(model, "cca", group=4, window=6, pooling="mean"), ids)
    assert torch.equal(logits(swap_attention(model, mechanism), ids), wanted)
    assert attention_of(model) == mechanism
    assert attention_of(swap_attention(model, Full())) == Full()
    with pytest.raises(ValueError,
                       match="window: got it beside a CCA, wanted options in the mechanism"):
        swap_attention(model, mechanism, window=7)


def test_a_class_that_the_table_does_not_list_is_refused():
    """A config holds a name: another class of that name would run in its place."""
    class Other(CCA):
        pass

    with pytest.raises(ValueError,
                       match="mechanism: got a Other called 'cca', wanted a class of MECHANISMS"):
        swap_attention(tiny("gpt2"), Other(group=4, window=6))


def test_setting_the_implementation_by_name_is_refused():
    assert "cca_lab" in AttentionInterface().valid_keys()
    model = tiny("gpt2")
    model.set_attn_implementation("cca_lab")
    with pytest.raises(ValueError, match="swap_attention"):
        logits(model, text(5))
