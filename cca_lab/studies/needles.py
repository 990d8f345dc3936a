"""`cca-lab study needles`: which answers a model finds, by their depth and the prompt's length."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from cca_lab.models.evaluate import answer_examples, check_tokenizer
from cca_lab.models.inputs import check_length
from cca_lab.models.training import autocast
from cca_lab.reporting import command_line, device_name, machine, print_table
from cca_lab.settings import check_sizes, option
from cca_lab.studies.evaluate import Evaluate, answering
from cca_lab.studies.study import SwappedStudy, note_full, option_of, versions
from cca_lab.tasks.prompts import chosen_task
from cca_lab.views.figures.recall import found_by_depth

MOST_CELLS, MOST_SAMPLES = 100, 2**16


def default_lengths(context: int) -> tuple[int, ...]:
    """Return a quarter, a half and all of a model's context, of at most 1024 tokens."""
    context = min(context, 1024)
    return context // 4, context // 2, context


def depths_of(count: int) -> list[float]:
    """Return depths spaced evenly from 0 to 1; a single one is the middle."""
    return [0.5] if count == 1 else [round(index / (count - 1), 4) for index in range(count)]


@dataclass(frozen=True, kw_only=True)
class Needles(SwappedStudy):
    """Measure what a model finds of the same needles, by depth and by the prompt's length."""

    text: None = None  # a task makes its own
    length: tuple[int, ...] = option((), "Tokens per prompt, with its answer; repeatable.", least=1,
                                     most=2**24, shown="a quarter, half and all of the context")
    task: str = option(
        "niah_single",
        "niah_single, niah_multikey, niah_multivalue, variable_tracking or key_values.")
    difficulty: tuple[str, ...] = option_of(Evaluate, "difficulty")
    depths: int = option(5, "Number of depths, from the beginning of the prompt to its end.",
                         least=1, most=MOST_CELLS)
    samples: int = option(4, "Prompts for each depth and length.", least=1, most=MOST_SAMPLES)
    seed: int = option(0, "Random seed of the prompts.", least=0, most=2**31 - 1)
    precision: str = option("float32", "float32, or bf16 (autocast), which some CPUs compute "
                                       "faster.", choices=("float32", "bf16"))
    figure: Path | None = option(None, "PNG of the heat map to write.", output="file")

    def result(self) -> dict[str, Any]:
        """Ask the same needles at each depth and length."""
        task = chosen_task(self.task, self.difficulty)
        if not task.placed:
            raise ValueError(
                f"task: got {task.name}, whose answers have no depth to choose, wanted one such as "
                "niah_single")
        model, tokenizer = self.loaded
        check_tokenizer(tokenizer)
        lengths = sorted(set(self.length or default_lengths(self.context)))
        depths = depths_of(self.depths)
        check_sizes(length=(len(lengths), 1, MOST_CELLS))
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
        return {"experiment": "needles", "command": command_line(), "model": self.name,
                "attention": self.mechanism.name, "options": self.mechanism.options(),
                "task": str(task), "samples": self.samples, "seed": self.seed,
                "precision": self.precision,
                "device": device_name(), "machine": machine(), "versions": versions(),
                "seconds": round(time.perf_counter() - start, 1), "lengths": lengths,
                "depths": depths,
                "cells": [{"length": length, "depth": depth, "share": asdict(answers.share),
                           "exact": asdict(answers.exact)}
                          for (length, depth), answers in scores.items()]}

    def draw(self, result: Mapping[str, Any]) -> Figure:
        """Draw the shares by depth and length."""
        return figure_of(result)

    def show(self, result: Mapping[str, Any]) -> None:
        """Print the share of the answers found, a row per depth."""
        rows = [[f"{100 * depth:.0f} %", *(f"{100 * share:.0f} %" for share in shares)]
                for depth, shares in zip(result["depths"], shares_of(result), strict=True)]
        title = f"{result['model']}, {result['attention']}, {result['task']}: answers found"
        print_table(f"{title}, {result['samples']} prompts each",
                    ["depth", *(f"{length} tokens" for length in result["lengths"])], rows)


def shares_of(result: Mapping[str, Any]) -> np.ndarray:
    """Return the share of the answers found, (depths, lengths), from what `needles` wrote."""
    cells = {(cell["depth"], cell["length"]): cell["share"]["value"] for cell in result["cells"]}
    return np.array([[cells[depth, length] for length in result["lengths"]]
                     for depth in result["depths"]])


def figure_of(result: Mapping[str, Any]) -> Figure:
    """Draw what `Needles` wrote."""
    return found_by_depth(shares_of(result), depths=result["depths"], lengths=result["lengths"],
                          title=f"{result['model']}, {result['attention']}\n{result['task']}")
