"""`cca-lab study retrieval`: which KV heads to keep in full, by four scores, and which is best."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from cca_lab import models
from cca_lab.mechanisms import Full, Mechanism
from cca_lab.mechanisms.kept_heads.mechanism import OTHERS, KeptHeads, best_heads
from cca_lab.options import Count, Natural
from cca_lab.reporting import command_line, device_name, machine, training_progress
from cca_lab.studies.study import (
    ModelStudy,
    given,
    interval,
    label,
    load,
    markdown,
    result_file,
)
from cca_lab.tasks.corpus import load_corpus
from cca_lab.tasks.mixture import random_windows
from cca_lab.tasks.prompts import AnyTask, chosen_tasks

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from cca_lab.models.retrieval import Prompt

SCORES = "attention", "loss", "gates", "gain"
PROBED = 8  # prompts of the scores by attention and gain; that by loss has half of them
TEXT = "text"  # the name of the task that is no question
JUDGED = 1_000_000  # number of the first prompt that judges a choice, beyond those of the scores
PROMPTS = 2**21  # of one seed, so that two seeds share none


@dataclass(frozen=True, kw_only=True)
class Retrieval(ModelStudy):
    """Score every KV head, and measure the answers' loss with the best ones kept."""

    attention: str = "cca"
    """Mechanism of the heads that are not kept."""
    group: int | None = None
    """Tokens per group."""
    window: int | None = None
    """Local window, in tokens."""
    option: tuple[str, ...] = ()
    """Other options of the mechanism, NAME=VALUE."""
    score: tuple[Literal["attention", "loss", "gates", "gain"], ...] = ()
    """attention, loss (all heads but one in full, the dearest), gates or gain; by default all."""
    task: tuple[str, ...] = ("niah_single", "niah_multikey", "niah_multivalue")
    """Tasks whose answers the heads should fetch, or text (Python's standard library), whose second
    half they should predict."""
    length: Count | None = None
    """Tokens of a prompt, with its answer; by default 640, or the model's context."""
    steps: Count = 120
    """Prompts, one a step, on which the gates are trained."""
    judged: Count = 24
    """Other prompts, on which the choices are compared."""
    count: tuple[Natural, ...] = ()
    """How many KV heads to keep; by default 5 %, 11 % and 20 % of them."""
    seed: Natural = 0
    """Random seed of the prompts."""
    out: Path | None = None
    """JSON file to write."""

    @cached_property
    def loaded(self) -> "tuple[PreTrainedModel, Any]":
        """The model under the mechanism, and its tokenizer."""
        return load(self.model, self.attention, adapter=self.adapter, **self.options)

    @cached_property
    def options(self) -> dict[str, Any]:
        """The checked options of the mechanism."""
        return given(self.attention, self.option, group=self.group, window=self.window)

    def prompts(self, count: int, first: int) -> "list[Prompt]":
        """Return prompts of all tasks in turn, each filled up to the length."""
        first += self.seed * PROMPTS
        return [self._prompt(number) for number in range(first, first + count)]

    def _prompt(self, number: int) -> "Prompt":
        from cca_lab.models.retrieval import Prompt, prompt_of

        task = self.tasks[number % len(self.tasks)]
        if task is None:
            generator = torch.Generator().manual_seed(number)
            window = random_windows(self.stream, 1, self.size, generator)
            return Prompt(window, self.size // 2, [])
        tokenizer = self.loaded[1]
        (example,) = task.examples(tokenizer, 1, length=self.size, seed=number)
        return prompt_of(tokenizer, example)

    @cached_property
    def tasks(self) -> list[AnyTask | None]:
        """The tasks, None for text."""
        questions = iter(chosen_tasks([name for name in self.task if name != TEXT]))
        return [None if name == TEXT else next(questions) for name in self.task]

    @cached_property
    def stream(self) -> Tensor:
        """The training side of the text, (n,) token ids."""
        from cca_lab.models.pretrain import tokenize

        return tokenize(load_corpus().train, self.loaded[1])

    @property
    def size(self) -> int:
        """The tokens of a prompt."""
        return min(640, self.context) if self.length is None else self.length

    def run(self) -> dict[str, Any]:
        """Score the heads, then keep the best by each score and measure the loss of answers."""
        chosen: tuple[str, ...] = self.score or tuple(
            name for name in SCORES if name != "attention" or TEXT not in self.task)
        if self.attention not in OTHERS:
            raise ValueError(f"attention: got {self.attention!r}, wanted one of "
                             f"{', '.join(OTHERS)}, which heads beside kept ones may have")
        if TEXT in self.task and "attention" in chosen:
            raise ValueError("score: got 'attention' for the task 'text', which has no needle; "
                             "wanted others of the scores")
        with result_file(self.out) as result:
            result |= self._measured(chosen)
        print(table([result]))
        return result

    def _measured(self, chosen: tuple[str, ...]) -> dict[str, Any]:
        from cca_lab.mechanisms.caching.base import CacheSizes
        from cca_lab.models.evaluate import check_tokenizer
        from cca_lab.models.inputs import check_length
        from cca_lab.models.training import autocast, matrix_units

        model, tokenizer = self.loaded
        check_tokenizer(tokenizer)
        check_length(model, "length", self.size)
        mechanism, sizes = models.attention_of(model), CacheSizes.of(model.config)
        every = sizes.layers * sizes.kv_heads
        counts = sorted(set(self.count or (round(every * share) for share in (0.05, 0.11, 0.2))))
        if counts[-1] > every:
            raise ValueError(f"count: got {counts[-1]}, wanted at most {every}, all KV heads")
        models.swap_attention(model, Full())
        start = time.perf_counter()
        scores: dict[str, list[list[float]]] = {}
        seconds: dict[str, float] = {}
        faster = "bf16" if matrix_units(model.device) else "float32"
        with training_progress("heads", len(chosen) + 1) as report, \
                autocast(faster, model.device):
            for done, name in enumerate(chosen):
                def part(share: float, text: str, done: int = done) -> None:
                    report(done + share, text)

                # as the file has them, so that it ranks the heads that are judged
                scores[name] = [[round(score, 5) for score in layer]
                                for layer in self._scores(name, mechanism, part).tolist()]
                seconds[name] = round(time.perf_counter() - start - sum(seconds.values()), 1)
            losses = self._losses(mechanism, scores, counts,
                                  lambda share, text: report(len(chosen) + share, text))
        means = {name: sum(each["value"] for each in losses[name].values()) for name in scores}
        return {"experiment": "retrieval", "command": command_line(), "model": self.name,
                "attention": mechanism.name, "options": mechanism.options(),
                "tasks": list(self.task), "length": self.size, "seed": self.seed,
                "device": device_name(), "machine": machine(),
                "precision": faster, "seconds": seconds,
                "best": min(means, key=lambda name: means[name]),
                "scores": scores, "losses": losses}

    def _scores(self, name: str, mechanism: Mechanism, report: Callable[[float, str], None]
                ) -> Tensor:
        from cca_lab.models.retrieval import by_attention, by_gates, by_loss

        model = self.loaded[0]
        if name == "attention":
            return by_attention(model, self.prompts(PROBED, 0), report)
        if name == "loss":
            return by_loss(model, mechanism, self.prompts(PROBED // 2, 0), report)
        if name == "gain":
            return self._shares(mechanism, report)
        return by_gates(model, mechanism, self.prompts(self.steps, 0), report)

    def _shares(self, mechanism: Mechanism, report: Callable[[float, str], None]) -> Tensor:
        """Return each head's share of the gain, the mean over the kinds of prompts.

        Not of the gains themselves: answers gain more nats than text.
        """
        from cca_lab.models.retrieval import by_gain

        kinds, total = len(self.tasks), torch.zeros(())
        prompts = self.prompts(PROBED * kinds, 0)
        for kind, task in enumerate(self.task):
            def part(share: float, words: str, kind: int = kind) -> None:
                report((kind + share) / kinds, words)

            gains = by_gain(self.loaded[0], mechanism, prompts[kind::kinds], part)
            if gains.sum() <= 0:
                raise ValueError(f"length: prompts of {task} with {self.size} tokens gain nothing "
                                 f"by full attention over {mechanism}; give longer ones")
            total = total + gains / gains.sum() / kinds
        return total

    @torch.no_grad()
    def _losses(self, mechanism: Mechanism, scores: Mapping[str, list[list[float]]],
                counts: list[int],
                report: Callable[[float, str], None]) -> dict[str, dict[str, Any]]:
        """Return the loss of the answers by score and number of heads, with none and all kept."""
        from cca_lab.models.evaluate import bootstrap_mean
        from cca_lab.models.retrieval import answer_loss

        model, prompts = self.loaded[0], self.prompts(self.judged, JUDGED)
        choices: dict[str, dict[str, Mechanism]] = {
            name: {str(count): KeptHeads.around(mechanism, best_heads(values, count))
                   for count in counts} for name, values in scores.items()}
        choices |= {"none kept": {"0": mechanism}, "all kept": {"all": Full()}}
        measured: dict[str, dict[str, Any]] = {}
        for name, by_count in choices.items():
            for count, choice in by_count.items():
                report(len(measured) / len(choices), f"{name} {count}")
                models.swap_attention(model, choice)
                losses = torch.stack([answer_loss(model, prompt) for prompt in prompts])
                measured.setdefault(name, {})[count] = vars(bootstrap_mean(losses.double().numpy()))
        return measured


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of the answers' loss with a few heads kept, by how they score.

    All results are of the same heads beside the kept ones; the first has the notes.
    """
    first, rows = results[0], []
    for each in results:
        rows += [[name, *map(interval, each["losses"][name].values()),
                  f"{each['seconds'][name] / 60:.0f} min"] for name in each["scores"]]
    (none,), (every,) = (first["losses"][name].values() for name in ("none kept", "all kept"))
    return markdown(
        ["kept by", *(f"{count} heads" for count in first["losses"][first["best"]]),
         "to find them"], rows,
        f"{first['model']}, {first['attention']} in the other heads "
        f"({label('', first['options']).strip()}), loss of the answers in nats a token, and its "
        f"95 % interval; none kept: {interval(none)}, all: {interval(every)}. Prompts of "
        f"{first['length']} tokens; {first['machine']['cpu']}.")
