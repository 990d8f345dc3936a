"""Checks of a saved model while it is loaded: every file can be read, and the files fit each other.

transformers only logs a weight that is missing, unexpected or of another shape, and initialises it at random.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging
from transformers.utils.hub import cached_file

from cca_lab.mechanisms.caching.base import CHOICE
from cca_lab.models.choice import written_choice
from cca_lab.models.plugin import check_model

MOST_LAYERS = 1000
MOST_SAID = 300  # characters of a library's own message
WEIGHTS = ("*.safetensors", "*.bin")
GENERIC = ("PreTrainedTokenizerFast", PreTrainedTokenizerFast.__name__)  # as older and as present versions write it
PROBLEMS = {"missing_keys": "lack", "unexpected_keys": "hold, which the config does not ask for,",
            "mismatched_keys": "hold in another shape than the config's"}


def quiet() -> None:
    """Silence transformers' messages and progress bars; the commands show their own."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()


@contextmanager
def reading(source: str, what: str) -> Iterator[None]:
    """Turn any error within the context into a one-line ValueError that names the file which cannot be used."""
    try:
        yield
    except Exception as error:  # on a broken file a library may raise anything
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        reason = kind + " ".join(str(error).split())
        raise ValueError(f"path_or_name: {what} of {source} cannot be used: {reason[:MOST_SAID]}; get or save the "
                         "model again") from error


def load_model(source: str, dtype: torch.dtype) -> PreTrainedModel:
    """Load a causal language model of a family that the mechanisms know.

    Args:
        source: an existing folder, or a name on the hub.
        dtype: dtype of the loaded weights.

    Raises:
        ValueError: if the config is broken or of another family, or if any weight is missing, unexpected, not
            finite or of another shape than the config's.
    """
    try:
        config = _config(source)
        with reading(source, "the weights"):
            both: Any = AutoModelForCausalLM.from_pretrained(  # annotated as the model alone
                source, config=config, dtype=dtype, output_loading_info=True, ignore_mismatched_sizes=True,
                trust_remote_code=False)
    except ValueError as error:
        if isinstance(error.__cause__, OSError) and not Path(source).is_dir():
            raise ValueError(f"path_or_name: could not load {source!r}: no folder of that name, and the hub gave "
                             "no such model; check the spelling, and without a network use a folder") from error
        raise
    model, found = both
    for kind, words in PROBLEMS.items():
        if found[kind]:
            names = sorted(str(key[0] if kind == "mismatched_keys" else key) for key in found[kind])
            others = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise ValueError(f"path_or_name: the weights of {source} {words} {names[0]}{others}; config.json and "
                             "weights belong to different models, or were changed")
    check_finite(model.state_dict(), source)
    return model


def _config(source: str) -> PreTrainedConfig:
    """Return the config, after checking that a model can be built from it and that the stored weights can fill it."""
    with reading(source, "config.json"):
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
        layers = config.get_text_config().num_hidden_layers
        if not 1 <= layers <= MOST_LAYERS:
            raise ValueError(f"{layers} layers, wanted 1 to {MOST_LAYERS}")
        with torch.device("meta"):  # without memory
            skeleton = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
        check_model(skeleton)
        wanted, stored = sum(parameter.numel() for parameter in skeleton.parameters()), _stored(source)
        if stored and wanted > stored:
            raise ValueError(f"it asks for {wanted:.3g} weights, and the files beside it have {stored:.3g} bytes")
    return config


def _stored(source: str) -> int:
    """Return the bytes of the weights in a folder; 0 if there are none, or if `source` is a name on the hub."""
    return sum(path.stat().st_size for pattern in WEIGHTS for path in Path(source).glob(pattern) if path.is_file())


def check_finite(weights: Mapping[str, Tensor], source: str) -> None:
    """Raise ValueError naming a weight that holds a number which is not finite."""
    for name, tensor in weights.items():
        if not torch.isfinite(tensor).all():
            raise ValueError(f"path_or_name: {name} of {source} holds numbers that are not finite; get or train the "
                             "model again")


def saved_choice(config: PreTrainedConfig, source: str) -> tuple[str, dict[str, Any]]:
    """Return name and options of the attention that a model was saved with; ("full", {}) if none was.

    Raises:
        ValueError: if the entry of config.json is not a valid choice.
    """
    saved = getattr(config, CHOICE, {"name": "full"})
    with reading(source, f"{CHOICE} in config.json"):
        if not isinstance(saved, dict) or "name" not in saved:
            raise ValueError(f'got {saved!r}, wanted {{"name": a mechanism, its options}}')
        options = {option: value for option, value in saved.items() if option != "name"}
        return saved["name"], written_choice(saved["name"], options)


def load_tokenizer(source: str, model: PreTrainedModel) -> PreTrainedTokenizerBase | None:
    """Load the tokenizer that was saved beside a model; None if a folder has none.

    Raises:
        ValueError: if it is broken, or has tokens that the model has no embedding for.
    """
    settings = Path(source) / "tokenizer_config.json"
    if Path(source).is_dir() and not settings.is_file():
        return None
    with reading(source, "the tokenizer"):
        # beside a Qwen2 model, AutoTokenizer would use Qwen2's own class for any tokenizer, which reads it wrongly
        generic = settings.is_file() and json.loads(settings.read_text(encoding="utf-8")).get(
            "tokenizer_class") in GENERIC
        loaded = (PreTrainedTokenizerFast if generic else AutoTokenizer).from_pretrained(source)
        _split_as_written(loaded, source)
        tokens, rows = 1 + max(loaded.get_vocab().values(), default=-1), model.config.vocab_size
        if tokens > rows:
            raise ValueError(f"it has {tokens} tokens, the model has embeddings for {rows}")
    return loaded


def _split_as_written(loaded: PreTrainedTokenizerBase, source: str) -> None:
    """Make a tokenizer split text as its tokenizer.json says, if there is one.

    A class of transformers such as GPT2Tokenizer splits by its own rule instead. SmolLM2 is saved as that class, and
    its vocabulary was learnt with each digit split off.
    """
    try:
        file = cached_file(source, "tokenizer.json")
    except OSError:  # only a vocabulary, as beside OPT
        return
    backend = getattr(loaded, "backend_tokenizer", None)
    if file is not None and backend is not None:
        written = Tokenizer.from_file(file)
        for part in ("normalizer", "pre_tokenizer", "decoder"):
            setattr(backend, part, getattr(written, part))
