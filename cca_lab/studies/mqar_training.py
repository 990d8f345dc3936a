"""One training run on multi-query associative recall: a small GPT-2 with one mechanism.

Differs from Zoology (Arora et al. 2024, Figure 2; github.com/HazyResearch/zoology), whose model
it has, in the training, which reads a hundredth of the examples on one core:
  * Muon for the matrices of the blocks, AdamW for the rest, at one pair of learning rates after a
    warm-up; there, AdamW at four rates, of which the best counts.
  * 64 new texts for each step; there, 512 of 100 000 texts, which are read up to 64 times.
  * Larger initial weights, above all of the positions: with GPT-2's 0.02 the first thousand steps
    learn little else than to name one of the values of the text.
  * No dropout (there 0.1), and nothing for the MLP; there the identity adds the normalised
    residual.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from cca_lab import models
from cca_lab.mechanisms import Mechanism
from cca_lab.models.recipe import Diverged
from cca_lab.reporting import device
from cca_lab.tasks.mqar import MQAR, UNASKED

if TYPE_CHECKING:
    from transformers import GPT2LMHeadModel

EMBEDDING_STD, POSITION_STD = 0.3, 0.6
TEST_SEED = 2**20  # seeds of training are below
TESTED_AT_ONCE = 250


@dataclass(frozen=True)
class RecallRecipe:
    """The model and the training of every mechanism."""

    steps: int = 3000  # at most
    rows: int = 64  # texts per step
    rate: float = 1e-2  # of the matrices of the blocks (Muon); falls to 0 along a cosine
    other_rate: float = 2e-3  # of all other weights (AdamW)
    weight_decay: float = 0.1  # of every matrix
    warmup: int = 50  # steps
    every: int = 100  # steps between two measurements
    tests: int = 1000  # texts of a measurement, the same each time
    solved: float = 0.99  # accuracy at which training stops
    width: int = 64
    layers: int = 2
    heads: int = 1


@dataclass(frozen=True)
class Run:
    """What a training run gave."""

    accuracy: float  # share of the queries of the test texts that are answered at the end
    curve: list[tuple[int, float]]  # (step, accuracy)
    seconds: float  # of training and measurements


class NoMLP(nn.Module):
    """In the place of a block's MLP: adds nothing to the residual."""

    def forward(self, hidden: Tensor) -> Tensor:
        """Return zeros."""
        return torch.zeros_like(hidden)


def new_model(task: MQAR, recipe: RecallRecipe) -> "GPT2LMHeadModel":
    """Build an untrained GPT-2 without MLPs, in float32, with random positions."""
    from transformers import GPT2Config, GPT2LMHeadModel

    from cca_lab.models.training import block_matrices

    config = GPT2Config(vocab_size=task.vocabulary, n_positions=task.length, n_embd=recipe.width,
                        n_layer=recipe.layers, n_head=recipe.heads, resid_pdrop=0.0, embd_pdrop=0.0,
                        attn_pdrop=0.0, bos_token_id=None, eos_token_id=None, pad_token_id=None)
    model = GPT2LMHeadModel(config)
    transformer = model.transformer
    for block in transformer.h:
        block.ln_2, block.mlp = nn.Identity(), NoMLP()
    for _, matrix in block_matrices(model):
        nn.init.normal_(matrix, std=recipe.width**-0.5)
    nn.init.normal_(transformer.wte.weight, std=EMBEDDING_STD)
    nn.init.normal_(transformer.wpe.weight, std=POSITION_STD)
    return model


def learn(task: MQAR, mechanism: Mechanism, recipe: RecallRecipe, seed: int,
          report: Callable[[int, float], None] = lambda step, accuracy: None) -> Run:
    """Train a model until it solves the task or the steps end; report each (step, accuracy)."""
    start = time.perf_counter()
    torch.manual_seed(seed)
    model = new_model(task, recipe)
    models.swap_attention(model, mechanism)
    model.to(device())  # type: ignore[arg-type]  # transformers wraps Module.to
    train, test = (torch.Generator().manual_seed(number) for number in (seed, TEST_SEED + seed))
    tests = task.batch(recipe.tests, test)
    optimizers, schedules = scheduled(model, recipe)
    curve = []
    for step in range(1, recipe.steps + 1):
        logits, answers = asked(model, *task.batch(recipe.rows, train))
        loss = F.cross_entropy(logits, answers)
        if not math.isfinite(loss.item()):
            raise Diverged(f"{mechanism}, seed {seed}: the loss is {loss.item()} at step {step}; "
                           "lower the rates")
        model.zero_grad()
        loss.backward()
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
        if step % recipe.every == 0 or step == recipe.steps:
            curve.append((step, accuracy(model, *tests)))
            report(*curve[-1])
            if curve[-1][1] >= recipe.solved:
                break
    return Run(curve[-1][1], curve, round(time.perf_counter() - start, 1))


def scheduled(model: "GPT2LMHeadModel",
              recipe: RecallRecipe) -> tuple[list[Optimizer], list[LambdaLR]]:
    """Return Muon for the matrices of the blocks and AdamW for the rest, and their schedules."""
    from cca_lab.models.training import make_optimizers

    def share(step: int) -> float:
        warm = min(1.0, (step + 1) / recipe.warmup)
        return warm * (1 + math.cos(math.pi * step / recipe.steps)) / 2

    optimizers = make_optimizers(model, muon=True, learning_rate=recipe.rate,
                                 weight_decay=recipe.weight_decay, betas=(0.9, 0.999), fused=True)
    for group in optimizers[1].param_groups:
        group["lr"] = recipe.other_rate
    return optimizers, [LambdaLR(optimizer, share) for optimizer in optimizers]


def asked(model: "GPT2LMHeadModel", input_ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits at the queries alone, (queries, V), and the right values, (queries,)."""
    input_ids, targets = input_ids.to(model.device), targets.to(model.device)
    hidden = model.transformer(input_ids, use_cache=False).last_hidden_state     # (rows, L, width)
    queries = targets != UNASKED
    return model.lm_head(hidden[queries]), targets[queries]


@torch.no_grad()
def accuracy(model: "GPT2LMHeadModel", input_ids: Tensor, targets: Tensor) -> float:
    """Return the share of the queries whose most probable token is the right value."""
    model.eval()
    right = count = 0
    for some in zip(input_ids.split(TESTED_AT_ONCE), targets.split(TESTED_AT_ONCE), strict=True):
        logits, answers = asked(model, *some)
        right += int((logits.argmax(-1) == answers).sum())
        count += len(answers)
    model.train()
    return right / count
