"""The weights of one row of attention, shown on the text itself."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from cca_lab.views.figures.style import CORE, EMPTY, FAINT, INK, RAW, WEIGHTS, WRONG, as_array, styled

SHADE = 0.5  # exponent of the colour scale, so that the many small weights can be seen
_WIDTH, _LINE = 0.083, 0.235  # width of a character and height of a line, in inches
_DARK = 0.45  # on darker shades the text is white


def lines_of(tokens: Sequence[str], most: int) -> list[list[int]]:
    """Break tokens into lines: after each token with a line end, and before a line becomes too long.

    Args:
        tokens: (L,) texts.
        most: most characters of a line.

    Returns:
        The indices of the tokens of each line.
    """
    lines: list[list[int]] = [[]]
    used = 0
    for index, token in enumerate(tokens):
        if lines[-1] and used + len(printed(token)) > most:
            lines.append([])
            used = 0
        lines[-1].append(index)
        used += len(printed(token))
        if "\n" in token:
            lines.append([])
            used = 0
    return [line for line in lines if line]


def printed(token: str) -> str:
    """Return a token in printable form: signs for a line end and a tab, and an escaped dollar."""
    return token.replace("\n", "\u21b5").replace("\t", "\u21e5").replace("$", r"\$")


@styled
def shaded_text(tokens: Sequence[str], weights: Any, *, marked: Collection[int] = (), most: int = 84,
                title: str = "") -> Figure:
    """Draw a text with each token shaded by its weight in one row (CCA, Figure 1).

    Args:
        tokens: (L,) texts.
        weights: (L,) weights of the row.
        marked: indices of the tokens to draw a frame around.
        most: most characters of a line.
        title: of the figure.

    Raises:
        ValueError: unless there is one weight for each token.
    """
    weights = as_array(weights).astype(float)
    if weights.shape != (len(tokens),):
        raise ValueError(f"weights: got shape {weights.shape} for {len(tokens)} tokens, wanted one for each; "
                         "choose one row of one head")
    lines = lines_of(tokens, most)
    longest = max(sum(len(printed(tokens[index])) for index in line) for line in lines)
    figure, axes = plt.subplots(figsize=(_WIDTH * longest + 0.2, _LINE * len(lines) + 0.45))
    axes.set(xlim=(-0.2, longest + 0.2), ylim=(len(lines), 0))
    axes.set_axis_off()
    axes.set_title(title)
    shade = PowerNorm(SHADE, 0, max(weights.max(), 1e-9))(weights)
    for number, line in enumerate(lines):
        at = 0
        for index in line:
            text = printed(tokens[index])
            axes.add_patch(Rectangle((at, number + 0.06), len(text), 0.88, facecolor=WEIGHTS(shade[index]),
                                     edgecolor="white", linewidth=0.8))
            if index in marked:
                axes.add_patch(Rectangle((at, number + 0.06), len(text), 0.88, facecolor="none",
                                         edgecolor=WRONG, linewidth=1.8, zorder=3))
            axes.text(at + len(text) / 2, number + 0.52, text, ha="center", va="center", family="monospace",
                      fontsize=9, color="white" if shade[index] > _DARK else INK)
            at += len(text)
    return figure


@styled
def rows_by_group(rows: Mapping[str, Any], *, group: int, cores: int, marked: int | None = None,
                  most: float | None = None) -> Figure:
    """Draw rows of attention over the same tokens as bars, one panel each, with the groups behind them.

    Args:
        rows: (L,) weights by title.
        group: tokens per group.
        cores: number of groups, from the left, that the row reads as one core token each.
        marked: index of a token whose bar is highlighted.
        most: upper end of the axis; slightly above the largest weight by default.
    """
    arrays = {title: as_array(row).astype(float) for title, row in rows.items()}
    length = len(next(iter(arrays.values())))
    most = 1.15 * max(row.max() for row in arrays.values()) if most is None else most
    figure, panels = plt.subplots(len(arrays), 1, sharex=True, sharey=True, squeeze=False,
                                  figsize=(8.4, 1.35 * len(arrays) + 0.7))
    for axes, (title, row) in zip(panels[:, 0], arrays.items(), strict=True):
        for p in range(cores):
            axes.axvspan(p * group - 0.5, (p + 1) * group - 0.5, color=CORE, linewidth=0,
                         alpha=0.10 if p % 2 else 0.22)
        width = max(1.0, length / 250)  # a bar that can be seen
        axes.bar(np.arange(length), row, width=width, color=RAW, linewidth=0)
        if marked is not None:
            axes.bar([marked], row[[marked]], width=1.6 * width, color=WRONG, linewidth=0)
            axes.annotate(f"{row[marked]:.2f}", (marked, row[marked]), xytext=(6, 0), color=WRONG,
                          textcoords="offset points", fontsize=9, va="bottom", fontweight="bold")
        axes.set_title(title)
        axes.set(xlim=(-0.5, length - 0.5), ylim=(0, most), ylabel="weight")
        axes.grid(axis="y", color=EMPTY, linewidth=0.8)
        axes.set_axisbelow(True)
    groups = f"   (shaded: {cores} groups of {group}, each read as one core)" if cores else ""
    panels[-1, 0].set_xlabel("token" + groups, color=FAINT)
    return figure
