"""The four scores of heads, on tiny models: each against its definition written out."""

import pytest
import torch
import torch.nn.functional as F

from cca_lab.mechanisms import CCA, Full, KeptHeads
from cca_lab.mechanisms.caching.base import IMPLEMENTATION, CacheSizes
from cca_lab.models import attention_maps, attention_of, retrieval, swap_attention
from cca_lab.models.retrieval import (
    Prompt,
    answer_loss,
    by_attention,
    by_gain,
    by_gates,
    by_loss,
)
from tests.mechanisms import bench
from tests.models.tiny import TWO, logits, text, tiny
from tests.mutants import retrieval as wrong

OTHER = CCA(group=4, window=3)


def quiet(share, words):
    assert 0 <= share <= 1


def prompts(count=2):
    """Texts of 30 tokens whose last three are the answer, which stands at 7 to 9 as well."""
    made = []
    for seed in range(count):
        ids = text(30, seed=seed)
        ids[0, 27:] = ids[0, 7:10]
        made.append(Prompt(ids, 3, [7, 8, 9]))
    return made


def check_by_attention(family):
    model, given = tiny(family), prompts()
    got, kv_heads = by_attention(model, given, quiet), 2 if family in ("llama", "qwen2") else 4
    wanted = torch.zeros(2, kv_heads)
    for prompt in given:
        maps = attention_maps(model, prompt.ids)
        for layer in range(2):
            for head in range(4):
                for row in (26, 27, 28):  # they predict the tokens 27, 28 and 29
                    weight = maps[layer, head, row, 7:10].sum() / (3 * 4 // kv_heads)
                    wanted[layer, head * kv_heads // 4] += float(weight) / len(given)
    assert torch.allclose(got.float(), wanted, atol=1e-6), "weight of the needle"


@pytest.mark.parametrize("family", TWO)
def test_by_attention(family):
    check_by_attention(family)


@torch.no_grad()
@pytest.mark.parametrize("family", TWO)
def test_by_loss(family):
    model, given = tiny(family), prompts()
    kv_heads = 2 if family == "llama" else 4
    got = by_loss(model, OTHER, given, quiet)
    base = sum(float(answer_loss(model, prompt)) for prompt in given) / 2
    for layer in range(2):
        for head in range(kv_heads):
            kept = [list(range(kv_heads)) for _ in range(2)]
            kept[layer] = [other for other in range(kv_heads) if other != head]
            swap_attention(model, KeptHeads.around(OTHER, kept))
            loss = sum(float(answer_loss(model, prompt)) for prompt in given) / 2
            assert got[layer, head] == pytest.approx(loss - base, abs=1e-6)
    swap_attention(model, "full")


def gated_logits(model, gate, ids):
    kv_heads = CacheSizes.of(model.config).kv_heads
    with retrieval._gated(model, OTHER, torch.full((2, kv_heads), gate)):
        return logits(model, ids)


@pytest.mark.parametrize("family", TWO)
def test_open_gates_are_full_attention_and_closed_ones_the_other(family):
    check_gates(family)


def check_gates(family):
    model, ids = tiny(family), text(25, rows=2)
    bench.assert_close(gated_logits(model, 1.0, ids), logits(model, ids), "open gates", 1e-10)
    closed = gated_logits(model, 0.0, ids)
    swap_attention(model, OTHER)
    bench.assert_close(closed, logits(model, ids), "closed gates", 1e-10)


def exact_loss(model, prompt):
    """`answer_loss` in float64, as differences need it."""
    rows = logits(model, prompt.ids)[0, -prompt.answer - 1:-1]
    return F.cross_entropy(rows, prompt.ids[0, -prompt.answer:]).item()


def check_slopes(family, monkeypatch):
    """With one node, the gain is the slope of the loss where all gates are half open."""
    monkeypatch.setattr(retrieval, "NODES", 1)
    model, (prompt,) = tiny(family), prompts(1)
    slopes = by_gain(model, OTHER, [prompt], quiet)
    assert slopes.shape == (2, CacheSizes.of(model.config).kv_heads)
    step = 1e-3  # norms compute in float32: 1e-7 / 1e-3 of error
    for layer, head in ((0, 0), (1, 1)):
        losses = []
        for change in (-step, step):
            gates = torch.full(slopes.shape, 0.5, dtype=torch.float64)
            gates[layer, head] += change
            with retrieval._gated(model, OTHER, gates):
                losses.append(exact_loss(model, prompt))
        slope = (losses[0] - losses[1]) / (2 * step)
        assert slopes[layer, head].item() == pytest.approx(slope, rel=1e-3, abs=2e-4)


@pytest.mark.parametrize("family", TWO)
def test_by_gain(family, monkeypatch):
    check_slopes(family, monkeypatch)


def check_gains(family):
    """The gains of all heads add up to what full attention gains; 3 nodes are this close."""
    model, given = tiny(family), prompts(3)
    gains = by_gain(model, OTHER, given, quiet).sum().item()
    whole = [exact_loss(model, prompt) for prompt in given]
    swap_attention(model, OTHER)
    other = [exact_loss(model, prompt) for prompt in given]
    assert gains == pytest.approx((sum(other) - sum(whole)) / 3, rel=0.05), "gains of all"


@pytest.mark.parametrize("family", TWO)
def test_gains_of_all_heads_add_up_to_full_attention(family):
    check_gains(family)


@pytest.mark.parametrize(("name", "mutant", "check", "words"), [
    ("gated_forward", wrong.gates_the_wrong_way_round, lambda: check_gates("gpt2"), "open gates"),
    ("gated_forward", wrong.gates_the_wrong_way_round, lambda: check_gains("gpt2"), "gains of"),
    ("attention_maps", wrong.maps_one_row_late, lambda: check_by_attention("llama"), "weight of"),
])
def test_mutants_are_killed(name, mutant, check, words, monkeypatch):
    monkeypatch.setattr(retrieval, name, mutant(getattr(retrieval, name)))
    if name == "gated_forward":
        retrieval.AttentionInterface.register(retrieval.GATED, retrieval.gated_forward)
    try:
        with pytest.raises(AssertionError, match=words):
            check()
    finally:
        monkeypatch.undo()
        retrieval.AttentionInterface.register(retrieval.GATED, retrieval.gated_forward)


def test_gates_close_and_the_model_stays_as_it_was(monkeypatch):
    monkeypatch.setattr(retrieval, "PENALTY", 3.0)
    model = tiny("llama")
    model.model.embed_tokens.weight.requires_grad_(False)
    before = {name: (weight.clone(), weight.requires_grad)
              for name, weight in model.named_parameters()}
    gates = by_gates(model, OTHER, prompts(20), quiet)
    assert gates.shape == (2, 2) and ((gates >= 0) & (gates < 1)).all()
    for name, weight in model.named_parameters():
        assert torch.equal(weight, before[name][0]) and weight.requires_grad == before[name][1]
        assert weight.grad is None
    assert attention_of(model) == Full()
    assert model.config._attn_implementation not in (retrieval.GATED, IMPLEMENTATION)


@pytest.mark.parametrize("score", [by_attention, by_loss, by_gates, by_gain])
def test_a_swapped_model_attends_as_before(score):
    """And has the scores of the model with full attention."""
    arguments = (prompts(3), quiet) if score is by_attention else (OTHER, prompts(3), quiet)
    model = swap_attention(tiny("llama"), OTHER)
    got = score(model, *arguments)
    assert attention_of(model) == OTHER
    assert torch.allclose(got, score(tiny("llama"), *arguments), atol=1e-6)
