"""The comparison of all mechanisms: equal budgets, and a row for each that runs at inference."""

import json

import pytest
import torch

from cca_lab.caches import CACHES
from cca_lab.caches.budget import KNOBS, fits, fitted_options
from cca_lab.commands import compare as command
from cca_lab.commands.compare import compare, times
from cca_lab.mechanisms import MECHANISMS
from cca_lab.models import save_pretrained, swap_attention
from tests.training import small


@pytest.mark.parametrize("name", KNOBS)
@pytest.mark.parametrize("entries", [24, 40])
def test_the_budget_is_used_and_kept(name, entries):
    """What is measured fits, and one step more of the knob would not."""
    model, length = small.model().eval(), 100
    options = fitted_options(model.config, name, entries, length)
    swap_attention(model, name, **options)
    cache = CACHES[name](model)
    with torch.no_grad():
        model(torch.randint(1, 100, (1, length)), past_key_values=cache, use_cache=True)
    layers, heads = model.config.num_hidden_layers, model.config.num_attention_heads
    budget = 2 * entries * layers * model.config.hidden_size * 4
    assert cache.nbytes() <= budget, f"{cache.nbytes()} bytes of {budget}"
    assert cache.nbytes() >= budget - 2 * 16 * layers * model.config.hidden_size * 4 - 8 * heads * layers * entries


def test_every_cache_can_be_fitted_and_too_small_a_budget_is_refused():
    assert all(fits(name) for name in CACHES)
    with pytest.raises(ValueError, match="entries: got 3"):
        fitted_options(small.model().config, "cca", 3, 100)


def test_a_row_for_every_mechanism_that_runs_at_inference(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "ROUNDS", 1)
    monkeypatch.setattr(command, "DECODED", 2)
    text = tmp_path / "text.txt"
    text.write_text(small.corpus().train[0] * 3)
    save_pretrained(small.model(), tmp_path / "model", small.tokenizer())
    found = compare(str(tmp_path / "model"), entries=40, length=100, windows=1, questions=1, text=str(text),
                    out=tmp_path / "compare.json")
    assert set(found["rows"]) == {name for name, row in MECHANISMS.items() if not row.training_only}
    assert json.loads((tmp_path / "compare.json").read_text())["rows"].keys() == found["rows"].keys()
    for name, row in found["rows"].items():
        assert row["perplexity"]["value"] > 1 and row["prefill_seconds"] > 0
        assert (row["cache_bytes"] is None) == (name not in CACHES and name != "full")
    sizes = {name: row["cache_bytes"] for name, row in found["rows"].items() if row["cache_bytes"]}
    assert all(size < sizes["full"] for name, size in sizes.items() if name != "full"), sizes


def test_bytes_are_those_after_the_prompt():
    model = small.model()
    swap_attention(model, "streaming_llm", sinks=2, recent=6)
    found = times(model, "streaming_llm", torch.randint(1, 100, (40,)))
    assert found["cache_bytes"] == 2 * 8 * model.config.num_hidden_layers * model.config.hidden_size * 4
