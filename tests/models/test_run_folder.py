"""A run's folder that is read back: what is broken is named, and nothing goes on in silence."""

import json
import os
import shutil

import pytest
import torch

from cca_lab.models import finetune, run_folder, swap_attention
from cca_lab.models.finetune import Finetuner
from cca_lab.studies.finetune import check_launch
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


def resumed(folder, model=None, **how):
    finetuner = Finetuner(model or with_dropout(), mixture(), in_float32(steps=2), folder)
    return finetuner, finetuner.resume(**how)


def cut(path):
    path.write_bytes(path.read_bytes()[:100])


def junk(path):
    path.write_bytes(b"x\n")


def empty(path):
    path.write_bytes(b"")


BREAKS = {"cut": cut, "junk": junk, "empty": empty, "gone": os.remove}


@pytest.mark.parametrize("broken", BREAKS)
@pytest.mark.parametrize("name", ["progress.json", "model.safetensors", "optimizer.bin",
                                  "random_states_0.pkl"])
def test_each_file_of_the_state_is_named_when_it_is_broken(run, name, broken):
    """accelerate alone ends in a traceback, or goes on without the random states."""
    assert {path.name for path in (run / "state").iterdir()} >= {name}
    BREAKS[broken](run / "state" / name)
    gone = broken == "gone" and name != "random_states_0.pkl"
    with pytest.raises(ValueError, match="^resume: .*" + ("state" if gone else name)):
        resumed(run)


@pytest.mark.parametrize("broken", BREAKS)
def test_lost_random_states_need_a_word(run, broken):
    """The mutant that never looks resumes with dropout that differs."""
    assert resumed(run)[1] == 2
    BREAKS[broken](run / "state" / "random_states_0.pkl")
    with pytest.raises(ValueError, match="random_states_0.pkl cannot .* --allow-different"):
        resumed(run)
    assert resumed(run, allow_different=True)[1] == 2


def test_a_state_that_is_not_looked_at_would_be_seen(run, monkeypatch):
    (run / "state" / "random_states_0.pkl").unlink()
    monkeypatch.setattr(finetune, "check_random_state", lambda state, process: None)
    assert resumed(run)[1] == 2


@pytest.mark.parametrize("content, named", [
    ("{}", "step: got nothing"), ("[]", r"got \[\], wanted"), ("5", "got 5"), ("null", "got None"),
    ('{"step": "x", "precision": "float32", "run": {}}', "step: got 'x'"),
    ('{"step": true, "precision": "float32", "run": {}}', "step: got True"),
    ('{"step": 1, "precision": "float32", "run": null}', r"run: got None"),
    ('{"step": 1, "precision": 5, "run": {}}', "precision: got 5"),
    ('{"step": NaN}', "NaN' is no finite number")])
def test_progress_of_another_form_is_named(run, content, named):
    (run / "state" / "progress.json").write_text(content)
    with pytest.raises(ValueError, match=rf"^resume: .*progress\.json.*{named}"):
        resumed(run)


def test_a_negative_step_is_refused(run):
    path = run / "state" / "progress.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"step": -7}))
    with pytest.raises(ValueError, match="step: got -7, wanted 0 or more"):
        resumed(run)


@pytest.mark.parametrize("line, named", [
    ("5", "got 5"), ("null", "got None"), ("{}", "got nothing"), ('{"step": "x"}', "got 'x'"),
    ('{"step": 1, "text_loss": "x"}', "text_loss: got 'x'")])
def test_a_record_of_another_form_is_named_with_its_line(run, line, named):
    with (run / "log.jsonl").open("a") as log:
        log.write(f"{line}\n")
    with pytest.raises(ValueError, match=f"^log: line 3 of .*{named}"):
        resumed(run)


def test_a_log_that_is_no_text_is_named(run):
    (run / "log.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(ValueError, match=r"^log: .*log\.jsonl is no text in UTF-8"):
        resumed(run)


def test_the_state_of_another_model_is_said_to_be_one(run):
    with pytest.raises(ValueError, match="is the state of another model"):
        resumed(run, swap_attention(small.model("opt"), "cca", group=4, window=8))


def test_a_folder_that_holds_something_else_is_refused_before_the_training(tmp_path):
    (tmp_path / "model" / "mine").mkdir(parents=True)
    with pytest.raises(ValueError, match="exists and is not a checkpoint"):
        Finetuner(swapped(), mixture(), in_float32(steps=1), tmp_path)


def test_a_full_disk_is_one_line_and_leaves_the_last_checkpoint(run, monkeypatch):
    finetuner, _ = resumed(run)
    before = sorted(path.name for path in run.rglob("*"))

    def full(folder):
        raise RuntimeError("unexpected pos 64 vs 10")  # as torch says it

    monkeypatch.setattr(finetuner.accelerator, "save_state", full)
    with pytest.raises(ValueError, match="unexpected pos .* the checkpoint before this one stays"):
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


@pytest.mark.parametrize("name", finetune.ENGINES)
def test_an_engine_of_the_environment_is_refused(name, monkeypatch):
    monkeypatch.setenv(name, "true")
    with pytest.raises(ValueError, match=f"^{name}: is set"):
        Finetuner(swapped(), mixture(), in_float32(steps=1))


@pytest.mark.parametrize("rank, size, right", [
    ("", "", True), ("0", "1", True), ("0", "2", True), ("1", "2", True), ("1", "1", False),
    ("2", "2", False), ("-1", "2", False), ("x", "2", False), ("0", "", False), ("", "2", False)])
def test_variables_that_a_launcher_left_are_named(rank, size, right, monkeypatch, capsys):
    """A process of rank 1 of 1 would wait for half an hour."""
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", size)
    if right:
        check_launch()
    else:
        with pytest.raises(ValueError, match="^RANK, WORLD_SIZE: got"):
            check_launch()
    assert ("waiting for 1 other" in capsys.readouterr().err) == ((rank, size) == ("0", "2"))


def test_every_file_of_a_state_is_one_that_these_tests_break(stopped):
    """A new accelerate may write more."""
    names = {path.name for path in (stopped / "state").iterdir()}
    assert names == {run_folder.PROGRESS, "model.safetensors", "optimizer.bin",
                     "random_states_0.pkl"}
