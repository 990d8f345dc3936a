"""Adapters: low-rank updates of W^Q, W^K and W^V (LoRA), which peft puts into the model itself.

The model keeps its class. A folder of an adapter is peft's own, so that peft can load it too.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from cca_lab.models.interface import MODULE
from cca_lab.models.plugin import check_family
from cca_lab.models.training import LORA, QKV_MODULES
from cca_lab.stored import read_json

CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"  # as peft names them
NAME = "default"  # of a model's only adapter
PREFIX = "base_model.model."  # of the names in the file: peft's own model wraps ours in two
BASE = "cca_lab_base"  # in the file's metadata: what tells the base from another of its shapes
SCALE = 2  # LoRA's alpha / rank, by which the update is multiplied


def adapter_of(model: PreTrainedModel) -> Any:
    """Return peft's config of a model's adapter, or None if it has none."""
    adapters = getattr(model, "peft_config", {})
    if others := adapters.keys() - {NAME}:
        raise ValueError(f"model: has an adapter {min(others)!r}, wanted one alone, called "
                         f"{NAME!r}; remove it with model.delete_adapter({min(others)!r})")
    return adapters.get(NAME)


def add_lora(model: PreTrainedModel, rank: int) -> None:
    """Add an adapter that changes nothing yet, or keep the one that is there, if of this rank."""
    from peft import LoraConfig

    if (present := adapter_of(model)) is not None:
        if present.r != rank:
            raise ValueError(f"rank: got {rank}, wanted {present.r}, as the model has an adapter "
                             "of that rank; give the same, or begin with the base model")
        return
    check_family(model)
    # with the layer's name: a mechanism's own module may have projections called the same
    paths = [name.split(".") for name, _ in model.named_modules()]
    targets = {".".join(path[-2:]) for path in paths
               if path[-1] in QKV_MODULES and MODULE not in path}
    model.add_adapter(LoraConfig(r=rank, lora_alpha=SCALE * rank, lora_dropout=0.0,
                                 target_modules=sorted(targets), task_type="CAUSAL_LM",
                                 # GPT-2 stores its matrices transposed
                                 fan_in_fan_out=model.config.model_type == "gpt2"), NAME)


def fingerprint(weights: Mapping[str, Tensor]) -> str:
    """Return the first 16 hex digits of the SHA-256 over names and values."""
    total = hashlib.sha256()
    for name, weight in weights.items():
        total.update(name.encode())
        values = weight.detach().cpu().contiguous().flatten()
        total.update(values.view(torch.uint8).numpy().tobytes())
    return total.hexdigest()[:16]


def _base_of(model: PreTrainedModel) -> str:
    """Return the dtype and the fingerprint of the weights that an adapter updates."""
    weights = {name.replace(".base_layer", ""): weight for name, weight in model.named_parameters()
               if LORA not in name and MODULE not in name.split(".")}
    return f"{model.dtype} {fingerprint(weights)}"


def adapter_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return the weights of a model's adapter by the names that they have in its file."""
    from peft import get_peft_model_state_dict

    # otherwise it asks the hub for the size of the base's vocabulary
    weights = get_peft_model_state_dict(model, adapter_name=NAME, save_embedding_layers=False)
    return {PREFIX + name: weight for name, weight in weights.items()}


def save_adapter(model: PreTrainedModel, folder: Path) -> None:
    """Write a model's adapter to a folder."""
    # peft writes its sets in any order
    config = json.dumps(adapter_of(model).to_dict(), indent=2, sort_keys=True, default=sorted)
    (folder / CONFIG_FILE).write_text(config, encoding="utf-8")
    weights = {name: weight.contiguous() for name, weight in adapter_weights(model).items()}
    save_file(weights, folder / WEIGHTS_FILE, metadata={"format": "pt", BASE: _base_of(model)})


def described(folder: Path) -> dict[str, Any]:
    """Return the config in an adapter's folder; ValueError unless it describes a LoRA."""
    path, advice = folder / CONFIG_FILE, "get or save the adapter again"
    config = read_json(path, "adapter", advice)
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise ValueError(f"adapter: {path} describes no LoRA; {advice}")
    return config


def load_adapter(model: PreTrainedModel, folder: Path) -> None:
    """Add the adapter of a folder to the model that it was trained on.

    Raises:
        Exception: of any kind, on a broken file; ValueError if the adapter does not fit the model.
    """
    from peft import LoraConfig, set_peft_model_state_dict

    weights, base = load_file(folder / WEIGHTS_FILE), _base_of(model)
    with safe_open(folder / WEIGHTS_FILE, "pt") as file:
        trained_on = (file.metadata() or {}).get(BASE, base)  # peft's own files have none
    model.add_adapter(LoraConfig.from_pretrained(str(folder)), NAME)
    wanted, got = ({name: tuple(weight.shape) for name, weight in each.items()}
                   for each in (adapter_weights(model), weights))
    for name in sorted(wanted | got):
        if wanted.get(name) != got.get(name):
            raise ValueError(f"{name} is {got.get(name, 'missing')}, and the model wants "
                             f"{wanted.get(name, 'none')}; it was trained on another base model")
    # rounded to another dtype, weights have another fingerprint
    if trained_on.split()[0] == base.split()[0] and trained_on != base:
        raise ValueError("it was trained on another base model")
    set_peft_model_state_dict(model, weights, adapter_name=NAME)


def merge_adapter(model: PreTrainedModel) -> None:
    """Add the adapter's updates to the weights, in place, so that the model is a whole one."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    for name, layer in list(model.named_modules()):
        if isinstance(layer, BaseTunerLayer):
            layer.merge()
            model.set_submodule(name, layer.get_base_layer())
    model.delete_adapter(NAME)
    model.requires_grad_(True)
