"""Save and load a model together with its choice of attention, which transformers alone would not keep."""

import glob
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.hub import cached_file

from cca_lab.files import shipped_model
from cca_lab.models.inputs import check_model
from cca_lab.models.interface import MODULE
from cca_lab.models.loading import check_finite, load_model, load_tokenizer, reading, saved_choice
from cca_lab.models.plugin import modules_of, shapes, swap_attention

MODULES_FILE = "cca_lab_modules.safetensors"  # beside model.safetensors, which transformers reads


def save_pretrained(model: PreTrainedModel, folder: str | Path,
                    tokenizer: PreTrainedTokenizerBase | None = None) -> None:
    """Write model, attention choice and tokenizer to a folder, which appears complete or not at all.

    The choice is the entry "cca_lab_attention" of config.json; the weights of a mechanism's
    own modules are in `cca_lab_modules.safetensors`. transformers can load the folder too,
    and then uses full attention. An existing checkpoint is replaced.

    Args:
        model: the model to save, with its present attention.
        folder: the folder to write; it and its parents are made if missing.
        tokenizer: saved beside the model if given.

    Raises:
        ValueError: if the folder exists and is not a checkpoint, or cannot be made, or if the model or tokenizer
            is not one of transformers'.
    """
    check_model(model)
    check_path("folder", folder)
    if tokenizer is not None and not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise ValueError(f"tokenizer: got {type(tokenizer).__name__}, wanted one of transformers, or None")
    folder = Path(folder).expanduser().absolute()
    empty = folder.is_dir() and not any(folder.iterdir())
    if folder.exists() and not empty and not (folder / "config.json").is_file():
        raise ValueError(f"folder: {folder} exists and is not a checkpoint (no config.json); choose another")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _clear_killed_saves(folder)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise ValueError(f"folder: cannot write to {folder.parent} ({error}); choose another") from error
    try:
        _save_model(model, temporary / "new")
        if tokenizer is not None:
            tokenizer.save_pretrained(temporary / "new")
        _as_usual(temporary / "new")
        if folder.exists():
            folder.replace(temporary / "old")
        (temporary / "new").replace(folder)
    except BaseException:
        if (temporary / "old").exists() and not folder.exists():
            (temporary / "old").replace(folder)
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _as_usual(folder: Path) -> None:
    """Give files the permissions of any new file; those of a temporary folder are for its owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    for path in folder.iterdir():
        path.chmod(0o666 & ~mask)
    folder.chmod(0o777 & ~mask)


def _clear_killed_saves(folder: Path) -> None:
    """Remove what interrupted saves left beside a folder; restore a checkpoint that one of them had moved away."""
    for temporary in folder.parent.glob(f".{glob.escape(folder.name)}.????????"):  # as mkdtemp names them
        if (temporary / "old").exists() and not folder.exists():
            (temporary / "old").replace(folder)
        if {path.name for path in temporary.iterdir()} <= {"old", "new"}:
            shutil.rmtree(temporary, ignore_errors=True)


def _save_model(model: PreTrainedModel, folder: Path) -> None:
    """Write the model, and the mechanism's own modules to a separate file."""
    modules = nn.ModuleDict(modules_of(model))
    if len(modules) == 0:
        model.save_pretrained(folder)
        return
    own = {name: tensor for name, tensor in model.state_dict().items() if MODULE not in name.split(".")}
    learnt = {name: tensor.contiguous() for name, tensor in modules.state_dict().items()}
    model.save_pretrained(folder, state_dict=own)
    save_file(learnt, folder / MODULES_FILE)


def load_pretrained(
    path_or_name: str | Path, attention: str | None = None, *, dtype: torch.dtype = torch.float32, **options: Any,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase | None]:
    """Load a causal language model with the attention it was saved with, or with another.

    The trained modules of the saved mechanism are loaded whenever that mechanism is used.

    Args:
        path_or_name: a folder, or a name on the Hugging Face hub. `data/models/NAME` is found outside a clone too.
        attention: a mechanism to use instead of the saved one; "full" for the model's own.
        dtype: dtype of the weights.
        options: options of `attention`, as in `swap_attention`.

    Returns:
        The model in evaluation mode, and its tokenizer, or None if none was saved.

    Raises:
        ValueError: if there is nothing to load, if a file is broken or does not fit the others (see
            `cca_lab.models.loading`), or if the options do not fit the attention or its saved modules.
    """
    if options and attention is None:
        raise ValueError(f"{next(iter(options))}: given without attention; name the mechanism too, as in "
                         "load_pretrained(folder, 'cca', group=16, window=256)")
    check_path("path_or_name", path_or_name)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ValueError(f"dtype: got {dtype!r}, wanted a floating dtype of torch, such as torch.float32")
    source = _source(path_or_name)
    model = load_model(source, dtype)
    saved, saved_options = saved_choice(model.config, source)
    if attention is None:
        attention, options = saved, saved_options
    swap_attention(model.eval(), attention, **options)
    if attention == saved:
        _load_modules(model, source)
    return model, load_tokenizer(source, model)


def _load_modules(model: PreTrainedModel, source: str) -> None:
    """Load the saved weights of the mechanism's modules into the model."""
    modules = nn.ModuleDict(modules_of(model))
    if len(modules) == 0:
        return
    try:
        file = cached_file(source, MODULES_FILE)
    except OSError as error:
        raise ValueError(f"path_or_name: {source} holds no {MODULES_FILE}, what its attention had learnt; "
                         "save with cca_lab.models.save_pretrained, not with the model's own") from error
    with reading(source, MODULES_FILE):
        weights = load_file(file)  # type: ignore[arg-type]  # None is for other options
    wanted, got = shapes(modules), {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if wanted != got:
        name = next(name for name in sorted(wanted | got) if wanted.get(name) != got.get(name))
        raise ValueError(f"options: got some that ask for {name} of shape {wanted.get(name)}, saved was "
                         f"{got.get(name)}; load it as saved, and call swap_attention for a new module")
    check_finite(weights, source)
    modules.load_state_dict(weights)


def check_path(name: str, path: str | Path) -> None:
    """Raise ValueError unless the argument is a non-empty path or name."""
    if not isinstance(path, str | Path) or not str(path).strip():
        raise ValueError(f"{name}: got {path!r}, wanted a path or a name")


def _source(path_or_name: str | Path) -> str:
    """Return a folder's path or a hub name; raise ValueError for a missing folder."""
    path = shipped_model(Path(path_or_name).expanduser())
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ValueError(f"path_or_name: {path} holds no model (no config.json); pass the folder that "
                             "save_pretrained wrote")
        return str(path)
    name = str(path_or_name)
    if isinstance(path_or_name, Path) or path.is_absolute() or name.startswith(".") or name.count("/") > 1:
        raise ValueError(f"path_or_name: no folder {path}; check the path, or pass a name on the hub such as "
                         "'gpt2', which needs a network the first time")
    return name
