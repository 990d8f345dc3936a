"""`cca-lab study model`.

Every attention of one model, timed in turns, and the model as it was afterwards.
"""

import json

import pytest
import torch
from transformers import DynamicCache

from cca_lab.mechanisms.caches import CACHES
from cca_lab.models import attention_of
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
                          ({"attention": ("minference",)}, "attention: got 'minference'")])
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        bench.ModelBench(**arguments).run()
