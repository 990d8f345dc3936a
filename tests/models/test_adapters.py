"""Adapters: low-rank updates are trained alone, saved alone, and found again with their base."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForCausalLM

from cca_lab.files import models_folder
from cca_lab.mechanisms import CCA, Full
from cca_lab.models import (
    attention_of,
    disable_attention_dropout,
    load_pretrained,
    save_pretrained,
    swap_attention,
)
from cca_lab.models.adapters import CONFIG_FILE, WEIGHTS_FILE, adapter_of, add_lora
from cca_lab.models.checkpoints import ATTENTION_FILE, MODULES_FILE
from cca_lab.models.finetune import FinetuneConfig, Finetuner
from cca_lab.models.interface import MODULE
from cca_lab.models.plugin import attention_modules, modules_of
from cca_lab.models.run_folder import read_log
from cca_lab.studies.evaluate import Evaluate
from cca_lab.studies.finetune import Finetune
from cca_lab.tasks.reading import Reading
from tests.models.test_finetune import mixture, same, weights
from tests.models.tiny import FAMILIES, TWO, logits, text, tiny
from tests.studies import small

RANK = 4
CHOICE = {"group": 4, "window": 8}
PROJECTIONS = {"gpt2": {"attn.c_attn"}}
THREE = {f"self_attn.{name}_proj" for name in "qkv"}
every_family = pytest.mark.parametrize("family", FAMILIES)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Folders are named relative to the test's own."""
    monkeypatch.chdir(tmp_path)


def swapped(family: str = "gpt2"):
    return swap_attention(tiny(family, vocab_size=small.VOCABULARY).float(), "cca", **CHOICE)


def lora(**settings) -> FinetuneConfig:
    return FinetuneConfig(**dict(strategy="lora", rank=RANK, steps=2, precision="float32",
                                 learning_rate=1e-2, warmup=1) | settings)


def drawn(model, seed: int = 0):
    """Give a model an adapter whose weights are as if it had been trained."""
    add_lora(model, RANK)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_" in name:
                parameter.normal_(std=0.2, generator=generator)
    return model


def saved(family: str = "gpt2", attention: str = "cca", **options):
    """Save a base to `base` and a trained adapter to `adapter`; return the model of both."""
    save_pretrained(tiny(family).float(), "base")
    model = drawn(load_pretrained("base", attention, **options or CHOICE)[0])
    save_pretrained(model, "adapter", small.tokenizer())
    return model


# ---- what is added, and trained


@every_family
def test_an_untrained_adapter_changes_nothing(family):
    model, ids = swapped(family), text(30)
    before, kind = logits(model, ids), type(model)
    add_lora(model, RANK)
    assert type(model) is kind and torch.equal(logits(model, ids), before)
    assert set(adapter_of(model).target_modules) == PROJECTIONS.get(family, THREE)


def changed_by_training(model, **settings):
    """Return the names of the weights that a run changes, and of those it was to train."""
    finetuner = Finetuner(model, mixture(), lora(**settings))
    before = weights(model)
    finetuner.run()
    now = weights(model)
    return {name for name in now if not torch.equal(now[name], before[name])}, finetuner.trained


@every_family
def test_only_the_adapter_is_trained(family):
    changed, trained = changed_by_training(swapped(family))
    assert changed == set(trained) == {name for name in trained if ".lora_" in name}
    assert len(trained) == 2 * 2 * len(PROJECTIONS.get(family, THREE))


def test_a_mechanism_keeps_its_own_projections():
    """A mechanism may have a matrix that is called as one of the model's."""
    model = swapped("llama")
    for layer in attention_modules(model):
        layer.add_module(MODULE, nn.ModuleDict({"q_proj": nn.Linear(4, 4)}))
    add_lora(model, RANK)
    assert not any(MODULE in name and ".lora_" in name for name in weights(model))


def test_a_compressor_is_trained_beside_an_adapter_that_stays():
    model = drawn(swap_attention(small.model(), "lococo", slots=4, segment=8))
    changed, trained = changed_by_training(model, strategy="compressor")
    assert changed == set(trained) and all(MODULE in name for name in trained)


# ---- runs that stop and go on


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
    config = lora(steps=3, save_every=1, accumulation=2)

    def begun(folder, seed=0):
        model = swapped()
        torch.manual_seed(seed)
        return model, Finetuner(model, mixture(), config, tmp_path / folder)

    class Stop(Exception):
        pass

    def stop_in_the_second(record):
        if record["step"] == 2:
            raise Stop

    whole, finetuner = begun("whole")
    finetuner.run()
    with pytest.raises(Stop):
        begun("parts")[1].run(stop_in_the_second)
    model, finetuner = begun("parts", seed=1)
    assert finetuner.resume() == 1
    finetuner.run()
    assert same(weights(whole), weights(model))
    loaded, _ = load_weights("whole/model", whole)
    assert same(loaded, load_file(f"parts/model/{WEIGHTS_FILE}"))
    with pytest.raises(ValueError, match=r"rank \(4 then, 2 now\) differ"):
        Finetuner(swapped(), mixture(), lora(steps=3, save_every=1, accumulation=2, rank=2),
                  tmp_path / "parts").resume()


def load_weights(folder, model):
    """Return the weights in an adapter's folder, after checking that they are the model's."""
    stored = load_file(f"{folder}/{WEIGHTS_FILE}")
    own = {name.replace(".default", ""): value for name, value in weights(model).items()
           if ".lora_" in name}
    assert same(own, {name.removeprefix("base_model.model."): value
                      for name, value in stored.items()})
    return stored, own


def test_a_state_holds_what_is_trained_and_fits_one_base():
    Finetuner(swapped(), mixture(), lora(), Path("run")).run()
    names = load_file("run/state/model.safetensors").keys()
    assert names and all(".lora_" in name for name in names)
    again = swapped()
    with torch.no_grad():  # of the same shapes, so that its state would load
        again.get_input_embeddings().weight[0, 0] += 1e-6
    finetuner = Finetuner(again, mixture(), lora(), Path("run"))
    with pytest.raises(ValueError, match="^resume: frozen weights .* differ from the run in run"):
        finetuner.resume()


def test_training_goes_on_with_the_adapter_that_is_there():
    save_pretrained(small.model(), "base", small.tokenizer())
    model, _ = load_pretrained("base", "cca", **CHOICE)
    save_pretrained(drawn(model), Path("first/model"))

    def next_loss(**settings):
        again, _ = load_pretrained("first/model")
        disable_attention_dropout(again)
        config = lora(steps=1, grow=0.0, **settings)
        return Finetuner(again, mixture(seed=1), config, Path("second")).run()[0]["text_loss"]

    next_loss()
    config = json.loads(Path("second/model", CONFIG_FILE).read_text())
    assert config["base_model_name_or_path"] == "base" and config["r"] == RANK
    assert not same(*(load_file(f"{run}/model/{WEIGHTS_FILE}") for run in ("first", "second")))
    with pytest.raises(ValueError, match="^rank: got 2, wanted 4, as the model has an adapter"):
        next_loss(rank=2)


# ---- saved and loaded


@pytest.mark.parametrize("family", TWO)
def test_an_adapter_comes_back_with_its_attention(family):
    model, ids = saved(family), text(30)
    assert not torch.equal(logits(model, ids), logits(load_pretrained("base")[0], ids))
    for again, words in (load_pretrained("adapter"), load_pretrained("base", adapter="adapter")):
        assert attention_of(again) == CCA(**CHOICE) and type(again) is type(model)
        assert torch.equal(logits(again, ids), logits(model, ids))
        assert not again.training and words is None
    full, _ = load_pretrained("adapter", "full")
    assert attention_of(full) == Full()
    other = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("base"), "adapter")
    assert torch.equal(logits(other, ids), logits(full, ids))
    double, _ = load_pretrained("adapter", dtype=torch.float64)
    assert {parameter.dtype for parameter in double.parameters()} == {torch.float64}


@pytest.mark.parametrize("family", TWO)
def test_a_merged_adapter_leaves_a_whole_model(family):
    model, ids = saved(family), text(30)
    whole, _ = load_pretrained("adapter", merged=True)
    assert adapter_of(whole) is None and attention_of(whole) == CCA(**CHOICE)
    assert weights(whole).keys() == weights(tiny(family)).keys()
    assert all(parameter.requires_grad for parameter in whole.parameters())
    base = logits(load_pretrained("base", "cca", **CHOICE)[0], ids)
    gap, change = ((logits(whole, ids) - each).abs().max() for each in (logits(model, ids), base))
    assert gap < 1e-4 * change  # float32, of a product that is rounded in another order
    save_pretrained(whole, "whole")
    assert torch.equal(logits(load_pretrained("whole")[0], ids), logits(whole, ids))


def test_the_files_of_an_adapter():
    model = saved()
    assert sorted(path.name for path in Path("adapter").iterdir()) == [
        CONFIG_FILE, WEIGHTS_FILE, ATTENTION_FILE]  # and no tokenizer
    assert json.loads(Path("adapter", ATTENTION_FILE).read_text()) == {"name": "cca", **CHOICE}
    stored, _ = load_weights("adapter", model)
    assert {value.dtype for value in stored.values()} == {torch.float32}
    first = Path("adapter", CONFIG_FILE).read_bytes()
    save_pretrained(load_pretrained("adapter")[0], "adapter")
    assert Path("adapter", CONFIG_FILE).read_bytes() == first


@pytest.mark.parametrize("base", ["data/models/gpt2-mini", "data/models/gpt2-mini-cca"])
def test_the_base_is_named_as_it_was_given(base):
    """The shipped models' names hold everywhere; where their folder is, holds on one machine."""
    model, _ = load_pretrained(base)

    def written():
        save_pretrained(model, "adapter")
        return "".join(path.read_text() for path in Path("adapter").glob("*.json"))

    add_lora(model, RANK)
    assert adapter_of(model).base_model_name_or_path == base
    assert str(models_folder()) not in written() and f'"{base}"' in written()
    assert attention_of(load_pretrained("adapter")[0]) == attention_of(model)


def test_an_adapter_made_elsewhere_leaves_the_attention_of_the_base():
    saved()
    save_pretrained(swap_attention(tiny("gpt2").float(), "cca", group=2, window=6), "base")
    assert attention_of(load_pretrained("adapter")[0]) == CCA(**CHOICE)
    Path("adapter", ATTENTION_FILE).unlink()
    assert attention_of(load_pretrained("adapter")[0]) == CCA(group=2, window=6)


def test_what_the_mechanism_learnt_is_saved_beside_the_adapter():
    model, ids = saved("llama", "lococo", slots=4, segment=6, kernel=3), text(30)
    assert Path("adapter", MODULES_FILE).is_file()
    torch.manual_seed(9)
    again, _ = load_pretrained("adapter")
    assert len(modules_of(again)) == 2 and torch.equal(logits(again, ids), logits(model, ids))
    Path("adapter", MODULES_FILE).unlink()
    with pytest.raises(ValueError, match=f"adapter holds no {MODULES_FILE}"):
        load_pretrained("adapter")


def test_an_adapter_and_a_model_do_not_replace_each_other():
    model = saved()
    save_pretrained(swap_attention(model, "cca", group=2, window=6), "adapter")
    assert attention_of(load_pretrained("adapter")[0]) == CCA(group=2, window=6)
    with pytest.raises(ValueError, match="base exists and is not an adapter .no adapter_config"):
        save_pretrained(model, "base")
    with pytest.raises(ValueError, match="adapter exists and is not a checkpoint"):
        save_pretrained(tiny("gpt2"), "adapter")
    shutil.copytree("base", "run/model")
    with pytest.raises(ValueError, match="model exists and is not an adapter"):
        Finetuner(swapped(), mixture(), lora(), Path("run"))
    assert sorted(path.name for path in Path().iterdir()) == ["adapter", "base", "run"]


# ---- what is refused


def rewritten(**changes):
    """Change entries of the adapter's config."""
    path = Path("adapter", CONFIG_FILE)
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def reweighted(change):
    """Change the adapter's weights."""
    path = Path("adapter", WEIGHTS_FILE)
    stored = load_file(path)
    change(stored, min(stored))
    save_file(stored, path)


def other_base():
    """Return the base with one weight that differs."""
    model = tiny("gpt2").float()
    next(model.parameters()).data[0, 0] += 1
    return model


BROKEN = {
    "another rank": (lambda: rewritten(r=3), "cannot be used: .*lora_A.weight is .* trained on"),
    "a weight missing": (lambda: reweighted(lambda stored, name: stored.pop(name)), "missing"),
    "a weight too many": (lambda: reweighted(
        lambda stored, name: stored.update(more=stored[name] + 1)), "more is .* wants none"),
    "not finite": (lambda: reweighted(lambda stored, name: stored[name].fill_(torch.nan)),
                   "lora_A.* of adapter holds numbers that are not finite"),
    "another base of the same shapes": (
        lambda: save_pretrained(other_base(), "base"), "it was trained on another base model")}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_adapter_is_refused_by_name(case):
    saved()
    load_pretrained("adapter")
    change, words = BROKEN[case]
    change()
    with pytest.raises(ValueError, match=words) as raised:
        load_pretrained("adapter")
    assert "adapter" in str(raised.value) and "\n" not in str(raised.value)


# ---- commands


def test_commands_take_an_adapter(capsys):
    save_pretrained(small.model(), "base", small.tokenizer())
    Path("text.txt").write_text(small.corpus().train[0])
    settings = dict(model="base", text="text.txt", group=4, window=8,
                    config=lora(steps=2, save_every=0), reading=Reading(rows=4, length=64))
    Finetune(out=Path("run"), **settings).run()
    assert "evaluate --model run/model" in capsys.readouterr().out
    small_one = dict(text="text.txt", length=64, windows=2, questions=0)
    found = [Evaluate(**given, **small_one).run() for given in
             (dict(model="base", adapter="run/model"), dict(model="run/model"), dict(model="base"))]
    assert found[0] == found[1] and found[0]["model"] == "run" and found[2]["model"] == "base"
    assert found[0]["perplexity"] != found[2]["perplexity"]
    assert found[0]["options"]["group"] == 4
    Finetune(out=Path("on"), **settings | dict(adapter="run/model")).run()
    assert len(list(read_log(Path("on")))) == 2
    with pytest.raises(ValueError, match="^out: run/model is a model's folder"):
        Finetune(out=Path("run/model"), **settings).run()
