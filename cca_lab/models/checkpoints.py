"""Save and load a model together with its choice of attention, which transformers drops.

While a model is loaded, every file is checked and that the files fit each other: transformers only
logs a weight that is missing, unexpected or of another shape, and initialises it at random.
"""

import glob
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
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

from cca_lab.files import LONGEST_NAME, shipped_model
from cca_lab.mechanisms.caching.base import CHOICE
from cca_lab.models.adapters import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    adapter_of,
    described,
    load_adapter,
    merge_adapter,
    save_adapter,
)
from cca_lab.models.inputs import check_model
from cca_lab.models.interface import MODULE
from cca_lab.models.plugin import check_family, modules_of, shapes, swap_attention, written_choice
from cca_lab.stored import read_json

ATTENTION_FILE = "cca_lab_attention.json"  # beside an adapter, which has no config.json
FULL = {"name": "full"}  # the choice of a model that has none
MODULES_FILE = "cca_lab_modules.safetensors"  # beside model.safetensors, which transformers reads
MOST_LAYERS = 1000
MOST_SAID = 300  # characters of a library's own message
TRIED = 16  # tokens that a model reads as a trial when it is loaded
WEIGHTS = ("*.safetensors", "*.bin")
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
        ValueError: if the folder is there and no checkpoint, or cannot be made, or if the model or
            tokenizer is not one of transformers'.
    """
    check_model(model)
    check_path("folder", folder)
    if not is_finite(model.state_dict().values()):
        raise ValueError("model: it holds weights that are not finite numbers, and is not saved; "
                         "train it again with a lower learning rate")
    if tokenizer is not None and not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise ValueError(
            f"tokenizer: got {type(tokenizer).__name__}, wanted one of transformers, or None")
    folder, adapted = Path(folder).expanduser().absolute(), adapter_of(model) is not None
    check_replaceable(folder, adapter=adapted)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _clear_killed_saves(folder)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise ValueError(
            f"folder: cannot write to {folder.parent} ({error}); choose another") from error
    try:
        _save_model(model, temporary / "new")
        if tokenizer is not None and not adapted:
            tokenizer.save_pretrained(temporary / "new")
        _as_usual(temporary / "new")
        if folder.exists():
            folder.replace(temporary / "old")
        (temporary / "new").replace(folder)
    except Exception as error:  # on a full disk each library raises one of its own
        raise ValueError(f"folder: {folder} cannot be written ({said(error)}); what was there "
                         "stays; make room, or choose another") from error
    finally:
        if (temporary / "old").exists() and not folder.exists():
            (temporary / "old").replace(folder)
        shutil.rmtree(temporary, ignore_errors=True)


def check_replaceable(folder: Path, *, adapter: bool = False) -> None:
    """Raise ValueError if a folder holds something else than a checkpoint, or than an adapter."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    kind, file = ("an adapter", CONFIG_FILE) if adapter else ("a checkpoint", "config.json")
    if not (folder / file).is_file():
        raise ValueError(
            f"folder: {folder} exists and is not {kind} (no {file}); choose another")


def _as_usual(folder: Path) -> None:
    """Give files the permissions of new files; those of a temporary folder are private."""
    mask = os.umask(0)
    os.umask(mask)
    for path in folder.iterdir():
        path.chmod(0o666 & ~mask)
    folder.chmod(0o777 & ~mask)


def _clear_killed_saves(folder: Path) -> None:
    """Remove what killed saves left beside a folder, and put a checkpoint back that one moved."""
    # as mkdtemp names them
    for temporary in folder.parent.glob(f".{glob.escape(folder.name)}.????????"):
        if (temporary / "old").exists() and not folder.exists():
            (temporary / "old").replace(folder)
        if {path.name for path in temporary.iterdir()} <= {"old", "new"}:
            shutil.rmtree(temporary, ignore_errors=True)


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
        raise ValueError(f"{next(iter(options))}: given without attention; name the mechanism too, "
                         "as in load_pretrained(folder, 'cca', group=16, window=256)")
    base, folder = parts_of(path_or_name, adapter)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ValueError(
            f"dtype: got {dtype!r}, wanted a floating dtype of torch, such as torch.float32")
    try:
        source = source_of(base)
        model = load_model(source, dtype)
    except ValueError as error:
        if folder is None or adapter is not None:  # the base is what was given
            raise
        raise ValueError(f"path_or_name: {folder} is an adapter of {base}, which cannot be loaded "
                         f"here ({error}); give the model and the adapter, as in "
                         "load_pretrained(BASE, adapter=FOLDER)") from error
    model.name_or_path = str(base)  # an adapter names its base as it was given
    home, choice = source, saved_choice(getattr(model.config, CHOICE, FULL), source)
    if folder is not None:
        with reading(str(folder), "the adapter", "adapter"):
            load_adapter(model, folder)
            _check_computes(model)
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
    return model, load_tokenizer(source, model)


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
        weights = load_file(file)  # type: ignore[arg-type]  # None is for other options
    wanted, got = shapes(modules), {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if wanted != got:
        name = next(name for name in sorted(wanted | got) if wanted.get(name) != got.get(name))
        raise ValueError(
            f"options: got some that ask for {name} of shape {wanted.get(name)}, saved was "
            f"{got.get(name)}; load it as saved, and call swap_attention for a new module")
    check_finite(weights, source)
    modules.load_state_dict(weights)


def check_path(name: str, path: str | Path) -> None:
    """Raise ValueError unless the argument is a path or a name that a file system can hold."""
    if not isinstance(path, str | Path) or not str(path).strip() or "\0" in str(path):
        raise ValueError(f"{name}: got {path!r}, wanted a path or a name")
    try:
        Path(path).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{name}: {path} is in nobody's home folder; write the path out"
                         ) from error
    longest = max(len(os.fsencode(part)) for part in Path(path).absolute().parts)
    if longest > LONGEST_NAME:
        raise ValueError(f"{name}: got a name of {longest} bytes, wanted at most {LONGEST_NAME}; "
                         "choose a shorter one")


def parts_of(path_or_name: str | Path,
             adapter: str | Path | None = None) -> tuple[str | Path, Path | None]:
    """Return a model, as it is given or as its adapter names it, and the adapter's folder if any.

    Raises:
        ValueError: for a folder without an adapter, or an adapter that names no model.
    """
    check_path("path_or_name", path_or_name)
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
    check_path("adapter", adapter)
    folder = shipped_model(Path(adapter).expanduser())
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        if not (folder / name).is_file():
            raise ValueError(f"adapter: {folder} holds no adapter (no {name}); pass the folder "
                             "that save_pretrained wrote of a model with an adapter")
    described(folder)
    return path_or_name, folder


def source_of(path_or_name: str | Path) -> str:
    """Return an existing folder's path, or a name on the hub."""
    path = shipped_model(Path(path_or_name).expanduser())
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ValueError(f"path_or_name: {path} holds no model (no config.json); pass the "
                             "folder that save_pretrained wrote")
        return str(path)
    if os.path.lexists(path):
        raise ValueError(f"path_or_name: {path} is no folder, wanted the one that save_pretrained "
                         "wrote")
    name = str(path_or_name)
    if isinstance(path_or_name,
                  Path) or path.is_absolute() or name.startswith(".") or name.count("/") > 1:
        raise ValueError(f"path_or_name: no folder {path}; check the path, or pass a name on the "
                         "hub such as 'gpt2', which needs a network the first time")
    return name


def quiet() -> None:
    """Silence transformers' messages and progress bars; the commands show their own."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()


@contextmanager
def reading(source: str, what: str, name: str = "path_or_name") -> Iterator[None]:
    """Turn any error within the context into a one-line ValueError that names the file."""
    try:
        yield
    except Exception as error:  # on a broken file a library may raise anything
        raise ValueError(f"{name}: {what} of {source} cannot be used: {said(error)}; get it, or "
                         "save it, again") from error


def said(error: Exception) -> str:
    """Return a library's error in one line that is not too long."""
    kind = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
    return (kind + " ".join(str(error).split()))[:MOST_SAID]


def load_model(source: str, dtype: torch.dtype) -> PreTrainedModel:
    """Load a causal language model of a family that the mechanisms know, from a folder or the hub.

    Raises:
        ValueError: if the config is broken or of another family, or if any weight is missing,
            unexpected, no floating-point number, not finite or of another shape than the config's,
            or if the model computes numbers that are not finite.
    """
    try:
        config = config_of(source)
        with reading(source, "the weights"):
            _check_dtypes(source)
            both: Any = AutoModelForCausalLM.from_pretrained(  # annotated as the model alone
                source, config=config, dtype=dtype, output_loading_info=True,
                ignore_mismatched_sizes=True, trust_remote_code=False)
    except ValueError as error:
        if isinstance(error.__cause__, OSError) and not Path(source).is_dir():
            raise ValueError(f"path_or_name: could not load {source!r}: no folder of that name, "
                             "and the hub gave no such model; check the spelling, and without a "
                             "network use a folder") from error
        raise
    model, problems = both
    for kind, words in PROBLEMS.items():
        if keys := problems[kind]:
            names = sorted(str(key[0] if kind == "mismatched_keys" else key) for key in keys)
            others = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise ValueError(f"path_or_name: the weights of {source} {words} {names[0]}{others}; "
                             "config.json and weights belong to different models, or were changed")
    check_finite(model.state_dict(), source)
    with reading(source, "the model"):
        _check_computes(model)
    return model


def _check_dtypes(source: str) -> None:
    """Raise ValueError for weights that transformers would round or cut to floating point."""
    for path in Path(source).glob("*.safetensors"):  # none for the hub
        with safe_open(path, "pt") as file:
            for name in file.keys():  # it is no dict, and has no other way
                stored = file.get_slice(name)
                if name.endswith((".weight", ".bias")) and len(stored.get_shape()) <= 2 \
                        and stored.get_dtype()[0] not in "FB":  # such as F32 and BF16
                    raise ValueError(f"{name} is of type {stored.get_dtype()}, wanted floating "
                                     "point")


@torch.no_grad()
def _check_computes(model: PreTrainedModel) -> None:
    """Raise ValueError unless the logits of a few tokens of the vocabulary are finite."""
    rows, context = model.config.vocab_size, getattr(model.config, "max_position_embeddings", TRIED)
    ids = torch.linspace(0, rows - 1, min(TRIED, context)).long()[None]  # (1, TRIED)
    if not torch.isfinite(model.eval()(input_ids=ids, use_cache=False).logits).all():
        raise ValueError("it computes numbers that are not finite; its weights are too large, or "
                         "its config is wrong")


def config_of(source: str) -> PreTrainedConfig:
    """Return the config, after checking that it describes a model which the weights can fill."""
    with reading(source, "config.json"):
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
        layers = config.get_text_config().num_hidden_layers
        if not 1 <= layers <= MOST_LAYERS:
            raise ValueError(f"{layers} layers, wanted 1 to {MOST_LAYERS}")
        for name, value in config.to_dict().items():
            # a norm divides by it
            least = 0.0 if name.endswith(("eps", "epsilon")) else -math.inf
            if isinstance(value, float) and not least < value < math.inf:
                raise ValueError(f"{name} is {value}")
        if getattr(config, "quantization_config", None) is not None:
            raise ValueError("its weights are quantised; wanted weights in floating point")
        with torch.device("meta"):  # without memory
            skeleton = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
        check_family(skeleton)
        wanted = sum(parameter.numel() for parameter in skeleton.parameters())
        stored = sum(path.stat().st_size for pattern in WEIGHTS
                     for path in Path(source).glob(pattern) if path.is_file())  # 0 for the hub
        if stored and wanted > stored:
            raise ValueError(f"it asks for {wanted:.3g} weights, and the files beside it have "
                             f"{stored:.3g} bytes")
    return config


def check_finite(weights: Mapping[str, Tensor], source: str) -> None:
    """Raise ValueError naming a weight that holds a number which is not finite."""
    for name, tensor in weights.items():
        if not is_finite([tensor]):
            raise ValueError(f"path_or_name: {name} of {source} holds numbers that are not finite; "
                             "get or train the model again")


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


def load_tokenizer(source: str, model: PreTrainedModel) -> PreTrainedTokenizerBase | None:
    """Load the tokenizer saved beside a model, and check that it fits; None if there is none."""
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
        tokens, rows = 1 + max(loaded.get_vocab().values(), default=-1), model.config.vocab_size
        if tokens > rows:
            raise ValueError(f"it has {tokens} tokens, the model has embeddings for {rows}")
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
