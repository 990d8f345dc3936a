"""Finetuning of a model with swapped attention (CCA section 4: full or partial)."""

import json
import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import GradientAccumulationPlugin
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from cca_lab.files import put_back, replacing_folder, temporary_of
from cca_lab.models.adapters import adapter_of, add_lora, fingerprint
from cca_lab.models.checkpoints import check_replaceable, save_pretrained
from cca_lab.models.context import context_groups, context_of, local_inputs
from cca_lab.models.inputs import check_model
from cca_lab.models.plugin import attention_of, group_size, swap_attention
from cca_lab.models.recipe import Diverged, FinetuneConfig
from cca_lab.models.run_folder import (
    ADVICE,
    PROGRESS,
    WRAPPED,
    append_log,
    check_state,
    digests,
    load_trained,
    read_log,
    trim_log,
)
from cca_lab.models.training import (
    auto_precision,
    autocast,
    deferred_interrupt,
    make_optimizers,
    mark_trainable,
    row_losses,
)
from cca_lab.stored import read_json
from cca_lab.tasks.mixture import Mixture

BETAS = (0.9, 0.95)  # of AdamW
WATCHED = 10  # steps over which a loss is averaged before it counts as rising
RISE = 1.0  # nats by which the text loss must exceed that of the first steps to count as diverging


class Finetuner:
    """Trains a model on a mixture; a run can stop after any step and resume bit for bit.

    Micro-steps and processes divide each step's batch by rows, so both change memory and time only.

    Args:
        model: a model whose attention is already swapped; trained in place.
        mixture: the training data.
        config: hyperparameters.
        folder: for `log.jsonl`, `state/` and `model/`; None writes nothing.
        tokenizer: saved beside the model.
        context_parallel: processes that share each text, a divisor of their number.
    """

    def __init__(self, model: PreTrainedModel, mixture: Mixture, config: FinetuneConfig,
                 folder: Path | None = None, tokenizer: PreTrainedTokenizerBase | None = None,
                 context_parallel: int = 1) -> None:
        check_model(model)
        self.config, self.mixture, self.tokenizer = config, mixture, tokenizer
        self.folder = Path(folder) if folder is not None else None
        if self.folder is not None:
            adapted = config.strategy == "lora" or adapter_of(model) is not None
            check_replaceable(self.folder / "model", adapter=adapted)
        self.accelerator = _accelerator()
        self.step = 0
        # readers have texts of their own
        context, self.reader, self.readers = context_groups(context_parallel)
        self.parts = config.accumulation * self.readers  # of a step's batch
        if mixture.rows < self.parts:
            raise ValueError(f"rows: got {mixture.rows}, wanted at least {self.parts}, one for "
                             f"each of {config.accumulation} micro-step(s) in {self.readers} "
                             "process(es) or groups of them")
        if config.strategy == "lora":
            add_lora(model, config.rank)
        self.trained = mark_trainable(model, config.strategy)
        # by all names that a state dict has: a tied head has its own
        self.frozen = {name: weight for name, weight in model.named_parameters(
            remove_duplicate=False) if not weight.requires_grad}
        model.to(self.accelerator.device)
        self.precision: str = config.precision
        if config.precision == "auto":
            self.precision = auto_precision(self.accelerator.device) if self.trained else "float32"
        if context is not None:
            swap_attention(model, attention_of(model), context_parallel=context)
        # may copy the weights, so Muon must view them afterwards
        self.model = self.accelerator.prepare(model)
        optimizers = make_optimizers(model, muon=config.optimizer == "muon",
                                     learning_rate=config.learning_rate,
                                     weight_decay=config.weight_decay, betas=BETAS)
        self.optimizers = [self.accelerator.prepare(optimizer) for optimizer in optimizers]
        self.accelerator.register_save_state_pre_hook(self._leave_out_frozen)
        self.accelerator.register_load_state_pre_hook(self._load_trained)
        self.text_losses: list[float] = []

    def _micro_step(self, input_ids: Tensor, known: Tensor, micro: int) -> Tensor:
        """Accumulate this micro-step's gradient; return its text and question loss, (2,)."""
        accelerator, device = self.accelerator, input_ids.device
        rows, text_rows = len(input_ids), self.mixture.text_rows
        mine = slice(micro * self.readers + self.reader, None, self.parts)
        ids, model = input_ids[mine], accelerator.unwrap_model(self.model)
        given: dict[str, Any] = {"input_ids": ids, "use_cache": False}
        if context_of(model) is not None:
            given = local_inputs(model, ids)
        # the mean over each kind is taken over the whole batch, across micro-steps and processes
        kind = (torch.arange(rows, device=device) >= text_rows).long()  # (rows,): 0 text
        marked = torch.zeros(2, device=device).index_add(0, kind, known[:, 1:].float().sum(dim=1))
        share = torch.tensor([text_rows, rows - text_rows], device=device) / rows
        last = micro == self.config.accumulation - 1
        with nullcontext() if last else accelerator.no_sync(self.model):
            with autocast(self.precision, device):
                logits = self.model(**given).logits
            positions = given["position_ids"][0] if "position_ids" in given else None
            losses = row_losses(logits, ids, known[mine], positions)
            losses = losses / marked.clamp(min=1)[kind[mine]]
            # processes average their gradients
            accelerator.backward((share[kind[mine]] * losses).sum() * accelerator.num_processes)
        return losses.new_zeros(2).index_add(0, kind[mine], losses.detach())

    def _step(self) -> dict[str, float | None]:
        config, rate, mixture = self.config, self.config.rate(self.step), self.mixture
        self.model.train()
        ids, known = (tensor.to(self.accelerator.device) for tensor in mixture.batch(self.step))
        model = self.accelerator.unwrap_model(self.model)
        # it is saved and evaluated at full size
        with group_size(model, lambda last: config.group(self.step, last)):
            summed = sum(self._micro_step(ids, known, micro)
                         for micro in range(config.accumulation))
        losses = self.accelerator.reduce(summed, reduction="sum").tolist()
        norm = float(self.accelerator.clip_grad_norm_(self.model.parameters(), config.clip))
        if not math.isfinite(sum(losses)) or not math.isfinite(norm):
            raise Diverged(f"step {self.step + 1}: loss {sum(losses):.3g}, gradient norm "
                           f"{norm:.3g} at a learning rate of {rate:.1e}; nothing was changed by "
                           "this step. Lower the learning rate")
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        asked = bool(known[mixture.text_rows:, 1:].any())  # a few short rows may hold no question
        return {"step": self.step, "text_loss": losses[0] if mixture.text_rows else None,
                "task_loss": losses[1] if asked else None, "rate": rate, "gradient_norm": norm}

    def run(self, on_step: Callable[[dict[str, Any]], None] | None = None) -> list[dict[str, Any]]:
        """Train to the last step; return one record per step taken in this call.

        Raises:
            KeyboardInterrupt: after Ctrl-C, once the step is finished and saved.
            Diverged: if the loss or its gradient is not finite; earlier checkpoints are kept.
        """
        records, start, first = [], time.perf_counter(), self.step
        tokens = self.mixture.rows * self.mixture.length
        steps = self.config.steps if self.trained else 0
        with deferred_interrupt() as pressed:
            while self.step < steps:
                record: dict[str, Any] = self._step()
                seconds = time.perf_counter() - start
                record |= {"tokens": tokens * self.step, "seconds": seconds,
                           "tokens_per_second": tokens * (self.step - first) / seconds}
                records.append(record)
                self.text_losses += [] if record["text_loss"] is None else [record["text_loss"]]
                record["rising"] = _rising(self.text_losses)
                self._log(record)
                if on_step is not None:
                    on_step(record)
                if self._anywhere(pressed()):
                    self.save()
                    raise KeyboardInterrupt
                every = self.config.save_every
                if every and self.step % every == 0 and self.step < steps:
                    self.save()
        self.save()
        return records

    def _anywhere(self, flag: bool) -> bool:
        """Return whether the flag is set in any process: all must stop at the same step."""
        if self.accelerator.num_processes == 1:
            return flag
        set_here = torch.tensor(float(flag), device=self.accelerator.device)
        return bool(self.accelerator.reduce(set_here) > 0)

    def _log(self, record: dict[str, Any]) -> None:
        if self.folder is not None and self.accelerator.is_main_process:
            append_log(self.folder, record)

    def save(self) -> None:
        """Write the model and the state, each to a temporary path that is then renamed."""
        if self.folder is None:
            return
        accelerator, main = self.accelerator, self.accelerator.is_main_process
        state = self.folder / "state"
        with replacing_folder(state) if main else nullcontext(temporary_of(state)) as temporary:
            accelerator.wait_for_everyone()
            if self.optimizers:
                accelerator.save_state(str(temporary))
            accelerator.wait_for_everyone()  # every process has written its own random state
            if main:
                progress = {"step": self.step, "precision": self.precision,
                            "run": self._run_identity(), "files": digests(temporary)}
                (temporary / PROGRESS).write_text(json.dumps(progress), encoding="utf-8")
        if main:
            save_pretrained(accelerator.unwrap_model(self.model), self.folder / "model",
                            self.tokenizer)
        accelerator.wait_for_everyone()

    @cached_property
    def frozen_fingerprint(self) -> str:
        """What tells the frozen weights from those of another base model."""
        return fingerprint(self.frozen)

    def _leave_out_frozen(self, models: list[nn.Module], weights: list[dict[str, Tensor]],
                          folder: str) -> None:
        """Remove from the weights that accelerate saves those that no step changes."""
        for name in list(weights[0]):
            if name.removeprefix(WRAPPED) in self.frozen:
                del weights[0][name]

    def _load_trained(self, models: list[nn.Module], folder: str) -> None:
        """Load the weights in the place of accelerate, which wants all of them."""
        load_trained(models.pop(), Path(folder), self.frozen.keys())

    def _run_identity(self) -> dict[str, Any]:
        """Return what a resumed run must share with the interrupted one, as JSON values."""
        attention = attention_of(self.accelerator.unwrap_model(self.model))
        identity = {**asdict(self.config), **self.mixture.identity(), "attention": attention.name,
                    **attention.options(), "processes": self.accelerator.num_processes}
        if self.frozen:
            identity["frozen weights"] = self.frozen_fingerprint
        if self.readers != self.accelerator.num_processes:
            identity["groups of processes"] = self.readers
        return json.loads(json.dumps(identity))

    def resume(self) -> int:
        """Load the state from the run's folder, and return its step.

        Raises:
            ValueError: if the state is missing, broken, or that of another run or model.
        """
        state = self.folder / "state" if self.folder is not None else None
        if state is not None and self.accelerator.is_main_process:
            put_back(state)
        self.accelerator.wait_for_everyone()
        if state is None or not (state / PROGRESS).is_file():
            raise ValueError(f"resume: no state in {self.folder}; start without --resume")
        progress = read_json(state / PROGRESS, "resume", ADVICE)
        saved, now = progress["run"], self._run_identity()
        if saved != now:
            differing = [key for key in sorted(saved.keys() | now.keys())
                         if saved.get(key) != now.get(key)]
            told = ", ".join(f"{key} ({saved.get(key)} then, {now.get(key)} now)"
                             for key in differing)
            raise ValueError(f"resume: {told} differ from the run in {self.folder}; give the same "
                             "options, or another folder")
        if not 0 <= progress["step"] <= self.config.steps:
            raise ValueError(f"resume: {state / PROGRESS}: step: got {progress['step']}, wanted 0 "
                             f"to {self.config.steps}")
        check_state(state, progress["files"])
        if self.optimizers:
            self.accelerator.load_state(str(state))
        self.step, self.precision = progress["step"], progress["precision"]
        if self.accelerator.is_main_process:
            trim_log(state.parent, self.step)
        self.accelerator.wait_for_everyone()
        self.text_losses = [record["text_loss"] for record in read_log(state.parent)
                            if record.get("text_loss") is not None]
        return self.step


def _accelerator() -> Accelerator:
    """Return an accelerator whose arithmetic the environment does not change.

    accelerate reads the precision and the number of steps whose gradients are added from variables
    that a launcher, or an earlier experiment, has left.
    """
    return Accelerator(cpu=not torch.cuda.is_available(), mixed_precision="no", dynamo_backend="no",
                       gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1))


def _rising(losses: list[float]) -> bool:
    """Return whether the text loss of the last steps exceeds that of the first by `RISE`."""
    rise = sum(losses[-WATCHED:]) - sum(losses[:WATCHED])
    return len(losses) >= 2 * WATCHED and rise > RISE * WATCHED
