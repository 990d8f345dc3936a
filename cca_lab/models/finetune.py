"""Finetuning a model with the attention it has been given (CCA section 4: full or partial)."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor
from transformers import PreTrainedModel

from cca_lab.models.checkpoints import save_pretrained
from cca_lab.models.interrupt import deferred_interrupt
from cca_lab.models.plugin import attention_of
from cca_lab.models.trainable import mark_trainable, masked_losses
from cca_lab.tasks.mixture import Mixture

STRATEGIES = ("full", "qkv", "none", "compressor")


@dataclass(frozen=True)
class FinetuneConfig:
    """Hyperparameters of a finetuning run.

    Attributes:
        steps: optimizer steps.
        strategy: "full", "qkv" (W^Q, W^K, W^V only, the paper's partial
            finetuning), "none" (the swapped model as it is) or "compressor" (only
            what the mechanism added, as LoCoCo's Section 4.2 does).
        learning_rate: after warm-up; it falls linearly, to a tenth one step after the last.
        warmup: steps of linear warm-up.
        accumulation: micro-steps summed into one optimizer step.
        weight_decay: of AdamW, on matrices.
        clip: largest gradient norm.
        save_every: steps between checkpoints; 0 saves at the end only.
    """

    steps: int = 100
    strategy: str = "full"
    learning_rate: float = 1e-3
    warmup: int = 10
    accumulation: int = 1
    weight_decay: float = 0.01
    clip: float = 1.0
    save_every: int = 50

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy: got {self.strategy!r}, wanted one of {', '.join(STRATEGIES)}")
        for name in ("steps", "warmup", "save_every"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: got {getattr(self, name)}, wanted 0 or more")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate: got {self.learning_rate}, wanted more than 0")
        if self.accumulation < 1:
            raise ValueError(f"accumulation: got {self.accumulation}, wanted 1 or more")

    def rate(self, step: int) -> float:
        """Return the learning rate of a step (0-indexed)."""
        warm = min(1.0, (step + 1) / max(1, self.warmup))
        return self.learning_rate * warm * (1.0 - 0.9 * step / max(1, self.steps))


class Finetuner:
    """Trains a model on a mixture; a run can stop anywhere and resume bit for bit.

    Args:
        model: with its attention already swapped; trained in place.
        mixture: what to read.
        config: hyperparameters.
        folder: for `log.jsonl`, `state/` and `model/`; None writes nothing.
        tokenizer: saved beside the model.
    """

    def __init__(self, model: PreTrainedModel, mixture: Mixture, config: FinetuneConfig,
                 folder: Path | None = None, tokenizer=None) -> None:
        self.config, self.mixture, self.tokenizer = config, mixture, tokenizer
        self.folder = Path(folder) if folder is not None else None
        self.accelerator = Accelerator(cpu=not torch.cuda.is_available())
        self.step = 0
        self.trained = mark_trainable(model, config.strategy)
        matrices = [p for p in model.parameters() if p.requires_grad and p.ndim >= 2]
        vectors = [p for p in model.parameters() if p.requires_grad and p.ndim < 2]
        groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
        if self.trained:
            optimizer = torch.optim.AdamW([group for group in groups if group["params"]],
                                          lr=config.learning_rate, betas=(0.9, 0.95),
                                          weight_decay=config.weight_decay)
            self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        else:
            self.model, self.optimizer = model, None

    def _micro_step(self, micro: int) -> Tensor:
        """Add one micro-step's gradient; return its text loss and question loss, (2,)."""
        accelerator, config = self.accelerator, self.config
        input_ids, known = self.mixture.batch(self.step, micro, accelerator.process_index)
        input_ids, known = input_ids.to(accelerator.device), known.to(accelerator.device)
        last = micro == config.accumulation - 1
        with nullcontext() if last else accelerator.no_sync(self.model):
            logits = self.model(input_ids=input_ids, use_cache=False).logits
            text_rows = self.mixture.text_rows
            text, task = masked_losses(logits, input_ids, known, text_rows)
            share = text_rows / len(input_ids)
            accelerator.backward((share * text + (1 - share) * task) / config.accumulation)
        return torch.stack([text.detach(), task.detach()])

    def _step(self) -> dict[str, float]:
        config, rate = self.config, self.config.rate(self.step)
        self.model.train()
        losses = sum(self._micro_step(micro) for micro in range(config.accumulation)) / config.accumulation
        norm = self.accelerator.clip_grad_norm_(self.model.parameters(), config.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        losses = self.accelerator.reduce(losses, reduction="mean").tolist()
        mixture = self.mixture
        return {"step": self.step, "text_loss": losses[0] if mixture.text_rows else None,
                "task_loss": losses[1] if mixture.text_rows < mixture.rows else None,
                "rate": rate, "gradient_norm": float(norm)}

    def run(self, on_step: Callable[[dict], None] | None = None) -> list[dict]:
        """Train to the last step; return one record a step taken in this call.

        Raises:
            KeyboardInterrupt: after Ctrl-C, once the step is finished and saved.
        """
        records, start, first = [], time.perf_counter(), self.step
        tokens = self.mixture.rows * self.mixture.length * self.config.accumulation
        tokens *= self.accelerator.num_processes
        steps = self.config.steps if self.trained else 0
        with deferred_interrupt() as pressed:
            while self.step < steps:
                record = self._step()
                seconds = time.perf_counter() - start
                record |= {"tokens": tokens * self.step, "seconds": seconds,
                           "tokens_per_second": tokens * (self.step - first) / seconds}
                records.append(record)
                self._log(record)
                if on_step is not None:
                    on_step(record)
                if self._anywhere(pressed()):
                    self.save()
                    raise KeyboardInterrupt
                if self.config.save_every and self.step % self.config.save_every == 0 and self.step < steps:
                    self.save()
        self.save()
        return records

    def _anywhere(self, flag: bool) -> bool:
        """Whether the flag is set in any process: all of them must stop at the same step."""
        if self.accelerator.num_processes == 1:
            return flag
        return bool(self.accelerator.reduce(torch.tensor(float(flag), device=self.accelerator.device)) > 0)

    def _log(self, record: dict) -> None:
        if self.folder is not None and self.accelerator.is_main_process:
            self.folder.mkdir(parents=True, exist_ok=True)
            with open(self.folder / "log.jsonl", "a", encoding="utf-8") as log:
                log.write(json.dumps(record) + "\n")

    def save(self) -> None:
        """Write the model and the state to resume from, each aside first and then renamed."""
        if self.folder is None:
            return
        accelerator, aside = self.accelerator, self.folder / "state.part"
        if accelerator.is_main_process:
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir(parents=True)
        accelerator.wait_for_everyone()
        if self.optimizer is not None:
            accelerator.save_state(str(aside))
        accelerator.wait_for_everyone()  # every process has written its own random state
        if accelerator.is_main_process:
            progress = {"step": self.step, "run": self._run_identity()}
            (aside / "progress.json").write_text(json.dumps(progress), encoding="utf-8")
            _replace(aside, self.folder / "state")
            save_pretrained(accelerator.unwrap_model(self.model), self.folder / "model", self.tokenizer)
        accelerator.wait_for_everyone()

    def _run_identity(self) -> dict:
        """What must be the same for a resumed run to equal an uninterrupted one, as JSON values."""
        name, options = attention_of(self.accelerator.unwrap_model(self.model))
        identity = {**asdict(self.config), **self.mixture.identity(), "attention": name, **options,
                    "processes": self.accelerator.num_processes}
        return json.loads(json.dumps(identity))

    def resume(self) -> int:
        """Continue from the folder's state; return the step it stands at.

        Raises:
            ValueError: if there is no state, or it belongs to another configuration.
        """
        state = self.folder / "state" if self.folder is not None else None
        if state is not None and self.accelerator.is_main_process:
            _put_back(state)
        self.accelerator.wait_for_everyone()
        if state is None or not (state / "progress.json").is_file():
            raise ValueError(f"resume: no state in {self.folder}; start without --resume")
        progress = json.loads((state / "progress.json").read_text(encoding="utf-8"))
        saved, now = progress["run"], self._run_identity()
        if saved != now:
            differing = [key for key in sorted(saved.keys() | now.keys()) if saved.get(key) != now.get(key)]
            raise ValueError(f"resume: {', '.join(differing)} differ from the run in {self.folder}; "
                             "give the same options, or another folder")
        if self.optimizer is not None:
            self.accelerator.load_state(str(state))
        self.step = progress["step"]
        self._trim_log()
        return self.step

    def _trim_log(self) -> None:
        """Drop records after the step resumed from; they will be written again."""
        log = self.folder / "log.jsonl"
        if self.accelerator.is_main_process and log.is_file():
            kept = [line for line in log.read_text(encoding="utf-8").splitlines()
                    if json.loads(line)["step"] <= self.step]
            log.write_text("".join(line + "\n" for line in kept), encoding="utf-8")


def _replace(new: Path, place: Path) -> None:
    """Put a folder in another's place; at every moment one of them is there."""
    old = place.with_name(place.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if place.exists():
        place.rename(old)
    new.rename(place)
    shutil.rmtree(old, ignore_errors=True)


def _put_back(place: Path) -> None:
    """Undo the first half of a `_replace` that was cut off."""
    old = place.with_name(place.name + ".old")
    if old.exists() and not place.exists():
        old.rename(place)


def read_log(folder: Path) -> Iterator[dict]:
    """Yield the records of a run's `log.jsonl`."""
    with open(Path(folder) / "log.jsonl", encoding="utf-8") as log:
        for line in log:
            yield json.loads(line)
