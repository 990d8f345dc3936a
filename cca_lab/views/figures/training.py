"""Trained models: what recipes and mechanisms reach, by offset, recipe and memory."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import seaborn
from matplotlib.figure import Figure

from cca_lab.views.figures.heatmaps import heatmaps
from cca_lab.views.figures.lines import curves
from cca_lab.views.figures.style import (
    EMPTY,
    FAINT,
    INK,
    OF_MECHANISM,
    RAW,
    SERIES,
    WEIGHTS,
    legend_beside,
    mechanism_in,
    styled,
)

_MATCHES: Any = {"ylabel": "exact match, %", "limits": (-4, 104), "marker": "o"}
_ROW, _HEAD = 0.34, 1.3  # inches


@styled
def match_by_offset(shares: Mapping[str, Sequence[float]], group: int) -> Figure:
    """Draw exact match against the number of tokens before the documents, a line for each model.

    By model the share at each offset; dotted lines mark those where documents begin on group
    boundaries.
    """
    offsets = range(max(map(len, shares.values())))
    return curves(offsets, {name: 100 * np.asarray(by_offset)
                            for name, by_offset in shares.items()}, **_MATCHES,
                  xlabel="tokens of text before the documents (dotted: a multiple of the group, "
                  f"{group})", at=offsets[::group])


@styled
def kept_tokens(kept: Mapping[str, np.ndarray], tokens: Sequence[str]) -> Figure:
    """Draw the pooling weight phi of each token of a document, by offset: a matrix per model."""
    return heatmaps(kept, columns=tokens, row_name="tokens of text before",
                    column_name="token of the document", numbers=".1f", largest=1, bar=None)


@styled
def recipes(points: Mapping[str, tuple[float, float]], controls: Mapping[str, float],
            swapped: tuple[float, float]) -> Figure:
    """Draw the result of each recipe: answers against perplexity, controls at the top.

    A point is (perplexity over the base's, share answered), `swapped` that before training, and a
    control the perplexity over the base's of the model trained with full attention.
    """
    figure, axes = plt.subplots(figsize=(9.0, 4.2))
    axes.scatter(swapped[0], 100 * swapped[1], color=INK, marker="x", s=50, zorder=3,
                 label="swapped, untrained")
    for index, (name, (ratio, share)) in enumerate(points.items()):
        look: Any = {"color": SERIES[index % len(SERIES)],
                     "marker": "osD^v"[index // len(SERIES) % 5]}
        axes.scatter(ratio, 100 * share, s=44, label=name, zorder=3, **look)
        if name in controls:
            axes.scatter(controls[name], 104, s=26, facecolors="none", clip_on=False, **look)
    axes.axvline(1.0, color=INK, linewidth=1)
    axes.axvline(swapped[0], color=INK, linestyle="--", linewidth=1)
    axes.text(1.0, 50, " the base ", fontsize=8.5, ha="left", color=INK)
    axes.text(swapped[0], 5, " where the swap left it ", fontsize=8.5, ha="right", color=INK)
    axes.set(
        xlabel="perplexity over the base's (hollow marks at the top: full attention, the control)",
        ylabel="exact match, documents of 5-20 tokens, %", ylim=(-4, 107))
    legend_beside(axes, at=1.0)
    return figure


@styled
def answered(shares: Mapping[str, tuple[float, float, float]]) -> Figure:
    """Draw the share of questions answered by each model: a bar for the mean, a line for the range.

    By title the mean share, the lowest and the highest.
    """
    figure, axes = plt.subplots(figsize=(7.6, 0.9 + 0.36 * len(shares)))
    mean, low, high = 100 * np.array(list(shares.values())).T
    axes.barh(list(shares), mean, color=RAW, height=0.62, xerr=[mean - low, high - mean],
              error_kw={"ecolor": INK, "elinewidth": 1.2, "capsize": 2})
    for at, value in enumerate(mean):
        axes.text(1.5, at, f"{value:.0f} %", color="white", va="center", fontweight="bold")
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0, labelsize=10)
    axes.set(xlabel="questions answered exactly, %", xlim=(0, 103))
    return figure


@styled
def comparison(rows: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw exact match by the answer's place as a matrix, and perplexity with its interval.

    `rows` are those of `cca-lab study compare`, by mechanism; the first one is the reference.
    """
    titles = [row["title"] for row in rows.values()]
    first = next(iter(rows.values()))
    depths = [depth for depth in first["exact_match"] if depth not in ("all", "by_offset")]
    matches = np.array([[100 * row["exact_match"][depth]["value"] for depth in depths]
                        for row in rows.values()])
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, _HEAD + _ROW * len(rows)), sharey=True,
                                         width_ratios=(1.1, 1.0))
    seaborn.heatmap(matches, ax=left, cmap=WEIGHTS, vmin=0, vmax=100, annot=True, fmt=".0f",
                    cbar=False, linewidths=1, annot_kws={"size": 8.5})
    left.set_xticks(np.arange(len(depths)) + 0.5,
                    [f"{100 * float(depth):.0f} %" for depth in depths])
    left.set_yticks(np.arange(len(titles)) + 0.5, titles, rotation=0)
    left.set(xlabel="where the answer stands in the context", title="Answers found, %")
    at = np.arange(len(titles)) + 0.5
    value, low, high = (np.array([row["perplexity"][key] for row in rows.values()])
                        for key in ("value", "low", "high"))
    right.errorbar(value, at, xerr=[value - low, high - value], fmt="o", color=RAW, ecolor=FAINT,
                   capsize=2)
    right.axvline(value[0], color=FAINT, linestyle="--", linewidth=1)
    right.set(xlabel="perplexity, 95 % interval (log scale)", title="How well it reads",
              xscale="log")
    ticks = [tick for tick in (5, 10, 15, 20, 30, 50, 100, 200, 500, 1000) if low.min() * 0.8 < tick
             < high.max() * 1.2]
    right.set_xticks(ticks, [str(tick) for tick in ticks])
    right.minorticks_off()
    right.tick_params(left=False, labelleft=False)
    return figure


@styled
def frontier(points: Mapping[str, Sequence[Mapping[str, Any]]], full: Mapping[str, float],
             xlabel: str) -> Figure:
    """Draw questions answered and perplexity against the size of the cache, a line for each method.

    A point has "kib" and, of the finetuned model, "answers" (share) and "ratio" (perplexity over
    the base's), a point of `points` also "swapped": the same two before finetuning, or None.
    """
    figure, panels = plt.subplots(1, 2, figsize=(9.6, 4.0), sharex=True)
    for axes, key, scale in zip(panels, ("answers", "ratio"), (100, 1), strict=True):
        for method, line in points.items():
            colour = OF_MECHANISM[mechanism_in(method)]
            after = [(point["kib"], scale * point[key]) for point in line
                     if point.get(key) is not None]
            before = [(point["kib"], scale * point["swapped"][key]) for point in line
                      if point.get("swapped")]
            if after:
                axes.plot(*zip(*after, strict=True), "o-", color=colour, label=method, markersize=5)
            if before:
                axes.plot(*zip(*before, strict=True), "o:", color=colour, markerfacecolor="white",
                          markersize=4, linewidth=1)
        axes.plot(full["kib"], scale * full[key], "*", color=OF_MECHANISM["full"], markersize=12,
                  label="full attention")
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
