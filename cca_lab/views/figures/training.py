"""Figures of a finetuning run: its convergence, and the answers that it recovers."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import seaborn
from matplotlib.figure import Figure

from cca_lab.views.figures.style import FAINT, INK, SERIES, WEIGHTS, coloured, styled


@styled
def convergence(curves: Mapping[str, Sequence[float]], reference: float | None = None, *,
                smoothing: int = 5, ylabel: str = "loss") -> Figure:
    """Draw loss against step: a thin line for each step's loss, a thick one for the running mean (CCA, Figure 6).

    Args:
        curves: the loss of each step, one list per run.
        reference: a loss to compare with, such as the loss before the swap.
        smoothing: number of steps of the running mean.
        ylabel: what the vertical axis shows.
    """
    figure, axes = plt.subplots(figsize=(7.4, 3.4))
    for (name, losses), colour in coloured(curves.items()):
        steps = np.arange(1, len(losses) + 1)
        axes.plot(steps, losses, color=colour, alpha=0.3, linewidth=1)
        width = min(smoothing, len(losses))
        means = np.convolve(losses, np.ones(width) / width, mode="valid")
        axes.plot(steps[width - 1:], means, color=colour, linewidth=2, label=name)
    if reference is not None:
        axes.axhline(reference, color=INK, linestyle="--", linewidth=1, label="before the swap")
    axes.set(xlabel="step", ylabel=ylabel)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


@styled
def match_by_position(matches: Mapping[str, Mapping[float, float]]) -> Figure:
    """Draw exact match against the position of the answer, one line per model.

    Args:
        matches: for each model, position (0 first, 1 last) -> share answered, 0 to 1.
    """
    figure, axes = plt.subplots(figsize=(7.4, 3.4))
    for ((name, by_position), colour), marker in zip(coloured(matches.items()), "osD^v*", strict=False):
        positions = sorted(by_position)
        axes.plot(positions, [100 * by_position[position] for position in positions], color=colour,
                  marker=marker, label=name)
    axes.set(xlabel="position of the answering document (0 first, 1 last)", ylabel="exact match, %",
             ylim=(-4, 104), xticks=positions)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


@styled
def match_by_offset(shares: Mapping[str, Sequence[float]], group: int) -> Figure:
    """Draw exact match against the number of tokens before the documents, one line per model.

    Args:
        shares: for each model, the share answered (0 to 1) at each offset 0, 1, 2 ...
        group: tokens per group; dotted lines mark offsets at which documents begin on group boundaries.
    """
    figure, axes = plt.subplots(figsize=(7.4, 3.4))
    for ((name, by_offset), colour), marker in zip(coloured(shares.items()), "osD^v*", strict=False):
        axes.plot(range(len(by_offset)), 100 * np.asarray(by_offset), color=colour, marker=marker, label=name)
    offsets = max(len(by_offset) for by_offset in shares.values())
    for offset in range(0, offsets, group):
        axes.axvline(offset, color=FAINT, linestyle=":", linewidth=1, zorder=0)
    axes.set(xlabel=f"tokens of text before the documents (dotted: a multiple of the group, {group})",
             ylabel="exact match, %", ylim=(-4, 104), xticks=range(offsets))
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


@styled
def recipes(points: Mapping[str, tuple[float, float]], controls: Mapping[str, float], swapped: tuple[float, float],
            ) -> Figure:
    """Draw the result of each recipe: answers against perplexity, with the control's perplexity at the top.

    Args:
        points: for each recipe, (perplexity over the base's, share answered 0 to 1) of the trained swapped model.
        controls: for each recipe, the perplexity over the base's of the model trained with full attention.
        swapped: the two numbers of `points` for the swapped model before training.
    """
    figure, axes = plt.subplots(figsize=(9.0, 4.2))
    axes.scatter(*_percent(swapped), color=INK, marker="x", s=50, label="swapped, untrained", zorder=3)
    for index, (name, point) in enumerate(points.items()):
        look = {"color": SERIES[index % len(SERIES)], "marker": "osD^v"[index // len(SERIES) % 5]}
        axes.scatter(*_percent(point), s=44, label=name, zorder=3, **look)
        if name in controls:
            axes.scatter(controls[name], 104, s=26, facecolors="none", clip_on=False, **look)
    axes.axvline(1.0, color=INK, linewidth=1)
    axes.axvline(swapped[0], color=INK, linestyle="--", linewidth=1)
    axes.text(1.0, 50, " the base ", fontsize=8.5, ha="left", color=INK)
    axes.text(swapped[0], 5, " where the swap left it ", fontsize=8.5, ha="right", color=INK)
    axes.set(xlabel="perplexity over the base's (hollow marks at the top: full attention, the control)",
             ylabel="exact match, documents of 5-20 tokens, %", ylim=(-4, 107))
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _percent(point: tuple[float, float]) -> tuple[float, float]:
    return point[0], 100 * point[1]


@styled
def kept_tokens(kept: Mapping[str, np.ndarray], tokens: Sequence[str]) -> Figure:
    """Draw the pooling weight phi of each token of a document, by offset of the documents: a matrix per model.

    Args:
        kept: for each model, the mean phi, (offsets, tokens of a document).
        tokens: the tokens of a document, as text.
    """
    figure, axes = plt.subplots(1, len(kept), figsize=(1.2 + 3.1 * len(kept), 3.2), sharey=True, squeeze=False)
    for panel, (name, weights) in zip(axes[0], kept.items(), strict=True):
        seaborn.heatmap(np.asarray(weights), ax=panel, cmap=WEIGHTS, vmin=0, vmax=1, annot=True, fmt=".1f",
                        cbar=False, linewidths=1, annot_kws={"size": 7.5})
        panel.set_xticks(np.arange(len(tokens)) + 0.5, tokens, rotation=60, ha="right")
        panel.set(title=name, xlabel="token of the document")
        panel.tick_params(left=False, bottom=False)
    axes[0, 0].set_ylabel("tokens of text before")
    return figure
