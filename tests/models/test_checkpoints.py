"""save_pretrained and load_pretrained: the attention comes back, folders are whole or absent."""

import json
import os

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.utils import hub

from cca_lab.files import replacing_folder
from cca_lab.mechanisms import CCA, Full
from cca_lab.models import attention_of, load_pretrained, save_pretrained, swap_attention
from tests.models.tiny import FAMILIES, logits, text, tiny


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """A hub name fails at once instead of after the network's timeout."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(models.WordLevel({"<pad>": 0, "one": 1, "two": 2}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_attention_comes_back(family, tmp_path):
    model, ids = swap_attention(tiny(family).float(), "cca", group=4, window=6,
                                pooling="mean"), text(30)
    save_pretrained(model, tmp_path / "new" / "model", tokenizer())
    again, words = load_pretrained(tmp_path / "new" / "model")
    assert attention_of(again) == attention_of(model) == CCA(group=4, window=6, pooling="mean")
    assert torch.equal(logits(again, ids), logits(model, ids))
    assert not again.training and words("one two")["input_ids"] == [1, 2]
    config = json.loads((tmp_path / "new" / "model" / "config.json").read_text())
    assert config["cca_lab_attention"] == {"name": "cca", "group": 4, "window": 6,
                                           "pooling": "mean"}


def test_another_attention_can_be_asked_for(tmp_path):
    model, ids = tiny("gpt2").float(), text(30)
    full = logits(model, ids)
    save_pretrained(swap_attention(model, "cca", group=4, window=6), tmp_path / "model")
    again, words = load_pretrained(str(tmp_path / "model"), "full")
    assert words is None and attention_of(again) == Full()
    assert torch.equal(logits(again, ids), full)
    assert not hasattr(again.config, "cca_lab_attention")
    again, _ = load_pretrained(tmp_path / "model", "cca", group=2, window=9)
    assert attention_of(again) == CCA(group=2, window=9)


def test_full_attention_stays_full(tmp_path):
    save_pretrained(tiny("opt"), tmp_path / "model")
    again, _ = load_pretrained(tmp_path / "model", dtype=torch.float64)
    assert attention_of(again) == Full() and again.dtype is torch.float64
    assert torch.equal(logits(again, text(9)), logits(tiny("opt"), text(9)))


def test_transformers_alone_loads_it_and_attends_in_full(tmp_path):
    model = tiny("llama").float()
    full = logits(model, text(30))
    save_pretrained(swap_attention(model, "cca", group=4, window=6), tmp_path / "model")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    assert attention_of(plain) == Full()
    assert torch.equal(logits(plain, text(30)), full)


def with_digits_apart(folder, kind):
    """Write a byte-level tokenizer with each digit split off; its settings name class `kind`."""
    words = ["<|end|>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "ĠĠ", "ĠĠĠ"]
    made = Tokenizer(models.BPE(vocab={word: place for place, word in enumerate(words)},
                                merges=[("Ġ", "Ġ"), ("ĠĠ", "Ġ")]))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True),
         pre_tokenizers.ByteLevel(add_prefix_space=False)])
    made.decoder = decoders.ByteLevel()
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": kind, "eos_token": "<|end|>", "add_prefix_space": False}))


@pytest.mark.parametrize(("family", "kind"), [
    ("llama", "GPT2Tokenizer"), ("llama", "PreTrainedTokenizerFast"),  # as SmolLM2 and Llama 3
    ("qwen2", "Qwen2Tokenizer"), ("qwen2", "PreTrainedTokenizerFast")])
def test_a_tokenizer_splits_as_its_file_says(tmp_path, family, kind):
    tiny(family).float().save_pretrained(tmp_path)
    with_digits_apart(tmp_path, kind)
    _, words = load_pretrained(tmp_path)
    assert words.tokenize("x   12") == ["x", "ĠĠĠ", "1", "2"]
    assert words.decode(words("x   12, é").input_ids) == "x   12, é"


def test_a_name_of_the_hub_is_read_from_its_cache_in_float32(tmp_path, monkeypatch):
    stored, version = tmp_path / "models--some--llama", "0" * 40
    model = tiny("llama").bfloat16()
    model.save_pretrained(stored / "snapshots" / version)
    with_digits_apart(stored / "snapshots" / version, "GPT2Tokenizer")
    (stored / "refs").mkdir()
    (stored / "refs" / "main").write_text(version)
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path))
    again, words = load_pretrained("some/llama", "cca", group=4, window=30)
    assert attention_of(again) == CCA(group=4, window=30) and words.tokenize("12") == ["1", "2"]
    stored = model.float().state_dict()
    assert all(parameter.dtype == torch.float32 and torch.equal(parameter, stored[name])
               for name, parameter in again.named_parameters())


def test_a_checkpoint_is_replaced(tmp_path):
    for window in (6, 9):
        save_pretrained(swap_attention(tiny("gpt2"), "cca", group=4, window=window),
                        tmp_path / "model")
    assert attention_of(load_pretrained(tmp_path / "model")[0]).window == 9
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_failed_save_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    model = swap_attention(tiny("gpt2"), "cca", group=4, window=6)
    save_pretrained(model, tmp_path / "model")
    swap_attention(model, "cca", group=4, window=9)
    words = tokenizer()

    def fail(*args, **kwargs):
        raise OSError("no space left")

    monkeypatch.setattr(words, "save_pretrained", fail)
    with pytest.raises(OSError, match="no space left"):
        save_pretrained(model, tmp_path / "model", words)
    move = os.rename
    monkeypatch.setattr(os, "rename", lambda source, target: fail() if "part" in str(source) else
                        move(source, target))
    with pytest.raises(OSError, match="no space left"):
        save_pretrained(model, tmp_path / "model")
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert attention_of(load_pretrained(tmp_path / "model")[0]).window == 6


def test_what_a_kill_left_is_put_back_or_removed(tmp_path):
    save_pretrained(tiny("gpt2"), tmp_path / "model")
    (tmp_path / "model").rename(tmp_path / ".model.old")  # killed between the two renames
    (tmp_path / ".model.part").mkdir()
    (tmp_path / ".model.part" / "random_states_1.pkl").touch()
    with pytest.raises(KeyboardInterrupt), replacing_folder(tmp_path / "model") as new:
        assert not list(new.iterdir())
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert attention_of(load_pretrained(tmp_path / "model")[0]) == Full()


def test_something_else_is_not_overwritten(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for folder in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(ValueError, match="is not a checkpoint"):
            save_pretrained(tiny("gpt2"), folder)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_what_cannot_be_loaded_is_named(tmp_path):
    with pytest.raises(ValueError, match="nowhere cannot be used"):
        load_pretrained(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="window: got no attention"):
        load_pretrained(tmp_path, window=5)
