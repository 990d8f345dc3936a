"""`cca-lab experiments needles`: which answers a model finds, by their depth in the prompt and by its length."""

import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from cca_lab.models import attention_of, load_pretrained
from cca_lab.models.checkpoints import quiet
from cca_lab.models.evaluate import answer_examples, check_tokenizer
from cca_lab.models.inputs import check_length
from cca_lab.reporting import command_line, device, device_name, machine, print_table, write_figure, write_json
from cca_lab.settings import check_sizes
from cca_lab.studies.answers import answering
from cca_lab.studies.evaluate import context_of, note_full
from cca_lab.tasks.prompts import chosen_task
from cca_lab.views.figures.recall import found_by_depth

PACKAGES = ("cca-lab", "torch", "transformers", "tokenizers", "numpy")
MOST_CELLS, MOST_SAMPLES = 100, 2**16


def default_lengths(context: int) -> tuple[int, ...]:
    """Return a quarter, a half and all of a model's context, of at most 1024 tokens."""
    context = min(context, 1024)
    return context // 4, context // 2, context


def depths_of(count: int) -> list[float]:
    """Return depths spaced evenly from 0 to 1; a single one is the middle."""
    return [0.5] if count == 1 else [round(index / (count - 1), 4) for index in range(count)]


def needles(model_name: str, attention: str | None, options: dict, *, lengths: Sequence[int] = (),
            task: str = "niah_single", difficulty: Sequence[str] = (), depths: int = 5, samples: int = 4,
            seed: int = 0, out: Path | None = None, figure: Path | None = None) -> dict[str, Any]:
    """Measure a model at each depth and length, print the table, and write JSON and figure if requested.

    The same needles are asked for in every cell.

    Args:
        model_name: a folder or a hub name.
        attention, options: a mechanism to swap in; None for the one that the model was saved with.
        lengths: tokens of the prompts; by default `default_lengths`.
        task, difficulty: as in `chosen_task`; a task whose answers have a place.
        depths: number of depths, spaced evenly from the beginning of the prompt to its end.
        samples: prompts for each depth and length.
        seed: seed of the prompts.
        out, figure: the JSON file and the PNG to write, or None.

    Raises:
        ValueError: for a task without places, a number out of range, or a length that is too short for the task.
    """
    quiet()
    check_sizes(depths=(depths, 1, MOST_CELLS), samples=(samples, 1, MOST_SAMPLES), seed=(seed, 0, 2**31 - 1))
    asked = chosen_task(task, difficulty)
    if not asked.placed:
        raise ValueError(f"task: got {asked.name}, whose answers have no depth to choose, wanted one such as "
                         "niah_single")
    if out is not None and out == figure:
        raise ValueError(f"figure: got {figure}, which is the JSON file too; choose another name")
    model, tokenizer = load_pretrained(model_name, attention, **options)
    check_tokenizer(tokenizer)
    lengths = sorted(set(lengths or default_lengths(context_of(model))))
    check_sizes(lengths=(lengths, 1, 2**24), length=(len(lengths), 1, MOST_CELLS))
    check_length(model, "length", lengths[-1])
    mechanism = attention_of(model)
    note_full(mechanism, lengths[-1])
    model.to(device())
    cells = {(length, depth): asked.examples(tokenizer, samples, length=length, seed=seed, place=depth)
             for length in lengths for depth in depths_of(depths)}
    start = time.perf_counter()
    with answering(asked.name, samples * len(cells)) as on_answer:
        found = {cell: answer_examples(model, tokenizer, examples, on_answer) for cell, examples in cells.items()}
    result = {"experiment": "needles", "command": command_line(), "model": Path(model_name).name,
              "attention": mechanism.name, "options": mechanism.options(), "task": str(asked), "samples": samples,
              "seed": seed, "device": device_name(), "machine": machine(), "versions": versions(),
              "seconds": round(time.perf_counter() - start, 1), "lengths": lengths, "depths": depths_of(depths),
              "cells": [{"length": length, "depth": depth, "share": asdict(answers.share),
                         "exact": asdict(answers.exact)} for (length, depth), answers in found.items()]}
    result = json.loads(json.dumps(result))  # the figure is drawn from what is written
    if out is not None:
        write_json(out, result)
    if figure is not None:
        write_figure(figure, figure_of(result))
    print_cells(result)
    return result


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that the answers depend on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # run from a folder that is not installed
            found[package] = "unknown"
    return found


def shares_of(result: Mapping[str, Any]) -> np.ndarray:
    """Return the share of the answers found, (depths, lengths), from what `needles` wrote."""
    cells = {(cell["depth"], cell["length"]): cell["share"]["value"] for cell in result["cells"]}
    return np.array([[cells[depth, length] for length in result["lengths"]] for depth in result["depths"]])


def figure_of(result: Mapping[str, Any]) -> Figure:
    """Draw what `needles` wrote."""
    return found_by_depth(shares_of(result), depths=result["depths"], lengths=result["lengths"],
                          title=f"{result['model']}, {result['attention']}\n{result['task']}")


def print_cells(result: Mapping[str, Any]) -> None:
    """Print the share of the answers found as a table, a row per depth."""
    rows = [[f"{100 * depth:.0f} %", *(f"{100 * share:.0f} %" for share in shares)]
            for depth, shares in zip(result["depths"], shares_of(result), strict=True)]
    title = f"{result['model']}, {result['attention']}, {result['task']}: answers found"
    print_table(f"{title}, {result['samples']} prompts each",
                ["depth", *(f"{length} tokens" for length in result["lengths"])], rows)
