"""The explorer as a picture, where no widget runs: text, columns and numbers of one query."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from cca_lab.views.explorer.state import Column, State
from cca_lab.views.figures.heatmaps import SHADE, lines_of, printed
from cca_lab.views.figures.style import (
    CORE,
    EMPTY,
    FAINT,
    GOOD,
    INK,
    MISSING,
    OF_MECHANISM,
    RAW,
    SKY,
    WEIGHTS,
    legend_below,
    styled,
)

# The colours of the view; js/drawing.js has the same, which a test compares.
COLOURS = {"raw": RAW, "sink": SKY, "focal": GOOD, "kept": OF_MECHANISM["h2o"], "core": CORE,
           "group": CORE, "slot": MISSING}
NAMES = {"raw": "raw tokens", "sink": "sinks", "focal": "focal tokens", "kept": "kept tokens",
         "core": "cores", "group": "groups", "slot": "slots"}
POOLED = ("slot", "group", "core")
_MOST = 92  # characters of a line of text
_WIDTH, _LINE, _DARK = 9.6, 0.25, 0.45  # inches; on darker shades the text is white


@styled
def figure(state: State) -> Figure:
    """Draw what one query of one head reads: words by weight, the seen columns, what is lost."""
    lines = lines_of(state.words, _MOST)
    tall = _LINE * len(lines)
    numbered = list(enumerate(state.columns))
    pooled = [(n, column) for n, column in numbered if column.kind in POOLED]
    lanes = [lane for lane in (pooled, [pair for pair in numbered if pair[1].kind not in POOLED])
             if lane]
    drawing, (words, *panels) = plt.subplots(1 + len(lanes), 1,
                                             figsize=(_WIDTH, tall + 1.5 + 0.9 * len(lanes)),
                                             height_ratios=[tall, *(0.8 for _ in lanes)])
    _words(words, state, lines)
    below = dict(zip(state.row.seen.tolist(), state.row.weights.tolist(), strict=True))
    most = max(below.values(), default=0.0) or 1.0  # one scale for all lanes
    for panel, lane in zip(panels, lanes, strict=True):
        _weights(panel, state, lane, below, most)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.tick_params(labelbottom=panel is panels[-1])
    panels[-1].set_xlabel(f"token\n{_numbers(state)}", color=INK)
    kinds = dict.fromkeys(column.kind for column in state.columns)
    legend_below(words, {**{NAMES[kind]: COLOURS[kind] for kind in kinds},
                         "not seen by the query": EMPTY}, columns=5)
    return drawing


def _words(axes: Axes, state: State, lines: list[list[int]]) -> None:
    """Draw the text: shaded by weight, underlined by kind of column, the query in a frame."""
    row, through = state.row, _kind_of_each(state)
    most = max(row.effective.max(), row.full.max(), 1e-9)
    shades = PowerNorm(SHADE, 0, most)(row.effective)
    axes.set(xlim=(-0.2, _MOST + 0.2), ylim=(len(lines), 0))
    axes.set_axis_off()
    head = state.place
    where = f" in {head.model}, layer {head.layer}, head {head.head}" if head else ""
    settings = state.attention["settings"]
    axes.set_title(f"{state.attention['title']}{', ' if settings else ''}{settings}{where}",
                   wrap=True)
    for number, line in enumerate(lines):
        at = 0
        for token in line:
            text, future = printed(state.words[token]), token > row.query
            axes.add_patch(Rectangle((at, number + 0.06), len(text), 0.78,
                                     facecolor=WEIGHTS(shades[token])))
            if through[token]:
                axes.add_patch(Rectangle((at, number + 0.84), len(text) - 0.1, 0.1,
                                         facecolor=COLOURS[through[token]]))
            if token == row.query:
                axes.add_patch(Rectangle((at, number + 0.06), len(text), 0.88, facecolor="none",
                                         edgecolor=INK, linewidth=1.8, zorder=3))
            colour = FAINT if future or not through[token] else INK
            colour = "white" if shades[token] > _DARK else colour
            axes.text(at + len(text) / 2, number + 0.46, text, ha="center", va="center",
                      family="monospace", fontsize=8.5, color=colour, alpha=0.6 if future else 1)
            at += len(text)


def _kind_of_each(state: State) -> list[str]:
    """Return the kind of column that gives each token most weight; "" if no seen one has it."""
    kinds, most = [""] * len(state.words), np.full(len(state.words), -1.0)
    for column, weight in zip(state.row.seen, state.row.weights, strict=True):
        held = state.columns[column]
        for token, share in zip(held.tokens, held.weights, strict=True):
            if weight * share > most[token]:
                kinds[token], most[token] = held.kind, weight * share
    return kinds


def _weights(axes: Axes, state: State, columns: list[tuple[int, Column]],
             seen: dict[int, float], most: float) -> None:
    """Draw a bar over each column's tokens, as high as its weight; unseen ones are grey strips.

    The axis ends at `most`.
    """
    axes.set_xlim(-0.5, len(state.words) - 0.5)
    axes.spines["left"].set_visible(False)
    axes.set_yticks([])
    axes.set_ylim(-0.12 * most, 1.1 * most)
    edge: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.4}
    for number, column in columns:
        left, width = column.tokens[0] - 0.5, column.tokens[-1] - column.tokens[0] + 1
        colour = COLOURS[column.kind] if number in seen else EMPTY
        axes.add_patch(Rectangle((left, -0.12 * most), width, 0.09 * most, facecolor=colour,
                                 **edge))
        if number in seen:
            axes.add_patch(Rectangle((left, 0), width, seen[number], facecolor=colour, **edge))
    axes.axvline(state.row.query, color=INK, linewidth=1)
    axes.set_ylabel(f"weight\nto {most:.2g}" if columns else "", color=FAINT, rotation=0,
                    ha="right", va="center")


def _numbers(state: State) -> str:
    """Return the sparsity, the losses and the costs in a line each, and the remark in a fourth."""
    numbers, totals, row = state.row.numbers, state.totals, state.row
    entries = "no" if totals.entries is None else totals.entries
    remark = f"\n{state.message}" if state.message else ""
    return (
        f"tokens that hold 90 % of the row: {numbers.k90} (in full attention {numbers.k90_full}); "
        f"entropy {numbers.entropy:.2f} ({numbers.entropy_full:.2f})\n"
        f"weight lost: {numbers.lost:.1%}, weight moved: {numbers.distance:.1%}; "
        f"the row has {len(row.seen)} columns for {row.query + 1} tokens\n"
        f"all rows: {totals.pairs} of {totals.pairs_full} pairs, "
        f"{entries} of {totals.entries_full} entries in the cache{remark}")
