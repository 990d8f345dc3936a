"""`cca-lab study model`: attentions of one model in turns, and the model as it was afterwards."""

import json

import pytest
import torch
from transformers import DynamicCache

from cca_lab.models import save_pretrained, swapped
from cca_lab.studies.benchmarks import model as bench


def test_a_run_writes_and_prints_what_it_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bench, "STEP", (2, 24))
    file = tmp_path / "model.json"
    bench.ModelBench(layers=1, width=16, heads=2, prompt=(20, 40), attention=("cca",), rounds=1,
                     out=file).run()
    result = json.loads(file.read_text())
    assert [(row["prompt"], row["attention"]) for row in result["writing"]] == [
        (prompt, name) for prompt in (20, 40) for name in ("full", "cca")]
    assert result["writing"][0]["cache_bytes"] == 2 * 20 * 16 * 4
    assert result["writing"][0]["first_ratio"] == result["training"][0]["step_ratio"] == 1.0
    for row in result["training"]:
        assert row["tokens_a_second"] == pytest.approx(48 / row["step_seconds"])
    assert bench.table(result) in capsys.readouterr().out


def test_what_is_written_is_what_a_forward_over_the_text_says():
    """The prompt's first token, and each of the others, from the cache."""
    model = bench.new_gpt2(1, 16, 2, 64).double().eval()
    ids, seen = torch.randint(64, (20,)), []
    model.register_forward_hook(lambda module, args, output: seen.append(output.logits[0, -1]))
    with swapped(model, "cca", group=4, window=8):
        written = bench.write(model, bench.new_cache(model, "cca"), ids[:15], ids[15:])
        whole = model(ids[None]).logits[0, 14:]
    assert len(written.tokens) == 5 and written.first > 0
    assert torch.allclose(torch.stack(seen[:6]), whole, atol=1e-12)


def test_bytes_are_those_after_the_prompt_and_without_a_cache_there_are_none():
    model = bench.new_gpt2(1, 16, 2, 64)
    ids = torch.randint(64, (20,))
    assert bench.write(model, DynamicCache(), ids[:15], ids[15:]).nbytes == 2 * 15 * 16 * 4
    assert bench.write(model, None, ids[:15], ids[15:])[1:] == ([], None)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a model of two layers and two heads that reads 96 tokens."""
    monkeypatch.setattr(bench, "WARM", 8)
    save_pretrained(bench.new_gpt2(2, 32, 2, 96), tmp_path / "base")
    return tmp_path


def test_a_real_model_with_each_attention(folder, monkeypatch):
    """Time, memory and training; one head of four is kept in full."""
    peaks = []
    monkeypatch.setattr(bench, "STEPS_REAL", ((1, 24),))
    monkeypatch.setattr(bench, "peak_of", lambda prepare, *case: peaks.append(case) or 2**20)
    scores = {"best": "loss", "scores": {"loss": [[0.0, 2.0], [1.0, 0.0]]}}
    (folder / "heads.json").write_text(json.dumps(scores))
    bench.ModelBench(model=str(folder / "base"), retrieval=folder / "heads.json", keep=1,
                     prompt=(24,), rounds=1, out=folder / "model.json").run()
    result = json.loads((folder / "model.json").read_text())
    names = ["full", "cca", "streaming_llm", "kept_heads"]
    assert [row["attention"] for row in result["writing"]] == names
    assert [case[1::2] for case in peaks] == [(name, 24) for name in names]
    assert result["writing"][0]["cache_bytes"] == 2 * 2 * 24 * 32 * 4
    assert result["options"]["cca"]["sinks"] == 4
    assert result["options"]["kept_heads"]["kept"] == [[1], []]
    assert [row["attention"] for row in result["training"]] == ["full", "cca"]


def test_a_cell_of_memory_reads_its_prompt(folder):
    """What `peak_of` calls in a process; the mutant reads the short warm-up alone."""
    call = bench.prepare(str(folder / "base"), "full", {}, 40)
    assert call().nbytes == 2 * 2 * 40 * 32 * 4  # keys and values, layers, tokens, width, bytes
