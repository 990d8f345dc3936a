"""In which precision a finetuning multiplies.

Who chooses, and what bfloat16 costs.
"""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from cca_lab.models import finetune, training
from cca_lab.models.finetune import Finetuner
from cca_lab.models.recipe import FinetuneConfig
from cca_lab.models.training import auto_precision
from tests.models.test_finetune import mixture, same, swapped, weights

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def batches():
    return mixture(rows=8, text_share=0.25, shift=8)


# ---------------------------------------------------------------- who chooses

@pytest.mark.parametrize(("device", "units", "wanted"), [
    (CPU, True, "float32"), (GPU, True, "bf16"), (GPU, False, "float32")])
def test_auto_is_bf16_on_a_gpu_that_has_it(monkeypatch, device, units, wanted):
    monkeypatch.setattr(training, "matrix_units", lambda device: units)
    assert auto_precision(device) == wanted


def test_a_run_that_trains_nothing_or_was_told_does_not_choose(monkeypatch):
    monkeypatch.setattr(finetune, "auto_precision", None)  # to call it fails
    for precision in ("float32", "bf16"):
        config = FinetuneConfig(precision=precision)
        assert Finetuner(swapped(), batches(), config).precision == precision
    assert Finetuner(swapped(), batches(), FinetuneConfig(strategy="none")).precision == "float32"


# ---------------------------------------------------------------- what bfloat16 costs

# A product in bfloat16 rounds both factors and the result by up to 2**-9 of themselves; 2**-9 /
# sqrt(3) is the standard deviation. On the way to a logit stand 13 products (6 a block, and the
# head), so a logit is wrong by sqrt(3 * 13) * 2**-9 / sqrt(3) = 0.7 % of its size, 0.6 for a new
# model: 0.004. A token's loss takes two such logits, 0.006, and a mean over no fewer than 4 answers
# 0.003. Five standard deviations are 0.015. In later steps the weights differ too, by what AdamW
# makes of gradients that are 1 % wrong: as much again.
TOLERANCE = 0.03
TRAINS = FinetuneConfig(steps=5, learning_rate=1e-2, warmup=1)


def run(name):
    """Train in a precision.

    The losses of each step, the types of what a projection gave, the model.
    """
    model, kinds = swapped(), set()
    model.transformer.h[1].attn.c_attn.register_forward_hook(
        lambda module, args, output: kinds.add(output.dtype))
    finetuner = Finetuner(model, batches(), replace(TRAINS, precision=name))
    return [record[kind] for record in finetuner.run()
            for kind in ("text_loss", "task_loss")], kinds, model


def test_bf16_trains_as_float32_does(monkeypatch):
    """The mutants, products that stay float32 and weights that do not, are seen by their types."""
    read = batches()
    assert min(int(read.batch(step)[1][read.text_rows:, 1:].sum())
               for step in range(TRAINS.steps)) >= 4
    whole, kinds, _ = run("float32")
    assert kinds == {torch.float32}
    rounded, kinds, model = run("bf16")
    assert kinds == {torch.bfloat16}
    assert all(p.dtype == torch.float32 for p in model.parameters())
    gaps = [abs(one - other) for one, other in zip(rounded, whole, strict=True)]
    assert 0 < max(gaps) < TOLERANCE, gaps
    assert whole[0] - whole[
        -2] > 10 * TOLERANCE  # it trains: a run that does not would be far from it
    monkeypatch.setattr(finetune, "autocast", lambda name, device: nullcontext())
    assert run("bf16")[1] == {torch.float32}


# ---------------------------------------------------------------- a resumed run keeps it

def test_a_resumed_run_keeps_its_precision(tmp_path, monkeypatch):
    config, whole = FinetuneConfig(steps=4, save_every=2), swapped()
    monkeypatch.setattr(finetune, "auto_precision", lambda device: "bf16")
    Finetuner(whole, batches(), config).run()

    class Stop(Exception):
        pass

    def stop_after_three(record):
        if record["step"] == 3:
            raise Stop

    with pytest.raises(Stop):
        Finetuner(swapped(), batches(), config, tmp_path / "stopped").run(stop_after_three)
    monkeypatch.setattr(finetune, "auto_precision", lambda device: "float32")

    model = swapped()
    finetuner = Finetuner(model, batches(), config, tmp_path / "stopped")
    assert finetuner.resume() == 2
    finetuner.run()
    assert finetuner.precision == "bf16" and same(weights(model), weights(whole))
