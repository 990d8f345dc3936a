"""Printed numbers beside ours, and every method's quality against its memory."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from cca_lab.views.figures.style import EMPTY, FAINT, OF_MECHANISM, RAW, SKY, styled

COLOURS = {title: OF_MECHANISM[name] for title, name in {
    "full": "full", "CCA": "cca", "DGA": "dga", "LoCoCo": "lococo", "H2O": "h2o", "StreamingLLM": "streaming_llm",
    "LM-Infinite": "lm_infinite", "mean pooling": "mean_pooling", "random tokens": "random_tokens"}.items()}


@styled
def beside(printed: Mapping[str, float], unit: str, ours: Mapping[str, Sequence[float]], metric: str,
           title: str = "") -> Figure:
    """Draw the printed number of each setting on the left, ours on the right with one dot for each seed.

    Args:
        printed: by setting.
        unit: of the printed numbers.
        ours: one number for each seed, by setting.
        metric: of our numbers.
        title: of the figure.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 2.8))
    left.plot(range(len(printed)), list(printed.values()), "o-", color=FAINT)
    left.set_xticks(range(len(printed)), list(printed))
    left.set(ylabel=unit, title="printed")
    for at, numbers in enumerate(ours.values()):
        right.plot([at] * len(numbers), numbers, "o", color=SKY, markersize=4)
    right.plot(range(len(ours)), [sum(numbers) / len(numbers) for numbers in ours.values()], "-", color=RAW)
    right.set_xticks(range(len(ours)), list(ours))
    right.set(ylabel=metric, title="here, a dot for each seed")
    for axes in (left, right):
        axes.margins(x=0.12)
        axes.grid(axis="y", color=EMPTY)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5)
    return figure


@styled
def frontier(points: Mapping[str, Sequence[Mapping[str, Any]]], full: Mapping[str, float], xlabel: str) -> Figure:
    """Draw questions answered and perplexity against the size of the cache, a line for each method.

    Args:
        points: of each method, from the smallest cache to the largest: "kib" and, of the finetuned model, "answers"
            (share) and "ratio" (perplexity over the base's); "swapped": the same two before finetuning, or None.
        full: "kib", "answers" and "ratio" of full attention, finetuned.
        xlabel: of both panels.
    """
    figure, panels = plt.subplots(1, 2, figsize=(9.6, 4.0), sharex=True)
    for axes, key, scale in zip(panels, ("answers", "ratio"), (100, 1), strict=True):
        for method, line in points.items():
            colour = COLOURS[method]
            after = [(point["kib"], scale * point[key]) for point in line if point.get(key) is not None]
            before = [(point["kib"], scale * point["swapped"][key]) for point in line if point.get("swapped")]
            if after:
                axes.plot(*zip(*after, strict=True), "o-", color=colour, label=method, markersize=5)
            if before:
                axes.plot(*zip(*before, strict=True), "o:", color=colour, markerfacecolor="white", markersize=4,
                          linewidth=1)
        axes.plot(full["kib"], scale * full[key], "*", color=COLOURS["full"], markersize=12, label="full attention")
        axes.set_xscale("log", base=2)
        sizes = sorted({point["kib"] for line in points.values() for point in line} | {full["kib"]})
        axes.set_xticks(sizes, [f"{size:.0f}" for size in sizes])
        axes.set_xlabel(xlabel)
        axes.grid(color=EMPTY)
    panels[0].set(title="Questions answered, %", ylim=(0, 104))
    panels[1].set(title="Perplexity over the base's (log)", yscale="log")
    ticks = [tick for tick in (1, 1.1, 1.2, 1.5, 2, 3, 5) if tick < panels[1].get_ylim()[1]]
    panels[1].set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    panels[1].minorticks_off()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5)
    return figure
