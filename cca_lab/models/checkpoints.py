"""Save and load a model together with its choice of attention, which transformers drops.

transformers only logs a weight that is missing, unexpected or of another shape, and initialises it
at random; here it is an error, as is a weight that is not finite.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn
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

from cca_lab.files import replacing_folder, shipped_model
from cca_lab.mechanisms.caching.base import CHOICE
from cca_lab.models.adapters import (
    CONFIG_FILE,
    adapter_of,
    described,
    load_adapter,
    merge_adapter,
    save_adapter,
)
from cca_lab.models.interface import MODULE
from cca_lab.models.plugin import (
    check_family,
    check_whole,
    modules_of,
    swap_attention,
    written_choice,
)
from cca_lab.stored import read_json

ATTENTION_FILE = "cca_lab_attention.json"  # beside an adapter, which has no config.json
FULL = {"name": "full"}  # the choice of a model that has none
MODULES_FILE = "cca_lab_modules.safetensors"  # beside model.safetensors, which transformers reads
MOST_SAID = 300  # characters of a library's own message
# as older and as present versions write it
GENERIC = ("PreTrainedTokenizerFast", PreTrainedTokenizerFast.__name__)
PROBLEMS = {"missing_keys": "lack", "unexpected_keys": "hold, which the config does not ask for,",
            "mismatched_keys": "hold in another shape than the config's"}


def save_pretrained(model: PreTrainedModel, folder: str | Path,
                    tokenizer: PreTrainedTokenizerBase | None = None) -> None:
    """Write model, attention and tokenizer to a folder, which appears complete or not at all.

    The choice is the entry "cca_lab_attention" of config.json; the weights of a mechanism's
    own modules are in `cca_lab_modules.safetensors`. transformers can load the folder too,
    and then uses full attention. An existing checkpoint is replaced.

    Of a model with an adapter, the adapter alone is written, in peft's format: it names the base
    model as that was given to `load_pretrained`. The choice is in `cca_lab_attention.json` then,
    and the tokenizer stays beside the base model.

    Args:
        model: the model to save, with its present attention.
        folder: is made if missing, and its parents.
        tokenizer: saved beside a whole model if given.

    Raises:
        ValueError: if the folder is there and no checkpoint, or if a weight is not finite.
    """
    check_whole(model)
    if not is_finite(model.state_dict().values()):
        raise ValueError("model: it holds weights that are not finite numbers, and is not saved; "
                         "train it again with a lower learning rate")
    folder, adapted = Path(folder).expanduser().absolute(), adapter_of(model) is not None
    check_replaceable(folder, adapter=adapted)
    with replacing_folder(folder) as new:
        _save_model(model, new)
        if tokenizer is not None and not adapted:
            tokenizer.save_pretrained(new)


def check_replaceable(folder: Path, *, adapter: bool = False) -> None:
    """Raise ValueError if a folder holds something else than a checkpoint, or than an adapter."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    kind, file = ("an adapter", CONFIG_FILE) if adapter else ("a checkpoint", "config.json")
    if not (folder / file).is_file():
        raise ValueError(
            f"folder: {folder} exists and is not {kind} (no {file}); choose another")


def _save_model(model: PreTrainedModel, folder: Path) -> None:
    """Write the model or its adapter, and the mechanism's modules to a file of theirs."""
    modules = nn.ModuleDict(modules_of(model))
    if adapter_of(model) is not None:
        save_adapter(model, folder)
        choice = json.dumps(getattr(model.config, CHOICE, FULL), indent=2)
        (folder / ATTENTION_FILE).write_text(choice, encoding="utf-8")
    elif len(modules) == 0:
        model.save_pretrained(folder)
    else:
        original = {name: tensor for name, tensor in model.state_dict().items()
                    if MODULE not in name.split(".")}
        model.save_pretrained(folder, state_dict=original)
    if len(modules):
        learnt = {name: tensor.contiguous() for name, tensor in modules.state_dict().items()}
        save_file(learnt, folder / MODULES_FILE)


def load_pretrained(path_or_name: str | Path, attention: str | None = None, *,
                    adapter: str | Path | None = None, merged: bool = False,
                    dtype: torch.dtype = torch.float32,
                    **options: Any) -> tuple[PreTrainedModel, PreTrainedTokenizerBase | None]:
    """Load a causal language model with the attention it was saved with, or with another.

    The trained modules of the saved mechanism are loaded whenever that mechanism is used.

    Args:
        path_or_name: a folder (`data/models/NAME` outside a clone too), or a name on the hub; or
            the folder of an adapter, which names the model to load first.
        attention: a mechanism to use instead of the saved one; "full" for the model's own.
        adapter: the folder of an adapter of this model, whose attention is the saved one then.
        merged: add the adapter to the model's weights, so that the model is a whole one.
        dtype: dtype of the weights.
        options: options of `attention`, as in `swap_attention`.

    Returns:
        The model in evaluation mode, and its tokenizer, or None if none was saved.

    Raises:
        ValueError: if there is nothing to load, if a file is broken or does not fit the others, or
            if the options do not fit the attention or its saved modules.
    """
    if options and attention is None:
        raise ValueError(f"{next(iter(options))}: got no attention that has this option; name the "
                         "mechanism too, as in load_pretrained(folder, 'cca', group=16)")
    base, folder = parts_of(path_or_name, adapter)
    if merged and folder is None:
        raise ValueError(f"merged: got {merged!r} without an adapter, wanted False; give the "
                         "adapter's folder")
    source = source_of(base)
    model = load_model(source, dtype)
    model.name_or_path = str(base)  # an adapter names its base as it was given
    home, choice = source, saved_choice(getattr(model.config, CHOICE, FULL), source)
    if folder is not None:
        with reading(str(folder), "the adapter", "adapter"):
            load_adapter(model, folder)
        if (folder / ATTENTION_FILE).exists():  # one that was made elsewhere has none
            written = read_json(folder / ATTENTION_FILE, "adapter")
            home, choice = str(folder), saved_choice(written, str(folder), ATTENTION_FILE)
        if merged:
            merge_adapter(model)
    saved, saved_options = choice
    if attention is None:
        attention, options = saved, saved_options
    swap_attention(model.eval(), attention, **options)
    if attention == saved:
        _load_modules(model, home)
    for name, tensor in model.state_dict().items():
        if not is_finite([tensor]):
            raise ValueError(f"path_or_name: {name} of {path_or_name} holds numbers that are not "
                             "finite; get or train the model again")
    return model, load_tokenizer(source)


def _load_modules(model: PreTrainedModel, source: str) -> None:
    """Load the saved weights of the mechanism's modules into the model."""
    modules = nn.ModuleDict(modules_of(model))
    if len(modules) == 0:
        return
    try:
        file = cached_file(source, MODULES_FILE)
    except OSError as error:
        raise ValueError(
            f"path_or_name: {source} holds no {MODULES_FILE}, what its attention had learnt; save "
            "with cca_lab.models.save_pretrained, not with the model's own") from error
    with reading(source, MODULES_FILE):
        modules.load_state_dict(load_file(file))  # type: ignore[arg-type]  # it has been found


def parts_of(path_or_name: str | Path,
             adapter: str | Path | None = None) -> tuple[str | Path, Path | None]:
    """Return a model, as it is given or as its adapter names it, and the adapter's folder if any.

    Raises:
        ValueError: for a folder without an adapter, or an adapter that names no model.
    """
    path = shipped_model(Path(path_or_name).expanduser())
    adapted = (path / CONFIG_FILE).is_file()
    if adapter is None:
        base = described(path).get("base_model_name_or_path") if adapted else path_or_name
        if not base:
            raise ValueError(f"path_or_name: {path} is an adapter, and names no model that it "
                             "belongs to; give both, as in load_pretrained(BASE, adapter=FOLDER)")
        return base, path if adapted else None
    if adapted:
        raise ValueError(f"path_or_name: {path} is an adapter, and one more is given; give the "
                         "model of both")
    folder = shipped_model(Path(adapter).expanduser())
    described(folder)
    return path_or_name, folder


def source_of(path_or_name: str | Path) -> str:
    """Return an existing folder's path, or a name on the hub."""
    path = shipped_model(Path(path_or_name).expanduser())
    return str(path) if path.exists() else str(path_or_name)


def quiet() -> None:
    """Silence transformers' messages and progress bars; the commands show their own."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()


@contextmanager
def _without_bar() -> Iterator[None]:
    """Show no bar while weights are read, as transformers does for every file, however small."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def reading(source: str, what: str, name: str = "path_or_name") -> Iterator[None]:
    """Turn any error within the context into a one-line ValueError that names the source."""
    try:
        yield
    except Exception as error:  # on a broken file a library may raise anything
        absent = ("" if Path(source).exists() else "; there is no such folder, so it was looked "
                  "for on the hub: check the spelling, and without a network use a folder")
        raise ValueError(f"{name}: {what} of {source} cannot be used: {said(error)}{absent}"
                         ) from error


def said(error: Exception) -> str:
    """Return a library's error in one line that is not too long."""
    kind = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
    return (kind + " ".join(str(error).split()))[:MOST_SAID]


def load_model(source: str, dtype: torch.dtype) -> PreTrainedModel:
    """Load a causal language model of a family that the mechanisms know, from a folder or the hub.

    Raises:
        ValueError: if it is broken or of another family, or if any weight is missing, unexpected
            or of another shape than the config's.
    """
    config = config_of(source)
    with reading(source, "the model"), _without_bar():
        both: Any = AutoModelForCausalLM.from_pretrained(  # annotated as the model alone
            source, config=config, dtype=dtype, output_loading_info=True,
            ignore_mismatched_sizes=True, trust_remote_code=False)
        model, problems = both
        check_family(model)
    check_weights(source, problems)
    return model


def check_weights(source: str, problems: Mapping[str, Any]) -> None:
    """Raise ValueError if transformers has drawn a weight at random, or has left one out."""
    for kind, words in PROBLEMS.items():
        names = sorted(str(key[0] if kind == "mismatched_keys" else key) for key in problems[kind])
        if names and MODULE in names[0].split("."):
            raise ValueError(f"path_or_name: {source} was saved by the model's own "
                             "save_pretrained, or by a Trainer, with what its attention had "
                             "learnt; save with cca_lab.models.save_pretrained")
        if names:
            raise ValueError(f"path_or_name: the weights of {source} {words} {names[0]} and "
                             f"{len(names) - 1} more; config.json and weights belong to different "
                             "models, or were changed")


def config_of(source: str) -> PreTrainedConfig:
    """Return the config of a model in a folder or on the hub."""
    with reading(source, "config.json"):
        return AutoConfig.from_pretrained(source, trust_remote_code=False)


def is_finite(tensors: Iterable[Tensor]) -> bool:
    """Return whether all numbers of all tensors are finite."""
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)


def saved_choice(saved: Any, source: str,
                 file: str = "config.json") -> tuple[str, dict[str, Any]]:
    """Return name and options of a saved attention, after checking them."""
    with reading(source, f"{CHOICE} in {file}"):
        if not isinstance(saved, dict) or "name" not in saved:
            raise ValueError(f'got {saved!r}, wanted {{"name": a mechanism, its options}}')
        options = {option: value for option, value in saved.items() if option != "name"}
        return saved["name"], written_choice(saved["name"], options)


def load_tokenizer(source: str) -> PreTrainedTokenizerBase | None:
    """Load the tokenizer saved beside a model; None if there is none."""
    settings = Path(source) / "tokenizer_config.json"
    if Path(source).is_dir() and not settings.is_file():
        return None
    with reading(source, "the tokenizer"):
        # beside a Qwen2 model, AutoTokenizer would use Qwen2's own class for any tokenizer, which
        # reads it wrongly
        generic = settings.is_file() and json.loads(settings.read_text(encoding="utf-8")).get(
            "tokenizer_class") in GENERIC
        loaded = (PreTrainedTokenizerFast if generic else AutoTokenizer).from_pretrained(source)
        _split_as_written(loaded, source)
    return loaded


def _split_as_written(loaded: PreTrainedTokenizerBase, source: str) -> None:
    """Make a tokenizer split text as its tokenizer.json says, if there is one.

    GPT2Tokenizer splits by a rule of its own; SmolLM2 is saved as that class, with another rule.
    """
    try:
        file = cached_file(source, "tokenizer.json")
    except OSError:  # only a vocabulary, as beside OPT
        return
    backend = getattr(loaded, "backend_tokenizer", None)
    if file is not None and backend is not None:
        written = Tokenizer.from_file(file)
        for step in ("normalizer", "pre_tokenizer", "decoder"):
            setattr(backend, step, getattr(written, step))
