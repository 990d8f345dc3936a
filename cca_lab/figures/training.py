"""Figures of a finetuning run: its convergence, and what came back."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from cca_lab.figures.style import INK, coloured, styled


@styled
def convergence(curves: Mapping[str, Sequence[float]], reference: float | None = None, *,
                smoothing: int = 5, ylabel: str = "loss") -> Figure:
    """Draw loss against step, a thin line of what was seen and a thick running mean (CCA Figure 6).

    Args:
        curves: losses step by step, one list a run.
        reference: a level to compare with, such as the loss before the swap.
        smoothing: steps of the running mean.
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
    """Draw exact match against the position of the answer, one line a model.

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
