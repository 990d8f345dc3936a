"""A run's folder that is read back: what is broken is named, and nothing goes on in silence."""

import json
import os
import shutil

import pytest
import torch

from cca_lab.models import swap_attention
from cca_lab.models.finetune import Finetuner
from tests.models.test_finetune import in_float32, losses, mixture, same, swapped, weights
from tests.studies import small

ACCELERATE = ("ACCELERATE_MIXED_PRECISION", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
              "ACCELERATE_DYNAMO_BACKEND")


def with_dropout():
    model = small.model()
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Dropout) and "attn_dropout" not in name:
            module.p = 0.1
    return swap_attention(model, "cca", group=4, window=8)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Return the folder of a run with dropout that stands at step 2."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    Finetuner(with_dropout(), mixture(), in_float32(steps=2), folder).run()
    return folder


@pytest.fixture
def run(stopped, tmp_path):
    return shutil.copytree(stopped, tmp_path / "run")


def resumed(folder, model=None):
    finetuner = Finetuner(model or with_dropout(), mixture(), in_float32(steps=2), folder)
    return finetuner, finetuner.resume()


def cut(path):
    path.write_bytes(path.read_bytes()[:100])


def flip(path):
    """Change one byte in the middle, which a reader of the format does not notice."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.bin", "random_states_0.pkl"])
def test_a_file_of_the_state_that_changed_is_named(run, name):
    """accelerate alone takes other weights, and goes on without the random states."""
    assert resumed(run)[1] == 2
    path = run / "state" / name
    whole = path.read_bytes()
    for damage in (flip, cut, os.remove):
        damage(path)
        with pytest.raises(ValueError, match=f"^resume: .*{name} is missing, or not as it was"):
            resumed(run)
        path.write_bytes(whole)


@pytest.mark.parametrize("step", [-7, 99])
def test_a_step_that_was_not_taken_is_refused(run, step):
    path = run / "state" / "progress.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"step": step}))
    with pytest.raises(ValueError, match=rf"progress\.json: step: got {step}, wanted 0 to 2"):
        resumed(run)


def test_the_state_of_another_model_is_said_to_be_one(run):
    with pytest.raises(ValueError, match="is the state of another model"):
        resumed(run, swap_attention(small.model("opt"), "cca", group=4, window=8))


def test_a_folder_that_holds_something_else_is_refused_before_the_training(tmp_path):
    (tmp_path / "model" / "mine").mkdir(parents=True)
    with pytest.raises(ValueError, match="exists and is not a checkpoint"):
        Finetuner(swapped(), mixture(), in_float32(steps=1), tmp_path)


def test_a_full_disk_leaves_the_last_checkpoint(run, monkeypatch):
    finetuner, _ = resumed(run)
    before = sorted(path.name for path in run.rglob("*"))

    def full(folder):
        raise RuntimeError("unexpected pos 64 vs 10")  # as torch says it

    monkeypatch.setattr(finetuner.accelerator, "save_state", full)
    with pytest.raises(RuntimeError, match="unexpected pos"):
        finetuner.save()
    assert sorted(path.name for path in run.rglob("*")) == before
    monkeypatch.undo()
    assert resumed(run)[1] == 2


def test_the_environment_changes_no_weight(monkeypatch):
    """accelerate alone takes both variables: bfloat16, and gradients divided by four."""
    def trained():
        model = swapped()
        records = Finetuner(model, mixture(), in_float32(steps=2)).run()
        return losses(records), weights(model)

    for name in ACCELERATE:
        monkeypatch.delenv(name, raising=False)
    told, plain = trained()
    for name, value in zip(ACCELERATE, ("bf16", "4", "inductor"), strict=True):
        monkeypatch.setenv(name, value)
    assert trained()[0] == told and same(trained()[1], plain)
