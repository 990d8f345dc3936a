"""`cca-lab study needles`: which answers a model finds, by their depth and the prompt's length."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cca_lab.options import Count, Natural
from cca_lab.reporting import command_line, device_name, machine
from cca_lab.studies.evaluate import answering
from cca_lab.studies.study import (
    SwappedStudy,
    markdown,
    note_full,
    percent,
    result_file,
)
from cca_lab.tasks.prompts import chosen_tasks


@dataclass(frozen=True, kw_only=True)
class Needles(SwappedStudy):
    """Measure what a model finds of the same needles, by depth and by the prompt's length."""

    length: tuple[Count, ...] = ()
    """Tokens per prompt, with its answer; by default a quarter, half and all of the context."""
    task: str = "niah_single"
    """niah_single, niah_multikey, niah_multivalue, variable_tracking or key_values."""
    difficulty: tuple[str, ...] = ()
    """Difficulty of the task, NAME=VALUE, such as chains=2."""
    depths: Count = 5
    """Number of depths, from the beginning of the prompt to its end."""
    samples: Count = 4
    """Prompts for each depth and length."""
    seed: Natural = 0
    """Random seed of the prompts."""
    precision: Literal["float32", "bf16"] = "float32"
    """float32, or bf16 (autocast), which some CPUs compute faster."""
    out: Path | None = None
    """JSON file to write."""

    def run(self) -> dict[str, Any]:
        """Ask the same needles at each depth and length; print the table."""
        (task,) = chosen_tasks((self.task,), self.difficulty)
        if not task.placed:
            raise ValueError(f"task: got {task.name}, whose answers have no depth to choose, "
                             "wanted one such as niah_single")
        from cca_lab.models.evaluate import answer_examples, check_tokenizer
        from cca_lab.models.inputs import check_length
        from cca_lab.models.training import autocast

        with result_file(self.out) as result:
            model, tokenizer = self.loaded
            check_tokenizer(tokenizer)
            context = min(self.context, 1024)
            lengths = sorted(set(self.length or (context // 4, context // 2, context)))
            depths = [0.5] if self.depths == 1 else np.linspace(0, 1, self.depths).round(4).tolist()
            check_length(model, "length", lengths[-1])
            note_full(self.mechanism, lengths[-1])
            cells = {(length, depth): task.examples(tokenizer, self.samples, length=length,
                                                    seed=self.seed, place=depth)
                     for length in lengths for depth in depths}
            start = time.perf_counter()
            model.requires_grad_()  # autocast rounds such a weight once, and others at every use
            with answering(task.name, self.samples * len(cells)) as on_answer, \
                    autocast(self.precision, model.device):
                scores = {cell: answer_examples(model, tokenizer, examples, on_answer)
                          for cell, examples in cells.items()}
            result |= {
                "experiment": "needles", "command": command_line(), "model": self.name,
                "attention": self.mechanism.name, "options": self.mechanism.options(),
                "task": str(task), "samples": self.samples, "seed": self.seed,
                "precision": self.precision, "device": device_name(), "machine": machine(),
                "seconds": round(time.perf_counter() - start, 1),
                "lengths": lengths, "depths": depths,
                "cells": [{"length": length, "depth": depth, "share": asdict(answers.share),
                           "exact": asdict(answers.exact)}
                          for (length, depth), answers in scores.items()]}
        print(table(result))
        return result


def shares_of(result: Mapping[str, Any]) -> np.ndarray:
    """Return the share of the answers found, (depths, lengths), from what `needles` wrote."""
    cells = {(cell["depth"], cell["length"]): cell["share"]["value"] for cell in result["cells"]}
    return np.array([[cells[depth, length] for length in result["lengths"]]
                     for depth in result["depths"]])


def table(result: Mapping[str, Any]) -> str:
    """Return the table of the share of the answers found, a row per depth."""
    return markdown(
        ["depth", *(f"{length} tokens" for length in result["lengths"])],
        [[percent(depth), *map(percent, shares)]
         for depth, shares in zip(result["depths"], shares_of(result), strict=True)],
        "Answers found by {model}, {attention}, {task}; {samples} prompts each.".format_map(result))
