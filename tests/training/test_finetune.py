"""Finetuning: what is trained, resuming bit for bit, Ctrl-C, two processes."""

import copy
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from cca_lab.models import attention_of, disable_attention_dropout, load_pretrained, swap_attention
from cca_lab.models.finetune import FinetuneConfig, Finetuner, mark_trainable, masked_losses, read_log
from cca_lab.models.pretrain import tokenize
from cca_lab.tasks.mixture import Mixture
from cca_lab.tasks.multi_document_qa import MultiDocumentQA
from tests.training import small


def mixture(kind=Mixture, **changes):
    settings = dict(stream=tokenize(small.corpus().train, small.tokenizer()),
                    task=MultiDocumentQA(small.tokenizer()), length=64, rows=4, text_share=0.5, seed=0)
    return kind(**settings | changes)


def swapped(family="gpt2"):
    return swap_attention(small.model(family), "cca", group=4, window=8)


def weights(model):
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_batches_depend_on_step_micro_and_process_only():
    one, other = mixture(), mixture()
    assert torch.equal(one.batch(5, 1, 0)[0], other.batch(5, 1, 0)[0])
    distinct = {one.batch(*at)[0].numpy().tobytes() for at in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]}
    assert len(distinct) == 4
    assert not torch.equal(mixture(seed=1).batch(0)[0], one.batch(0)[0])


def test_losses_are_means_over_the_marked_tokens():
    logits = torch.randn(3, 5, 7, dtype=torch.float64)
    ids = torch.randint(7, (3, 5))
    known = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 1, 0, 1]], dtype=torch.bool)
    text, task = masked_losses(logits, ids, known, text_rows=2)
    log_p = logits.float().log_softmax(-1)

    def loss(row, column):
        return -log_p[row, column - 1, ids[row, column]]

    assert text == pytest.approx(sum(loss(r, c) for r in (0, 1) for c in range(1, 5)).item() / 8, rel=1e-5)
    assert task == pytest.approx((loss(2, 2) + loss(2, 4)).item() / 2, rel=1e-5)


@pytest.mark.parametrize("family, expected", [
    ("gpt2", {"c_attn.weight"}), ("opt", {"q_proj.weight", "k_proj.weight", "v_proj.weight"})])
def test_qkv_trains_the_three_projections_only(family, expected):
    model = swapped(family)
    before = weights(model)
    trained = mark_trainable(model, "qkv")
    assert {".".join(name.split(".")[-2:]) for name in trained} == expected
    Finetuner(model, mixture(), FinetuneConfig(steps=2, strategy="qkv")).run()
    changed = {name for name, value in weights(model).items() if not torch.equal(value, before[name])}
    assert changed == set(trained)


def test_full_trains_everything_and_none_nothing():
    model = swapped()
    before = weights(model)
    assert Finetuner(model, mixture(), FinetuneConfig(steps=2, strategy="none")).run() == []
    assert same(weights(model), before)
    Finetuner(model, mixture(), FinetuneConfig(steps=2, strategy="full")).run()
    assert not any(torch.equal(value, before[name]) for name, value in weights(model).items())


def test_the_loss_falls():
    records = Finetuner(swapped(), mixture(), FinetuneConfig(steps=30, learning_rate=3e-3)).run()
    assert records[-1]["text_loss"] < 0.7 * records[0]["text_loss"]


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
    config = FinetuneConfig(steps=6, save_every=3, accumulation=2)
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
    losses = [[(r["step"], r["text_loss"], r["task_loss"]) for r in read_log(tmp_path / run)]
              for run in ("whole", "parts")]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("forget", [False, True])
def test_resume_without_the_optimizer_state_would_be_seen(tmp_path, forget):
    """The mutant of the test above, weights restored and optimizer forgotten, beside its correct twin."""
    config = FinetuneConfig(steps=6, save_every=3)
    whole = swapped()
    Finetuner(whole, mixture(), config).run()
    halves = swapped()
    first = Finetuner(halves, mixture(), config)
    for _ in range(3):
        first._step()
    second = Finetuner(halves, mixture(), config)
    second.step = 3
    if not forget:
        second.optimizer.load_state_dict(first.optimizer.state_dict())
    second.run()
    assert same(weights(whole), weights(halves)) is not forget


@pytest.mark.parametrize("moment", ["in a forward", "between steps"])
def test_ctrl_c_finishes_the_step_saves_and_resumes_bit_for_bit(tmp_path, moment):
    """With dropout, so that a step cut in half would leave the random state of nobody."""
    def dropped_out():
        model = swapped()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.1
        return disable_attention_dropout(model)

    config = FinetuneConfig(steps=5, save_every=0)
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
        finetuner.run(None if moment == "in a forward" else lambda record: interrupt(record["step"]))
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
    config = FinetuneConfig(steps=1)
    Finetuner(swapped(), mixture(), config, tmp_path).run()
    (tmp_path / "state").rename(tmp_path / "state.old")
    assert Finetuner(swapped(), mixture(), config, tmp_path).resume() == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.jsonl", "model", "state"]


def test_resume_refuses_another_configuration_and_an_empty_folder(tmp_path):
    Finetuner(swapped(), mixture(), FinetuneConfig(steps=1), tmp_path).run()
    with pytest.raises(ValueError, match="learning_rate differ"):
        Finetuner(swapped(), mixture(), FinetuneConfig(steps=1, learning_rate=1.0), tmp_path).resume()
    for other in (mixture(length=32), mixture(seed=1), mixture(task=None)):
        with pytest.raises(ValueError, match="differ from the run"):
            Finetuner(swapped(), other, FinetuneConfig(steps=1), tmp_path).resume()
    narrow = swap_attention(small.model(), "cca", group=2, window=8)
    with pytest.raises(ValueError, match="group differ"):
        Finetuner(narrow, mixture(), FinetuneConfig(steps=1), tmp_path).resume()
    with pytest.raises(ValueError, match="no state"):
        Finetuner(swapped(), mixture(), FinetuneConfig(steps=1), tmp_path / "empty").resume()


@pytest.mark.parametrize("changes, message", [
    ({"strategy": "half"}, "full, qkv, none"), ({"steps": -1}, "steps: got -1"), ({"accumulation": 0}, "1 or more")])
def test_a_wrong_configuration_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        FinetuneConfig(**changes)


@dataclass(frozen=True)
class MicroStepsAsProcesses(Mixture):
    """Gives one process, micro-step by micro-step, what several processes would read side by side."""

    def batch(self, step, micro=0, process=0):
        return super().batch(step, 0, micro)


def two_process_run(folder: Path) -> None:
    """The program that torchrun starts twice."""
    model = swapped()
    finetuner = Finetuner(model, mixture(), FinetuneConfig(steps=3), folder)
    finetuner.run()
    rank = finetuner.accelerator.process_index
    torch.save(weights(model), folder / f"rank{rank}.pt")


def test_two_processes_train_as_one_with_their_batches_accumulated(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
               __file__, str(tmp_path)]
    root = Path(__file__).parents[2]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    ranks = [torch.load(tmp_path / f"rank{rank}.pt") for rank in range(2)]
    assert same(*ranks)
    alone = swapped()
    Finetuner(alone, mixture(MicroStepsAsProcesses), FinetuneConfig(steps=3, accumulation=2)).run()
    gap = max(float((value - ranks[0][name]).abs().max()) for name, value in weights(alone).items())
    assert gap < 1e-5, f"largest difference {gap:.1e}"  # the order of one sum differs, three Adam steps amplify it
    assert [json.loads(line)["step"] for line in open(tmp_path / "log.jsonl")] == [1, 2, 3]  # one process logs


if __name__ == "__main__":
    two_process_run(Path(sys.argv[1]))
