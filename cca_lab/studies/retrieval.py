"""`cca-lab study retrieval`: which KV heads to keep in full, by four scores, and which is best."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from cca_lab.mechanisms import Full, Mechanism
from cca_lab.mechanisms.caching.base import CacheSizes
from cca_lab.mechanisms.kept_heads.mechanism import OTHERS, KeptHeads, best_heads
from cca_lab.models import attention_of, swap_attention
from cca_lab.models.evaluate import bootstrap_mean, check_tokenizer
from cca_lab.models.inputs import check_length
from cca_lab.models.pretrain import tokenize
from cca_lab.models.retrieval import (
    Prompt,
    answer_loss,
    by_attention,
    by_gain,
    by_gates,
    by_loss,
    prompt_of,
)
from cca_lab.models.training import autocast, matrix_units
from cca_lab.reporting import command_line, device_name, machine, print_table, training_progress
from cca_lab.settings import check_sizes, option
from cca_lab.studies.study import SwappedStudy, versions
from cca_lab.tasks.mixture import random_windows
from cca_lab.tasks.prompts import AnyTask, chosen_tasks
from cca_lab.views.figures.sparsity import by_layer

SCORES = {"attention": "weight of the needle", "loss": "loss if it is not kept", "gates": "gate",
          "gain": "share of the gain"}
PROBED = 8  # prompts of the scores by attention and gain; that by loss has half of them
TEXT = "text"  # the name of the task that is no question
JUDGED = 1_000_000  # number of the first prompt that judges a choice, beyond those of the scores
PROMPTS = 2**21  # of one seed, so that two seeds share none


@dataclass(frozen=True, kw_only=True)
class Retrieval(SwappedStudy):
    """Score every KV head, and measure the answers' loss with the best ones kept."""

    attention: str = option("cca", "Mechanism of the heads that are not kept.")
    score: tuple[str, ...] = option((), "attention, loss (all heads but one in full, the dearest), "
                                        "gates or gain; repeatable.", shown="all four")
    task: tuple[str, ...] = option(("niah_single", "niah_multikey", "niah_multivalue"),
                                   "Task whose answers the heads should fetch, or text, whose "
                                   "second half they should predict; repeatable.")
    length: int | None = option(None, "Tokens of a prompt, with its answer.", least=1, most=2**24,
                                shown="640, or the model's context if that is less")
    steps: int = option(120, "Prompts, one a step, on which the gates are trained.", least=1,
                        most=2**16)
    judged: int = option(24, "Other prompts, on which the choices are compared.", least=1,
                         most=2**16)
    heads: None = None  # they are what is found
    keep: None = None
    count: tuple[int, ...] = option((), "How many KV heads to keep; repeatable.", least=0,
                                   shown="5 %, 11 % and 20 % of them")
    seed: int = option(0, "Random seed of the prompts.", least=0, most=1000)
    figure: Path | None = option(None, "PNG of the scores to write.", output="file")

    def prompts(self, count: int, first: int) -> list[Prompt]:
        """Return prompts of all tasks in turn, each filled up to the length."""
        first += self.seed * PROMPTS
        return [self._prompt(number) for number in range(first, first + count)]

    def _prompt(self, number: int) -> Prompt:
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
        return tokenize(self.corpus.train, self.loaded[1])

    @property
    def size(self) -> int:
        """The tokens of a prompt."""
        return min(640, self.context) if self.length is None else self.length

    def result(self) -> dict[str, Any]:
        """Score the heads, then keep the best by each score and measure the loss of answers."""
        chosen = self.score or tuple(name for name in SCORES
                                     if name != "attention" or TEXT not in self.task)
        if unknown := [name for name in chosen if name not in SCORES]:
            raise ValueError(f"score: got {unknown[0]!r}, wanted one of {', '.join(SCORES)}")
        if self.attention not in OTHERS:
            raise ValueError(f"attention: got {self.attention!r}, wanted one of "
                             f"{', '.join(OTHERS)}, which heads beside kept ones may have")
        if TEXT in self.task and "attention" in chosen:
            raise ValueError("score: got 'attention' for the task 'text', which has no needle; "
                             "wanted others of the scores")
        model, tokenizer = self.loaded
        check_tokenizer(tokenizer)
        check_length(model, "length", self.size)
        mechanism, sizes = attention_of(model), CacheSizes.of(model.config)
        every = sizes.layers * sizes.kv_heads
        counts = sorted(set(self.count or (round(every * share) for share in (0.05, 0.11, 0.2))))
        check_sizes(count=(counts[-1], 0, every))
        swap_attention(model, Full())
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
                "device": device_name(), "machine": machine(), "versions": versions(),
                "precision": faster, "seconds": seconds,
                "best": min(means, key=lambda name: means[name]),
                "scores": scores, "losses": losses}

    def _scores(self, name: str, mechanism: Mechanism, report: Callable[[float, str], None]
                ) -> Tensor:
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
        model, prompts = self.loaded[0], self.prompts(self.judged, JUDGED)
        choices: dict[str, dict[str, Mechanism]] = {
            name: {str(count): KeptHeads.around(mechanism, best_heads(values, count))
                   for count in counts} for name, values in scores.items()}
        choices |= {"none kept": {"0": mechanism}, "all kept": {"all": Full()}}
        measured: dict[str, dict[str, Any]] = {}
        for name, by_count in choices.items():
            for count, choice in by_count.items():
                report(len(measured) / len(choices), f"{name} {count}")
                swap_attention(model, choice)
                losses = torch.stack([answer_loss(model, prompt) for prompt in prompts])
                measured.setdefault(name, {})[count] = vars(bootstrap_mean(losses.double().numpy()))
        return measured

    def draw(self, result: Mapping[str, Any]) -> Figure:
        """Draw the scores of all heads."""
        return by_layer({SCORES[name]: values for name, values in result["scores"].items()})

    def show(self, result: Mapping[str, Any]) -> None:
        """Print the loss of the answers with the best heads kept."""
        rows = [[name, count, f"{each['value']:.3f}", f"{each['low']:.3f} to {each['high']:.3f}"]
                for name, by_count in result["losses"].items() for count, each in by_count.items()]
        print_table(f"{result['model']}, others {result['attention']}: loss of the answers, nats "
                    "a token", ["kept by", "heads", "loss", "95 % interval"], rows)
