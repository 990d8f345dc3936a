"""Needles in a haystack: which share is found, by the depth of the needle and the length of the prompt."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import seaborn
from matplotlib.figure import Figure

from cca_lab.views.figures.style import FAINT, WEIGHTS, as_array, styled

_CELL = 0.62, 0.42  # inches
_ROOM = 2.2, 1.3  # for the labels and the colour bar
_WRITTEN = 24  # in more columns or rows, the shares are not written into the cells


@styled
def found_by_depth(shares: Any, *, depths: Sequence[float], lengths: Sequence[int], title: str = "") -> Figure:
    """Draw a heat map of the answers found.

    Args:
        shares: (depths, lengths), the share of the answers found, 0 to 1.
        depths: where the needles stand, 0 (beginning of the prompt) to 1 (end), from the top.
        lengths: tokens of the prompts.
        title: of the figure.

    Raises:
        ValueError: if there is not one share for each depth and length, or one is not from 0 to 1.
    """
    shares = as_array(shares).astype(float)
    if shares.shape != (len(depths), len(lengths)) or not shares.size:
        raise ValueError(f"shares: got shape {shares.shape}, wanted ({len(depths)}, {len(lengths)}), one for each "
                         "depth and length")
    if not ((shares >= 0) & (shares <= 1)).all():
        raise ValueError(f"shares: got {shares.min():g} to {shares.max():g}, wanted 0 to 1")
    rows, columns = shares.shape
    size = [max(cell * count, 2.0) + room for cell, count, room in zip(_CELL, (columns, rows), _ROOM, strict=True)]
    figure, axes = plt.subplots(figsize=size)
    seaborn.heatmap(100 * shares, ax=axes, cmap=WEIGHTS, vmin=0, vmax=100, annot=max(rows, columns) <= _WRITTEN,
                    fmt=".0f", annot_kws={"size": 8}, linewidths=0.6, linecolor="#D0D0D0",
                    cbar_kws={"label": "answers found, %"})
    axes.set_xticks(np.arange(columns) + 0.5, [str(length) for length in lengths],
                    rotation=90 if columns > 8 else 0)
    axes.set_yticks(np.arange(rows) + 0.5, [f"{100 * depth:.0f} %" for depth in depths], rotation=0)
    axes.tick_params(length=0)
    axes.set_xlabel("tokens of the prompt", color=FAINT)
    axes.set_ylabel("depth of the needle", color=FAINT)
    axes.set_title(title)
    return figure
