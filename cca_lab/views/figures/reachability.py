"""Which tokens reach which rows, after how many layers, and where small weights become 0."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from cca_lab.views.figures.style import CORE, EMPTY, FAINT, RAW, SKY, WRONG, as_array, coloured, legend_below, styled

FUTURE, NEVER, ONE_LAYER, TWO_LAYERS, MORE_LAYERS = range(5)
_COLOURS = ListedColormap([EMPTY, WRONG, RAW, SKY, CORE])
_MEANINGS = {"one layer": RAW, "two": SKY, "three or more": CORE, "never": WRONG, "future": EMPTY}
_IN_LINE, _SIDE = 5, 1.75  # panels in a line, and the side of each in inches


@styled
def layers_to_reach(needed: Mapping[str, Any]) -> Figure:
    """Draw after how many layers each token reaches each row, one small panel per mechanism.

    Args:
        needed: integers (L, L) by title: layers needed until token t reaches row i, 0 for never.
    """
    lines = -(-len(needed) // _IN_LINE)
    figure, axes = plt.subplots(lines, min(len(needed), _IN_LINE), squeeze=False,
                                figsize=(_SIDE * min(len(needed), _IN_LINE), (_SIDE + 0.2) * lines + 0.4))
    for unused in axes.flat[len(needed):]:
        unused.axis("off")
    for panel, (title, matrix) in zip(axes.flat, needed.items(), strict=False):
        panel.imshow(_codes(as_array(matrix).astype(int)), cmap=_COLOURS, vmin=0, vmax=4)
        panel.set_title(title, fontsize=9)
        panel.set_xticks([])
        panel.set_yticks([])
    axes[0, 0].set_ylabel("query", color=FAINT)
    axes[0, 0].set_xlabel("token", color=FAINT)
    legend_below(axes[0, 0], _MEANINGS, columns=5)
    return figure


def _codes(layers: np.ndarray) -> np.ndarray:
    """Turn layers needed (L, L) into colour codes; a later token counts as future unless it is reached."""
    codes = np.select([layers == 0, layers == 1, layers == 2], [NEVER, ONE_LAYER, TWO_LAYERS], MORE_LAYERS)
    return np.where(np.tri(len(codes), dtype=bool) | (layers > 0), codes, FUTURE)


@styled
def stored_weights(gaps: Sequence[float], weights: Mapping[str, Sequence[float]], *, title: str = "") -> Figure:
    """Draw the stored value of a weight exp(-gap), by dtype; a curve ends where the weight becomes 0.

    Args:
        gaps: (n,) nats below the largest score, increasing.
        weights: (n,) stored weights by name of the dtype, including those that are 0.
        title: of the figure.
    """
    figure, axes = plt.subplots(figsize=(6.4, 3.4))
    for n, ((name, stored), colour) in enumerate(coloured(weights.items())):
        kept = [(gap, weight) for gap, weight in zip(gaps, stored, strict=True) if weight > 0]
        axes.plot(*zip(*kept, strict=True), color=colour, linewidth=2 * (len(weights) - n))  # equal curves stay visible
        axes.plot(*kept[-1], color=colour, marker="o", markersize=8)
        axes.annotate(name, kept[-1], xytext=(7, 5), textcoords="offset points", color=colour, fontsize=9)
    axes.set_yscale("log", base=2)
    axes.set_xlabel("gap below the largest score (nats)")
    axes.set_ylabel("stored weight")
    axes.set_title(title)
    axes.margins(x=0.12)
    axes.grid(color=EMPTY, linewidth=0.8)
    return figure
