"""How DGA divides a text into focal tokens and groups, and how each row then reads each token."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import seaborn
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from cca_lab.views.figures.style import (
    CORE,
    EMPTY,
    FAINT,
    GOOD,
    INK,
    RAW,
    as_array,
    legend_below,
    styled,
    tick_labels,
)

UNREAD, FOCAL, POOLED, OPEN = range(4)
_COLOURS = (EMPTY, RAW, CORE, GOOD)
_BOX = {"boxstyle": "round,pad=0.3", "edgecolor": "white", "linewidth": 1.5}


@styled
def division(tokens: Sequence[str], scores: Any, focal: Sequence[int], groups: Sequence[Sequence[int]], *,
             title: str = "") -> Figure:
    """Draw where each token goes: importance scores above, the text in the middle, DGA's columns below.

    Args:
        tokens: (L,) texts.
        scores: (L,) importance of each token.
        focal: indices of the tokens that stay as they are.
        groups: token indices of each group.
        title: of the figure.

    Raises:
        ValueError: unless each token is in exactly one place.
    """
    if sorted([*focal, *(t for members in groups for t in members)]) != list(range(len(tokens))):
        raise ValueError(f"focal and groups: got {list(focal)} and {[list(g) for g in groups]}, wanted each of the "
                         f"{len(tokens)} tokens in exactly one of them")
    figure, (bars, drawing) = plt.subplots(2, 1, sharex=True, figsize=(max(5.0, 0.95 * len(tokens)), 4.4),
                                           gridspec_kw={"height_ratios": [1.1, 1.5]})
    colours = [RAW if t in focal else CORE for t in range(len(tokens))]
    bars.bar(range(len(tokens)), as_array(scores), color=colours, width=0.6)
    bars.set_ylabel("importance")
    bars.set_title(title)
    bars.tick_params(length=0)
    columns = [[t] for t in focal] + [list(members) for members in groups]
    names = [" ".join(tokens[t] for t in members) for members in columns]
    widths = np.array([0.9 + 0.1 * len(name) for name in names])
    places = (np.cumsum(widths) - widths / 2) * (len(tokens) / widths.sum()) - 0.5
    for members, place, name in zip(columns, places, names, strict=True):
        colour = RAW if members[0] in focal else CORE
        for t in members:
            drawing.plot([t, place], [1, 0], color=colour, linewidth=2.0, alpha=0.6, zorder=1)
        drawing.text(place, 0, name, ha="center", va="center", fontsize=9, zorder=3,
                     color="white" if colour == RAW else INK, bbox={**_BOX, "facecolor": colour})
    for t, name in enumerate(tokens):
        drawing.text(t, 1, name, ha="center", va="center", fontsize=9, zorder=3,
                     bbox={**_BOX, "facecolor": "white", "edgecolor": colours[t]})
    drawing.set_ylim(-0.3, 1.3)
    drawing.axis("off")
    legend_below(drawing, {"focal: a column of its own": RAW, "grouped: one column for m tokens": CORE}, columns=2)
    return figure


def kinds_of(reads: Sequence[tuple[Sequence[int], Sequence[int], Sequence[int]]],
             groups: Sequence[Sequence[int]]) -> np.ndarray:
    """Return how each row reads each token: UNREAD, FOCAL, POOLED or OPEN.

    Args:
        reads: for each row its focal tokens, its groups by number and its raw tokens, as `dga.row_reads` returns.
        groups: token indices of each group.

    Returns:
        int (L, L).
    """
    kinds = np.full((len(reads), len(reads)), UNREAD)
    for i, (focal, closed, raw) in enumerate(reads):
        kinds[i, list(focal)] = FOCAL
        kinds[i, [t for z in closed for t in groups[z]]] = POOLED
        kinds[i, list(raw)] = OPEN
    return kinds


@styled
def reading(kinds: Any, *, tokens: Sequence[Any] | None = None, title: str = "") -> Figure:
    """Draw how each row reads each token.

    Args:
        kinds: int (L, L), from `kinds_of`.
        tokens: labels of rows and columns.
        title: of the figure.
    """
    kinds = as_array(kinds).astype(int)
    side = min(max(0.33 * len(kinds), 2.4), 4.6)
    figure, axes = plt.subplots(figsize=(side + 1.2, side + 1.3))
    lines = {"linewidths": 0.6, "linecolor": "#D0D0D0"} if len(kinds) <= 40 else {"rasterized": True}
    seaborn.heatmap(kinds, ax=axes, cmap=ListedColormap(_COLOURS), vmin=0, vmax=3, square=True, cbar=False, **lines)
    labels = tick_labels(tokens, len(kinds))
    axes.set_yticks(np.arange(len(labels)) + 0.5, labels, rotation=0)
    axes.set_xticks(np.arange(len(labels)) + 0.5, labels, rotation=90 if tokens is not None else 0)
    axes.tick_params(length=0, colors=INK)
    axes.set_ylabel("query", color=FAINT)
    axes.set_xlabel("token", color=FAINT)
    axes.set_title(title)
    names = {"focal": FOCAL, "inside a group": POOLED, "raw": OPEN, "not read": UNREAD}
    legend_below(axes, {name: _COLOURS[kind] for name, kind in names.items()}, columns=2)
    return figure
