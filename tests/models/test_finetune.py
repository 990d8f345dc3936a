"""Finetuning.

What is trained, one batch for processes and micro-steps, resuming, divergence, Ctrl-C.
"""

import copy
import math
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from cca_lab.models import (
    attention_of,
    disable_attention_dropout,
    finetune,
    load_pretrained,
    swap_attention,
)
from cca_lab.models.finetune import RISE, WATCHED, Diverged, FinetuneConfig, Finetuner
from cca_lab.models.run_folder import append_log, read_log, trim_log
from cca_lab.models.training import MatrixMuon, make_optimizers, mark_trainable, row_losses
from cca_lab.tasks.mixture import Mixture
from cca_lab.tasks.multi_document_qa import MultiDocumentQA
from tests.studies import small


def mixture(**changes):
    settings = dict(stream=small.stream(),
                    tasks=(MultiDocumentQA(small.tokenizer()), ), length=64, rows=4, text_share=0.5,
                    seed=0, shift=16)
    return Mixture(**settings | changes)


def in_float32(**settings):
    """Return a configuration that does not ask which precision is faster here.

    Runs are compared to the last digits.
    """
    return FinetuneConfig(**settings, precision="float32")


def swapped(family="gpt2"):
    return swap_attention(small.model(family), "cca", group=4, window=8)


def weights(model):
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def same(first, second):
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first)


def gap(first, second):
    """Return the largest difference between two models' weights."""
    return max(float((first[name] - second[name]).abs().max()) for name in first)


def losses(records):
    return [(record["step"], record["text_loss"], record["task_loss"]) for record in records]


def far_apart(first, second):
    """Return the largest relative difference between the losses of two runs."""
    return max(abs(one / other - 1) for pair in zip(losses(first), losses(second), strict=True)
               for one, other in zip(*pair, strict=True))


def masked_losses(logits, input_ids, known, text_rows):
    """The mean cross entropy of text rows and of question rows, over their marked tokens."""
    losses, marked = row_losses(logits, input_ids, known), known[:, 1:].sum(dim=1)
    kinds = slice(None, text_rows), slice(text_rows, None)
    return tuple(losses[rows].sum() / marked[rows].sum().clamp(min=1) for rows in kinds)


def test_losses_are_means_over_the_marked_tokens():
    logits = torch.randn(3, 5, 7, dtype=torch.float64)
    ids = torch.randint(7, (3, 5))
    known = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 1, 0, 1]], dtype=torch.bool)
    text, task = masked_losses(logits, ids, known, text_rows=2)
    log_p = logits.log_softmax(-1)

    def loss(row, column):
        return -log_p[row, column - 1, ids[row, column]]

    assert text == pytest.approx(
        sum(loss(r, c) for r in (0, 1) for c in range(1, 5)).item() / 8, rel=1e-5)
    assert task == pytest.approx((loss(2, 2) + loss(2, 4)).item() / 2, rel=1e-5)


def changed_by_training(model, **config):
    """The names of the weights that two steps change, and of those that were to be trained."""
    before = weights(model)
    finetuner = Finetuner(model, mixture(), in_float32(steps=2, **config))
    finetuner.run()
    return {name for name, value in weights(model).items()
            if not torch.equal(value, before[name])}, finetuner.trained


OPTIMIZERS = ("adamw", "muon")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("family, expected", [
    ("gpt2", {"c_attn.weight"}), ("opt", {"q_proj.weight", "k_proj.weight", "v_proj.weight"})])
def test_qkv_trains_the_three_projections_only(family, expected, optimizer):
    model = swapped(family)
    assert {".".join(name.split(".")[-2:]) for name in mark_trainable(model, "qkv")} == expected
    changed, trained = changed_by_training(model, strategy="qkv", optimizer=optimizer)
    assert changed == set(trained) and len(trained) == 2 * len(expected)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_compressor_trains_what_the_mechanism_added_only(optimizer):
    model = swap_attention(small.model(), "lococo", slots=4, segment=8)
    changed, trained = changed_by_training(model, strategy="compressor", optimizer=optimizer)
    assert changed == set(trained) and all("compressor" in name for name in trained)


def test_full_trains_everything():
    for optimizer in ("adamw", "muon"):
        model = swapped()
        changed, _ = changed_by_training(model, strategy="full", optimizer=optimizer)
        assert changed == weights(model).keys()


def test_none_trains_nothing():
    model = swapped()
    before = weights(model)
    assert Finetuner(model, mixture(), in_float32(steps=2, strategy="none")).run() == []
    assert same(weights(model), before)


def test_none_saves_and_resumes(tmp_path):
    Finetuner(swapped(), mixture(), in_float32(steps=2, strategy="none"), tmp_path).run()
    assert Finetuner(swapped(), mixture(), in_float32(steps=2, strategy="none"),
                     tmp_path).resume() == 0


def test_muon_is_given_the_matrices_and_adamw_the_rest():
    model = swapped()
    mark_trainable(model, "full")
    muon, adamw = make_optimizers(model, muon=True, learning_rate=1e-3, weight_decay=0.01,
                                  betas=(0.9, 0.95))
    assert isinstance(muon, MatrixMuon) and isinstance(adamw, torch.optim.AdamW)
    count = [sum(p.numel() for group in optimizer.param_groups for p in group["params"])
             for optimizer in (muon, adamw)]
    assert sum(count) == sum(p.numel() for p in model.parameters())
    assert count[0] == 2 * 12 * 32 ** 2  # two blocks: projections, output, and the two of the MLP
    assert [group["weight_decay"] for group in adamw.param_groups] == [0.01, 0.0]


@pytest.mark.parametrize("optimizer, rate", [("adamw", 1e-2), ("muon", 2e-2)])
def test_the_loss_falls(optimizer, rate):
    records = Finetuner(swapped(), mixture(),
                        in_float32(steps=20, learning_rate=rate, optimizer=optimizer)).run()
    assert records[-1]["text_loss"] < 0.7 * records[0]["text_loss"]
    assert not any(record["rising"] for record in records)


# The same gradient is summed in another order, so it differs by a few float32 rounding errors, of
# 6e-8 each. Both optimizers take steps of a size that is not the gradient's: where a gradient, or a
# direction of it, is little more than rounding, as in the biases of the keys, the step differs by
# more than that; a step is 1e-4 to 1e-3.
TOLERANCE = 1e-5


@contextmanager
def muon_in_float32():
    """Let Muon orthogonalise in float32.

    In bfloat16 a rounding error of a gradient may become 1e-4 of a weight.
    """
    bfloat16, torch.Tensor.bfloat16 = torch.Tensor.bfloat16, torch.Tensor.clone
    try:
        yield
    finally:
        torch.Tensor.bfloat16 = bfloat16


@pytest.mark.parametrize("optimizer, rows", [
    ("adamw", 8), ("muon", 8),  # one row of each kind a micro-step
    ("adamw", 6)])  # unequal micro-steps
def test_micro_steps_change_nothing_but_memory(rows, optimizer):
    def run(accumulation):
        model = swapped()
        config = in_float32(steps=3, optimizer=optimizer, accumulation=accumulation)
        return Finetuner(model, mixture(rows=rows), config).run(), weights(model)

    with muon_in_float32():
        (whole, expected), (cut, got) = run(1), run(4)
    assert far_apart(cut, whole) < 1e-5 and gap(got, expected) < TOLERANCE


def test_the_losses_written_are_the_means_of_the_whole_batch():
    """Both are those of the model before the step."""
    read = mixture(rows=7)
    model = swapped()
    ids, known = read.batch(0)
    with torch.no_grad():
        expected = [float(loss)
                    for loss in masked_losses(model(ids).logits, ids, known, read.text_rows)]
    record = Finetuner(model, read, in_float32(steps=1, accumulation=3, grow=0)).run()[0]
    assert [record["text_loss"], record["task_loss"]] == pytest.approx(expected, rel=1e-5)


def test_groups_grow_while_the_model_trains_and_only_then():
    """The group sizes of each step; between and after them the model has its own."""
    def groups(grow, size):
        model, seen = swap_attention(small.model(), "cca", group=size, window=8), []
        model.register_forward_hook(lambda *_: seen.append(attention_of(model).group))
        Finetuner(model, mixture(rows=2), in_float32(steps=5, grow=grow)).run(
            lambda record: seen.append(attention_of(model).group))
        assert seen[1::2] == [size] * 5  # between the steps
        return seen[::2]

    assert groups(0.8, 8) == [2, 2, 4, 4, 8]
    assert groups(0.6, 4) == [2, 2, 2, 4, 4]
    assert groups(0, 8) == [8] * 5
    assert groups(0.6, 2) == [2] * 5


def test_each_micro_step_needs_a_row():
    with pytest.raises(ValueError,
                       match=r"rows: got 4, wanted at least 5.* 5 micro-step\(s\) in 1 process"):
        Finetuner(swapped(), mixture(rows=4), in_float32(accumulation=5))
    Finetuner(swapped(), mixture(rows=4), in_float32(accumulation=4))


def run_until_divergence(folder=None):
    """Train at a rate that the second step cannot survive.

    Return the error, and weights after the first and last.
    """
    model, after = swapped(), []
    config = in_float32(steps=20, learning_rate=1e30, warmup=0, save_every=1)
    with pytest.raises(Diverged) as raised:
        Finetuner(model, mixture(), config, folder).run(lambda record: after.append(weights(model)))
    return str(raised.value), after, weights(model), config


def test_divergence_stops_the_run_and_keeps_what_was_saved(tmp_path):
    message, after, now, config = run_until_divergence(tmp_path)
    assert message.startswith(
        "step 2: loss nan") and f"learning rate of {config.rate(1):.1e}" in message
    assert len(after) == 1 and same(after[0], now) and all(value.isfinite().all()
                                                           for value in now.values())
    model = swapped()
    assert Finetuner(model, mixture(), config, tmp_path).resume() == 1 and same(weights(model), now)


def test_a_gradient_that_is_no_number_is_divergence_too():
    """The loss before it is finite."""
    model = swapped()
    before = weights(model)
    finetuner = Finetuner(model, mixture(), in_float32(steps=1))
    model.transformer.wpe.weight.register_hook(lambda gradient: gradient * math.nan)
    with pytest.raises(
            Diverged,
            match=r"step 1: loss 1[\d.]+, gradient norm nan at a learning rate of 1.0e-04"):
        finetuner.run()
    assert same(weights(model), before)


def test_a_rising_text_loss_is_said_to_rise():
    def rising(*losses):
        return finetune._rising(list(losses))

    assert rising(*[3.0] * WATCHED, *[3.1 + RISE] * WATCHED)
    assert rising(*[3.0] * WATCHED, *[1.0] * 50, *[3.1 + RISE] * WATCHED)
    assert not rising(*[3.0] * WATCHED, *[2.9 + RISE] * WATCHED)
    assert not rising(*[3.0] * WATCHED, *[9.0] * (WATCHED - 1))  # too early to tell
    assert not rising(*[9.0] * WATCHED, *[3.0] * WATCHED)
    assert not rising()  # questions only
    assert not rising(*[3.0] * (2 * WATCHED - 1), 4.0 + RISE)  # a spike


def test_a_resumed_run_goes_on_watching_where_it_stopped(tmp_path):
    """What it rises above is the loss of the run's first steps, not of those after the stop."""
    config = in_float32(steps=2 * WATCHED, learning_rate=30.0, save_every=WATCHED)

    class Stop(Exception):
        pass

    def stop(record):
        if record["step"] == WATCHED + 1:
            raise Stop

    with pytest.raises(Stop):
        Finetuner(swapped(), mixture(), config, tmp_path).run(stop)
    finetuner = Finetuner(swapped(), mixture(), config, tmp_path)
    assert finetuner.resume() == WATCHED
    assert finetuner.run()[-1]["rising"]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, optimizer):
    config = in_float32(steps=6, save_every=3, accumulation=2, optimizer=optimizer)
    whole = swapped()
    start = copy.deepcopy(whole.state_dict())
    Finetuner(whole, mixture(), config, tmp_path / "whole").run()

    class Stop(Exception):
        pass

    def stop_after_five(record):
        if record["step"] == 5:  # two steps past the checkpoint: they must be taken again
            raise Stop

    first = swapped()
    first.load_state_dict(start)
    with pytest.raises(Stop):
        Finetuner(first, mixture(), config, tmp_path / "parts").run(stop_after_five)
    second = swapped()
    finetuner = Finetuner(second, mixture(), config, tmp_path / "parts")
    assert finetuner.resume() == 3
    finetuner.run()
    assert same(weights(whole), weights(second))
    assert losses(read_log(tmp_path / "whole")) == losses(read_log(tmp_path / "parts"))


@pytest.mark.parametrize("moment", ["in a forward", "between steps"])
def test_ctrl_c_finishes_the_step_saves_and_resumes_bit_for_bit(tmp_path, moment):
    """With dropout, so that a step cut in half would leave the random state of nobody."""
    def dropped_out():
        model = swapped()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.1
        return disable_attention_dropout(model)

    config = in_float32(steps=5, save_every=0)
    torch.manual_seed(7)
    whole = dropped_out()
    torch.manual_seed(8)
    Finetuner(whole, mixture(), config).run()

    def interrupt(step):
        if step == 2:
            signal.raise_signal(signal.SIGINT)

    torch.manual_seed(7)
    model = dropped_out()
    torch.manual_seed(8)
    finetuner = Finetuner(model, mixture(), config, tmp_path, small.tokenizer())
    if moment == "in a forward":
        model.register_forward_hook(lambda *_: interrupt(finetuner.step))
    with pytest.raises(KeyboardInterrupt):
        finetuner.run(None if moment ==
                      "in a forward" else lambda record: interrupt(record["step"]))
    loaded, tokenizer = load_pretrained(tmp_path / "model")
    assert attention_of(loaded) == attention_of(model)
    assert same(weights(loaded), weights(model)) and tokenizer is not None
    torch.manual_seed(9)
    resumed = dropped_out()
    continued = Finetuner(resumed, mixture(), config, tmp_path)
    done = continued.resume()
    assert done == (3 if moment == "in a forward" else 2)
    assert [record["step"] for record in continued.run()] == list(range(done + 1, 6))
    assert same(weights(whole), weights(resumed))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.jsonl", "model", "state"]


def test_resume_after_a_cut_between_the_two_renames_of_a_checkpoint(tmp_path):
    config = in_float32(steps=1)
    Finetuner(swapped(), mixture(), config, tmp_path).run()
    (tmp_path / "state").rename(tmp_path / ".state.old")
    assert Finetuner(swapped(), mixture(), config, tmp_path).resume() == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.jsonl", "model", "state"]


def test_resume_refuses_another_configuration_and_an_empty_folder(tmp_path):
    Finetuner(swapped(), mixture(), in_float32(steps=1), tmp_path).run()
    with pytest.raises(ValueError, match="learning_rate .*differ"):
        Finetuner(swapped(), mixture(), in_float32(steps=1, learning_rate=1.0), tmp_path).resume()
    with pytest.raises(ValueError, match="optimizer .*differ"):
        Finetuner(swapped(), mixture(), in_float32(steps=1, optimizer="muon"), tmp_path).resume()
    for other in (mixture(length=32), mixture(seed=1), mixture(tasks=()), mixture(shift=0)):
        with pytest.raises(ValueError, match="differ from the run"):
            Finetuner(swapped(), other, in_float32(steps=1), tmp_path).resume()
    narrow = swap_attention(small.model(), "cca", group=2, window=8)
    with pytest.raises(ValueError, match="group .*differ"):
        Finetuner(narrow, mixture(), in_float32(steps=1), tmp_path).resume()
    with pytest.raises(ValueError, match="no state"):
        Finetuner(swapped(), mixture(), in_float32(steps=1), tmp_path / "empty").resume()
    (tmp_path / "state" / "progress.json").write_text('{"step": 1')
    with pytest.raises(ValueError, match="progress.json is no JSON"):
        Finetuner(swapped(), mixture(), in_float32(steps=1), tmp_path).resume()


def config_of(optimizer):
    return in_float32(steps=3, optimizer=optimizer)


def two_process_run(folder: Path) -> None:
    """The program that torchrun starts twice.

    It is given model and mixture, which take a tokenizer to make.
    """
    base, read = torch.load(folder / "given.pt", weights_only=False)
    for kind in OPTIMIZERS:
        model = swap_attention(copy.deepcopy(base), "cca", group=4, window=8)
        trainer = Finetuner(model, read, config_of(kind), folder / kind)
        with muon_in_float32():
            trainer.run()
        torch.save(weights(model), folder / f"{kind}{trainer.accelerator.process_index}.pt")


def test_two_processes_train_as_one(tmp_path):
    """The same losses and weights, with one batch of five rows between them."""
    read = mixture(rows=5)
    torch.save((small.model(), read), tmp_path / "given.pt")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node",
               "2", __file__, str(tmp_path)]
    root = Path(__file__).parents[2]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    for kind in OPTIMIZERS:
        ranks = [torch.load(tmp_path / f"{kind}{rank}.pt") for rank in range(2)]
        assert same(*ranks)
        alone = swapped()
        with muon_in_float32():
            expected = Finetuner(alone, read, config_of(kind)).run()
        got = list(read_log(tmp_path / kind))
        assert [record["step"] for record in got] == [1, 2, 3]  # one process logs
        loss_gap, weight_gap = far_apart(got, expected), gap(weights(alone), ranks[0])
        assert loss_gap < 1e-5 and weight_gap < TOLERANCE, (
            f"{kind}: {loss_gap:.1e}, {weight_gap:.1e}")
        assert [record["gradient_norm"] for record in got] == pytest.approx(
            [record["gradient_norm"] for record in expected], rel=1e-4)


if __name__ == "__main__":
    two_process_run(Path(sys.argv[1]))


def test_a_log_whose_last_line_was_cut_off_is_read_and_a_hole_is_named(tmp_path):
    for step in (1, 2, 3):
        append_log(tmp_path, {"step": step})
    path = tmp_path / "log.jsonl"
    path.write_text(path.read_text()[:-6])
    assert [record["step"] for record in read_log(tmp_path)] == [1, 2]
    trim_log(tmp_path, 2)
    append_log(tmp_path, {"step": 3})
    assert [record["step"] for record in read_log(tmp_path)] == [1, 2, 3]
    path.write_text(path.read_text().replace('{"step": 2}', '{"ste'))
    with pytest.raises(ValueError):
        list(read_log(tmp_path))
