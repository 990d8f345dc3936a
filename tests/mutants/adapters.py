"""Wrong implementations around adapters; each is killed by the test named in its docstring."""

import torch
from peft import LoraConfig

from cca_lab.models.adapters import NAME, add_lora
from cca_lab.models.finetune import Finetuner
from cca_lab.models.training import QKV_MODULES


def add_changed(model, rank: int) -> None:
    """add_lora whose update is not zero at first: killed by
    test_an_untrained_adapter_changes_nothing."""
    _add(model, rank, init_lora_weights=False)


def add_to_every_projection(model, rank: int) -> None:
    """add_lora by the last name alone: killed by test_a_mechanism_keeps_its_own_projections."""
    _add(model, rank)


def _add(model, rank: int, **changes) -> None:
    names = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    model.add_adapter(LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules=sorted(names.intersection(QKV_MODULES)),
        fan_in_fan_out="c_attn" in names, **changes), NAME)


def begin_again(model, rank: int) -> None:
    """add_lora that makes the present adapter a new one: killed by
    test_training_goes_on_with_the_adapter_that_is_there."""
    add_lora(model, rank)
    _reset(model)


def mark_projections_too(model, strategy: str) -> list[str]:
    """mark_trainable that trains what the adapter updates: killed by
    test_only_the_adapter_is_trained."""
    trained = []
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".lora_" in name or name.endswith("base_layer.weight"))
        trained += [name] if parameter.requires_grad else []
    return trained


def name_as_found(model, given: str) -> None:
    """load_pretrained that keeps the place where the base was found: killed by
    test_the_base_is_named_as_it_was_given."""
    model.name_or_path = model.config._name_or_path


def names_alone(weights) -> str:
    """fingerprint of the names, which another base model has as well: killed by
    test_a_state_holds_what_is_trained_and_fits_one_base."""
    return "".join(weights)


class ForgetsTheAdapter(Finetuner):
    """Restores steps and optimizers, not the adapter: killed by
    test_a_resumed_run_equals_an_uninterrupted_one."""

    def resume(self, **options) -> int:
        step = super().resume(**options)
        _reset(self.model)
        return step


@torch.no_grad()
def _reset(model) -> None:
    for name, parameter in model.named_parameters():
        if ".lora_B." in name:
            parameter.zero_()
