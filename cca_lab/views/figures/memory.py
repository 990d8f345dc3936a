"""Figures of a memory of fixed size: how long it retains a token, and how many columns it holds."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from cca_lab.views.figures.style import EMPTY, as_array, coloured, styled


@styled
def remembrance(curves: Mapping[str, Sequence[float]], *, half_life: Mapping[str, float] | None = None,
                xlabel: str = "compressions since", ylabel: str = "weight left", title: str = "") -> Figure:
    """Draw the retention of a token: its weight on a logarithmic scale, where a constant rate is a straight line.

    Args:
        curves: weight after 0, 1, 2 ... compressions, by name; zeros are left out.
        half_life: compressions after which half of the weight is left, by name of the curve; drawn as a vertical line.
        xlabel, ylabel, title: texts.

    Raises:
        ValueError: for a half-life without a curve of that name.
    """
    unknown = set(half_life or {}) - set(curves)
    if unknown:
        raise ValueError(f"half_life: got {sorted(unknown)}, wanted names of curves: {list(curves)}")
    figure, axes = plt.subplots(figsize=(6.4, 3.6))
    for (name, curve), colour in coloured(curves.items()):
        weights = as_array(curve).astype(float)
        steps = [step for step, weight in enumerate(weights) if weight > 0]
        axes.plot(steps, weights[steps], color=colour, linewidth=2, label=name)
        if half_life and name in half_life:
            axes.axvline(half_life[name], color=colour, linestyle=":", linewidth=1.2)
    axes.set_yscale("log")
    axes.set(xlabel=xlabel, ylabel=ylabel, title=title)
    axes.grid(color=EMPTY, linewidth=0.8)
    axes.legend()
    return figure


@styled
def columns_held(counts: Mapping[str, Sequence[int]], *, title: str = "") -> Figure:
    """Draw the number of columns of a cache after each token: a sawtooth if segments are compressed.

    Args:
        counts: columns after 1, 2, 3 ... tokens, by name.
        title: of the figure.
    """
    figure, axes = plt.subplots(figsize=(6.4, 3.2))
    for (name, held), colour in coloured(counts.items()):
        axes.step(range(1, len(held) + 1), held, where="post", color=colour, linewidth=1.6, label=name)
    axes.set(xlabel="tokens read", ylabel="columns held", title=title, ylim=(0, None))
    axes.legend()
    return figure
