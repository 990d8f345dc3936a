"""The comparison of all mechanisms: equal budgets, and a row for each that runs at inference."""

import json
from dataclasses import replace

import pytest
import torch

from cca_lab.mechanisms import MECHANISMS
from cca_lab.mechanisms.caches import CACHES, LEAST, fits, fitted
from cca_lab.models import save_pretrained, swap_attention
from cca_lab.studies import compare as command
from cca_lab.studies.compare import Compare, times
from tests.studies import small


def most_bytes(mechanism, length, chunk):
    """The largest `nbytes()` of a cache that reads a text in chunks."""
    model = small.model().eval()
    swap_attention(model, mechanism)
    cache, largest = CACHES[mechanism.name](model), 0
    with torch.no_grad():
        for ids in torch.randint(1, 100, (1, length)).split(chunk, dim=1):
            model(ids, past_key_values=cache, use_cache=True)
            largest = max(largest, cache.nbytes())
    return largest


def budget_bytes(config, entries):
    return 2 * entries * config.num_hidden_layers * config.hidden_size * 4


@pytest.mark.parametrize("name", sorted(CACHES.keys() - {"lococo", "kept_heads"}))
@pytest.mark.parametrize("entries", [24, 40])
def test_the_budget_is_kept_and_one_step_more_would_exceed_it(name, entries):
    config, length = small.model().config, 100
    found, sized = fitted(config, name, entries, length), MECHANISMS[name].sized
    more = next(sized(n + 1, length) for n in range(LEAST, length) if sized(n, length) == found)
    assert most_bytes(found, length, length) <= budget_bytes(config, entries) < most_bytes(
        more, length, length)


@pytest.mark.parametrize("entries", [24, 41])
def test_lococo_s_slots_and_open_segment_fill_the_budget_at_their_peak_and_never_more(entries):
    """Read token by token.

    Slots and all but the last token of a segment, which closes it, are held at once.
    """
    config, length = small.model().config, 100
    found, entry = fitted(config, "lococo", entries, length), budget_bytes(config, 1)
    assert found.slots + found.segment == entries
    assert most_bytes(found, length, 1) == (entries - 1) * entry
    assert most_bytes(replace(found, segment=found.segment + 2), length, 1) > entries * entry


def test_every_cache_can_be_fitted_and_too_small_a_budget_is_refused():
    assert all(fits(name) for name in CACHES if not MECHANISMS[name].of_one_model)
    with pytest.raises(ValueError, match="entries: got 3"):
        fitted(small.model().config, "cca", 3, 100)


def test_a_row_for_every_mechanism_that_runs_at_inference(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "ROUNDS", 1)
    monkeypatch.setattr(command, "DECODED", 2)
    text = tmp_path / "text.txt"
    text.write_text(small.corpus().train[0] * 3)
    save_pretrained(small.model(), tmp_path / "model", small.tokenizer())
    study = Compare(model=str(tmp_path / "model"), entries=40, length=100, windows=1, questions=1,
                    text=str(text), out=tmp_path / "compare.json")
    found = study.run()
    assert set(found["rows"]) == {name for name, row in MECHANISMS.items()
                                  if not (row.training_only or row.of_one_model)}
    assert json.loads(
        (tmp_path / "compare.json").read_text())["rows"].keys() == found["rows"].keys()
    for name, row in found["rows"].items():
        assert row["perplexity"]["value"] > 1 and row["prefill_seconds"] > 0
        assert (row["cache_bytes"] is None) == (name not in CACHES and name != "full")
    sizes = {name: row["cache_bytes"] for name, row in found["rows"].items() if row["cache_bytes"]}
    assert all(size < sizes["full"] for name, size in sizes.items() if name != "full"), sizes


def test_bytes_are_those_after_the_prompt():
    model = small.model()
    swap_attention(model, "streaming_llm", sinks=2, recent=6)
    found = times(model, "streaming_llm", torch.randint(1, 100, (40,)))
    assert found[
        "cache_bytes"] == 2 * 8 * model.config.num_hidden_layers * model.config.hidden_size * 4


def test_a_length_without_room_for_a_prompt_is_refused(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(small.corpus().train[0] * 3)
    save_pretrained(small.model(), tmp_path / "model", small.tokenizer())
    with pytest.raises(ValueError, match="length: got 17, wanted at least 18"):
        Compare(model=str(tmp_path / "model"), length=17, text=str(text)).run()
