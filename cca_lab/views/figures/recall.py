"""Recall: needles by depth, and queries answered by the size of the state."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from cca_lab.views.figures.heatmaps import heatmaps
from cca_lab.views.figures.style import (
    EMPTY,
    FAINT,
    INK,
    OF_MECHANISM,
    as_array,
    legend_beside,
    styled,
)

COLOURS = {name: OF_MECHANISM[name] for name in ("full", "cca", "dga", "lococo", "h2o",
                                                 "streaming_llm", "lm_infinite", "mean_pooling",
                                                 "random_tokens")}
_MARKERS = dict(zip(COLOURS, "*osD^vPX<", strict=True))


@styled
def found_by_depth(shares: Any, *, depths: Sequence[float], lengths: Sequence[int],
                   title: str = "") -> Figure:
    """Draw a heat map of the answers found.

    `shares` is (depths, lengths); depth 0 is the beginning of the prompt, 1 its end.
    """
    return heatmaps({title: 100 * as_array(shares).astype(float)}, largest=100, numbers=".0f",
                    rows=[f"{100 * depth:.0f} %" for depth in depths], columns=lengths,
                    row_name="depth of the needle", column_name="tokens of the prompt",
                    bar="answers found, %")


@styled
def frontier(points: Mapping[str, Mapping[int, Sequence[float]]], titles: Mapping[str, str], *,
             published: float, guess: float, title: str = "") -> Figure:
    """Draw queries answered against the bytes of the state: means as a line, seeds as dots.

    By mechanism and bytes the accuracy of each seed; `published` is attention's in Zoology, `guess`
    that of naming one of the values of a text at random.
    """
    figure, axes = plt.subplots(figsize=(8.2, 4.2))
    for name, by_size in points.items():
        sizes = sorted(by_size)
        means = [100 * sum(by_size[size]) / len(by_size[size]) for size in sizes]
        axes.plot([size / 1024 for size in sizes], means, linestyle="none" if name == "full"
                  else "-", marker=_MARKERS[name], markersize=13 if name == "full" else 6,
                  color=COLOURS[name], label=titles[name], zorder=3)
        for size in sizes:
            shown = [100 * share for share in by_size[size]]
            axes.plot([size / 1024] * len(shown), shown, ".", color=COLOURS[name], alpha=0.5,
                      markersize=5, zorder=2)
    axes.axhline(100 * published, color=INK, linestyle="--", linewidth=1,
                 label="attention in Zoology, at least")
    axes.axhline(100 * guess, color=FAINT, linestyle=":", linewidth=1,
                 label="guessing among the text's values")
    every = sorted({size for by_size in points.values() for size in by_size})
    axes.set_xscale("log", base=2)
    # of sizes less than an eighth apart, the largest has a tick
    ticks = [size / 1024 for size in every if not any(size < other < 1.125 * size
                                                      for other in every)]
    axes.set_xticks(ticks, [f"{size:g}" for size in ticks])
    axes.minorticks_off()
    axes.set(xlabel="state at its largest, KiB for one text", ylabel="queries answered, %",
             ylim=(0, 104), title=title)
    axes.grid(color=EMPTY)
    legend_beside(axes, at=1.0)
    return figure
