"""Models of the hub go the way of the lab's own: loaded, swapped, generated, finetuned.

Each config is as published, field by field, as facts: heads, key-value heads, activation,
positions, RoPE, tied embeddings, dtype. Only sizes are cut: the layers to 2, the vocabulary, and
the inner width of the MLP. The weights are random, and the files are written as the hub has them,
with the older spelling of the config's fields.
"""

import json
import shutil
from copy import deepcopy
from functools import cache
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.utils import hub

from cca_lab.models import (
    attention_of,
    load_pretrained,
)
from tests.models.tiny import logits

pytestmark = pytest.mark.nightly

VOCABULARY, LENGTH = 512, 40
SAME = 3e-5  # float32, over the largest logit: the same sums in another order
OURS, LAYERS = {"transformers_version": "4.40.1", "use_cache": True}, 2
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False,
         "attention_dropout": 0.0, "hidden_act": "silu", "mlp_bias": False, "pretraining_tp": 1,
         "rms_norm_eps": 1e-05, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
         "intermediate_size": 512}
PUBLISHED = {
    "gpt2": {
        "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
        "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768,
        "n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1,
        "summary_activation": None, "summary_first_dropout": 0.1, "summary_proj_to_labels": True,
        "summary_type": "cls_index", "summary_use_proj": True, "task_specific_params": {
            "text-generation": {"do_sample": True, "max_length": 50}
        }, "n_inner": 512
    },
    "facebook/opt-125m": {
        "activation_dropout": 0.0, "activation_function": "relu",
        "architectures": ["OPTForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 2,
        "do_layer_norm_before": True, "dropout": 0.1, "eos_token_id": 2, "ffn_dim": 512,
        "hidden_size": 768, "init_std": 0.02, "layerdrop": 0.0, "max_position_embeddings": 2048,
        "model_type": "opt", "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 1,
        "prefix": "</s>", "torch_dtype": "float16", "word_embed_proj_dim": 768
    },
    # the one of its family that norms after each block and narrows its embeddings
    "facebook/opt-350m": {
        "activation_dropout": 0.0, "activation_function": "relu",
        "architectures": ["OPTForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 2,
        "do_layer_norm_before": False, "dropout": 0.1, "eos_token_id": 2, "ffn_dim": 512,
        "hidden_size": 1024, "init_std": 0.02, "layerdrop": 0.0, "max_position_embeddings": 2048,
        "model_type": "opt", "num_attention_heads": 16, "num_hidden_layers": 24, "pad_token_id": 1,
        "prefix": "</s>", "torch_dtype": "float16", "word_embed_proj_dim": 512
    },
    "HuggingFaceTB/SmolLM2-135M": {
        **LLAMA, "bos_token_id": 0, "eos_token_id": 0, "hidden_size": 576,
        "initializer_range": 0.041666666666666664, "is_llama_config": True,
        "max_position_embeddings": 8192, "num_attention_heads": 9, "num_hidden_layers": 30,
        "num_key_value_heads": 3, "rope_interleaved": False, "rope_scaling": None,
        "rope_theta": 100000
    },
    "meta-llama/Llama-3.2-1B": {
        **LLAMA, "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64,
        "hidden_size": 2048, "initializer_range": 0.02, "max_position_embeddings": 131072,
        "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
        "rope_theta": 500000.0, "rope_scaling": {
            "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"
        }
    },
    "Qwen/Qwen2.5-0.5B": {
        "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
        "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
        "intermediate_size": 512, "max_position_embeddings": 32768, "max_window_layers": 24,
        "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24,
        "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
        "sliding_window": 32768, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
        "use_mrope": False, "use_sliding_window": False
    },
}
NAMES = list(PUBLISHED)


def published(name: str, **changes) -> dict:
    """Return a config as the hub has it, cut to two layers and a small vocabulary."""
    # transformers writes into rope_scaling
    config = deepcopy(PUBLISHED[name]) | OURS | {"vocab_size": VOCABULARY}
    layers = "n_layer" if "n_layer" in config else "num_hidden_layers"
    ids = {key: value % VOCABULARY for key, value in config.items() if key.endswith("token_id")}
    return config | {layers: LAYERS} | ids | changes


@cache
def random_model(name: str) -> PreTrainedModel:
    """Build a random model of a published shape whose attention is far from uniform, in float32."""
    torch.manual_seed(NAMES.index(name))
    config = published(name)
    config.pop("torch_dtype", None)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config),
                                             dtype=torch.float32).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key.endswith(("q_proj.weight", "k_proj.weight", "c_attn.weight")):
                parameter.mul_(3.0)
            # biases begin as zeros and norms as ones, which would hide one that is lost
            elif parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def rounded(name: str, dtype: torch.dtype) -> PreTrainedModel:
    """Return the model after its weights went through a dtype, back in float32."""
    model = deepcopy(random_model(name))
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype).float()
    return model


def write(name: str, folder: Path, dtype: torch.dtype, shard: str = "5GB", **changes) -> Path:
    """Write the model by transformers' own `save_pretrained`, and the config as the hub has it."""
    rounded(name, dtype).to(dtype).save_pretrained(folder, max_shard_size=shard)
    return with_config(name, folder, torch_dtype=str(dtype).removeprefix("torch."), **changes)


def with_config(name: str, folder: Path, **changes) -> Path:
    """Replace a folder's config.json by the published one, with changes."""
    (folder / "config.json").write_text(json.dumps(published(name, **changes)))
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """Return one folder of each shape, in the dtype that the hub has it in."""
    root = tmp_path_factory.mktemp("hub")
    return {name: write(name, root / name.replace("/", "-"), stored(name)) for name in NAMES}


def stored(name: str) -> torch.dtype:
    """Return the dtype of the published weights."""
    return getattr(torch, PUBLISHED[name].get("torch_dtype", "float32"))


def ids(rows: int = 2, length: int = LENGTH) -> torch.Tensor:
    """Draw token ids (rows, length) beyond the special ones of OPT."""
    return torch.randint(4, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(7))


def apart(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """Return the largest difference of two tensors of logits over the largest logit."""
    return float((got - wanted).abs().max() / wanted.abs().max())


@pytest.mark.parametrize("name", NAMES)
def test_a_model_loads_in_float32_with_the_logits_of_transformers(folders, name):
    model, tokenizer = load_pretrained(folders[name])
    wanted = rounded(name, stored(name))
    assert tokenizer is None and attention_of(model).name == "full" and not model.training
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert apart(logits(model, ids()), logits(wanted, ids())) < SAME
    state = model.state_dict()
    assert all(torch.equal(value, state[key]) for key, value in wanted.state_dict().items())


def written_tokenizer(folder: Path, kind: str | None) -> None:
    """Write a byte-level tokenizer with each digit split off; its settings name class `kind`."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["<|endoftext|>", *alphabet, "ĠĠ", "ĠĠĠ"]
    tokenizer = Tokenizer(models.BPE(vocab={word: place for place, word in enumerate(words)},
                                     merges=[("Ġ", "Ġ"), ("ĠĠ", "Ġ")]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True),
         pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": kind, "eos_token": "<|endoftext|>", "add_prefix_space": False}
    settings = settings if kind else {"model_max_length": 1024}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@pytest.mark.parametrize("name, kind",
                         [("HuggingFaceTB/SmolLM2-135M", "GPT2Tokenizer"),
                          ("meta-llama/Llama-3.2-1B", "PreTrainedTokenizerFast"),
                          ("Qwen/Qwen2.5-0.5B", "Qwen2Tokenizer"),
                          ("Qwen/Qwen2.5-0.5B", "PreTrainedTokenizerFast"), ("gpt2", None)])
def test_a_tokenizer_splits_as_its_file_says(folders, tmp_path, name, kind):
    folder = tmp_path / "model"
    shutil.copytree(folders[name], folder)
    written_tokenizer(folder, kind)
    _, tokenizer = load_pretrained(folder)
    assert tokenizer.tokenize("x   12") == ["x", "ĠĠĠ", "1", "2"]
    assert tokenizer.decode(tokenizer("x   12, é").input_ids) == "x   12, é"
    assert tokenizer.eos_token == "<|endoftext|>"


def test_a_name_of_the_hub_is_read_from_its_cache(folders, tmp_path, monkeypatch):
    name, version = "HuggingFaceTB/SmolLM2-135M", "0" * 40
    stored_at = tmp_path / f"models--{name.replace('/', '--')}"
    shutil.copytree(folders[name], stored_at / "snapshots" / version)
    written_tokenizer(stored_at / "snapshots" / version, "GPT2Tokenizer")
    (stored_at / "refs").mkdir()
    (stored_at / "refs" / "main").write_text(version)
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path))
    model, tokenizer = load_pretrained(name, "cca", group=4, window=LENGTH)
    assert apart(logits(model, ids()), logits(rounded(name, torch.bfloat16), ids())) < SAME
    assert tokenizer.tokenize("x   12") == ["x", "ĠĠĠ", "1", "2"]
