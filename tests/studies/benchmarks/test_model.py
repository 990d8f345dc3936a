"""`cca-lab study model`.

Every attention of one model, timed in turns, and the model as it was afterwards.
"""

import json

import pytest
import torch
from transformers import DynamicCache

from cca_lab.mechanisms.caches import CACHES
from cca_lab.models import attention_of, save_pretrained
from cca_lab.studies import tables
from cca_lab.studies.benchmarks import model as bench

TINY = {"layers": 1, "width": 16, "heads": 2}


def test_a_run_writes_what_it_measured(tmp_path, capsys):
    file = tmp_path / "model.json"
    result = bench.ModelBench(**TINY, prompt=(20, 40), attention=("cca", "lococo"), rounds=2,
                              step=(2, 24), out=file).run()
    assert json.loads(file.read_text()) == result
    assert [(row["prompt"], row["attention"]) for row in result["writing"]] == [
        (prompt, name) for prompt in (20, 40) for name in ("full", "cca", "lococo")]
    assert result["writing"][0]["cache_bytes"] == 2 * 20 * 16 * 4
    assert result["writing"][0]["first_ratio"] == result["training"][0]["step_ratio"] == 1.0
    for row in result["training"]:
        assert row["tokens_a_second"] == pytest.approx(48 / row["step_seconds"])
    shown = capsys.readouterr().out
    assert "tokens a second" in shown and "lococo" in shown


def test_every_cache_is_measured():
    assert set(bench.OPTIONS) == set(CACHES) - {"kept_heads"}


def test_a_model_has_its_own_attention_back_also_after_an_error():
    model = bench.new_gpt2(1, 16, 2, 64)
    with pytest.raises(RuntimeError), bench.attending(model, "cca", {"group": 4, "window": 8}):
        assert attention_of(model).name == "cca"
        raise RuntimeError
    assert attention_of(model).name == "full"


def test_what_is_written_is_what_a_forward_over_the_text_says():
    """The prompt's first token, and each of the others, from the cache."""
    model = bench.new_gpt2(1, 16, 2, 64).double().eval()
    ids, seen = torch.randint(64, (20,)), []
    model.register_forward_hook(lambda module, args, output: seen.append(output.logits[0, -1]))
    with bench.attending(model, "cca", {"group": 4, "window": 8}):
        written = bench.write(model, bench.new_cache(model, "cca"), ids[:15], ids[15:])
        whole = model(ids[None]).logits[0, 14:]
    assert len(written.tokens) == 5 and written.first > 0
    assert torch.allclose(torch.stack(seen[:6]), whole, atol=1e-12)


def test_bytes_are_those_after_the_prompt_and_without_a_cache_there_are_none():
    model = bench.new_gpt2(1, 16, 2, 64)
    ids = torch.randint(64, (20,))
    assert bench.write(model, DynamicCache(), ids[:15], ids[15:]).nbytes == 2 * 15 * 16 * 4
    assert bench.write(model, None, ids[:15], ids[15:])[1:] == ([], None)


@pytest.mark.parametrize(("arguments", "message"),
                         [({"prompt": (0,)}, "prompt: got"), ({"rounds": 0}, "rounds: got"),
                          ({"width": 10, "heads": 4}, "heads: got 4"),
                          ({"attention": ("minference",)}, "attention: got 'minference'"),
                          ({"attention": ("cca, bfloat16",)}, "attention: got 'cca, bfloat16'"),
                          ({"keep": 1}, "retrieval, keep: got one alone")])
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        bench.ModelBench(**arguments).run()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a model of two layers and two heads that reads 96 tokens."""
    monkeypatch.setattr(bench, "WARM", 8)
    save_pretrained(bench.new_gpt2(2, 32, 2, 96), tmp_path / "base")
    return tmp_path


def test_a_real_model_with_each_attention(folder, monkeypatch):
    """Time, memory and finetuning; one head of four is kept in full."""
    peaks = []
    monkeypatch.setattr(bench, "peak_of", lambda prepare, *case: peaks.append(case) or 2**20)
    scores = {"best": "loss", "scores": {"loss": [[0.0, 2.0], [1.0, 0.0]]}}
    (folder / "heads.json").write_text(json.dumps(scores))
    study = bench.ModelBench(model=str(folder / "base"), retrieval=folder / "heads.json", keep=1,
                             prompt=(24, 40), rounds=2, trained=(64, 96),
                             out=folder / "model-smollm2.json", figure=folder / "first.png")
    result = study.run()
    names = ["full", "full, bfloat16", "cca", "streaming_llm", "kept_heads"]
    assert [(row["prompt"], row["attention"]) for row in result["writing"]] == [
        (prompt, name) for prompt in (24, 40) for name in names]
    assert [case[1::2] for case in peaks] == [(name, n) for n in (24, 40) for name in names]
    full, half, cca, *_ = result["writing"]
    assert full["cache_bytes"] == 2 * 2 * 24 * 32 * 4 == 2 * half["cache_bytes"]
    assert full["rounds"] == 2
    assert result["options"]["cca"]["sinks"] == 4 and result["options"]["full, bfloat16"] == {}
    assert result["options"]["kept_heads"]["kept"] == [[1], []]
    assert [(row["attention"], row["length"]) for row in result["training"]] == [
        ("full", 64), ("cca", 64), ("full", 96), ("cca", 96)]
    assert (folder / "first.png").stat().st_size > 1000
    monkeypatch.setattr(tables, "results_folder", lambda: folder)
    header, _, *rows = [line.strip("|").split("|")
                        for line in tables.TABLES["real-model"]().splitlines() if "|" in line]
    assert len(header) == 1 + 2 * 3 + 2 and all(len(row) == len(header) for row in rows)
    assert [row[0].strip() for row in rows] == names and rows[3][-1].strip() == "-"


def test_a_cell_of_memory_reads_its_prompt_in_its_dtype(folder):
    """What `peak_of` calls in a process; the mutant reads the short warm-up alone."""
    call = bench.prepare(str(folder / "base"), "full, bfloat16", {}, 40)
    assert call().nbytes == 2 * 2 * 40 * 32 * 2  # keys and values, layers, tokens, width, bytes


def test_finetuning_takes_turns_and_its_times_are_its_own(monkeypatch):
    """The mutants: a turn whose attention is not swapped, or a time that is another's."""
    model, seen, clock = bench.new_gpt2(1, 16, 2, 64), [], [0.0]
    model.register_forward_hook(lambda module, args, output: seen.append(
        attention_of(model).name))

    def now():
        clock[0] += {"full": 2.0, "cca": 1.0}[attention_of(model).name] / 2
        return clock[0]

    monkeypatch.setattr(bench, "perf_counter", now)
    rows = bench.measure_finetuning(model, ["full", "cca"], 64, 2, {"cca": {"group": 4}})
    assert seen == ["cca", "full", "full", "cca", "cca", "full"]  # the first round warms up
    assert [row["tokens_a_second"] for row in rows] == [64 / 1.0, 64 / 0.5]


def test_a_prompt_beyond_the_positions_is_refused(folder):
    with pytest.raises(ValueError, match="prompt: got 97 tokens, wanted at most 96"):
        bench.ModelBench(model=str(folder / "base"), prompt=(81,)).run()
