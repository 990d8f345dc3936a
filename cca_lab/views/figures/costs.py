"""What attention costs: the number of pairs against the group size, and the parts of the operations."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from cca_lab.views.figures.style import INK, coloured, name_line, powers_of_two, styled


@styled
def valleys(groups: Sequence[int], series: Mapping[str, Sequence[float]], *, ylabel: str,
            xlabel: str = "group size $g$", title: str = "") -> Figure:
    """Draw a cost against the group size, both axes logarithmic, and mark the minimum of every curve.

    Args:
        groups: group sizes, positive, increasing.
        series: positive costs by name, one for each group size.
        ylabel, xlabel, title: texts.

    Raises:
        ValueError: if a series does not have one value for each group size.
    """
    for name, values in series.items():
        if len(values) != len(groups):
            raise ValueError(f"series {name!r}: got {len(values)} values for {len(groups)} group sizes, "
                             "wanted one for each")
    figure, axes = plt.subplots(figsize=(6.4, 3.6))
    for (name, values), colour in coloured(series.items()):
        least = int(np.argmin(values))
        axes.plot(groups, values, color=colour, linewidth=2)
        axes.plot(groups[least], values[least], "o", color=colour, markersize=6)
        axes.annotate(f"g = {groups[least]}", (groups[least], values[least]), xytext=(0, -13), ha="center",
                      textcoords="offset points", color=colour, fontsize=8.5)
        name_line(axes, name, groups[-1], values[-1], colour)
    powers_of_two(axes, xlabel, ylabel, title)
    axes.margins(y=0.12)
    return figure


@styled
def stacked(rows: Mapping[str, Mapping[str, float]], *, xlabel: str, title: str = "") -> Figure:
    """Draw one horizontal bar for each row, made of its parts side by side, each part in its own colour.

    Args:
        rows: for each bar, its parts by name, not negative; all bars have the same parts.
        xlabel: what the parts are, with their unit.
        title: of the figure.

    Raises:
        ValueError: if two bars have different parts.
    """
    parts = list(next(iter(rows.values())))
    for name, row in rows.items():
        if list(row) != parts:
            raise ValueError(f"row {name!r}: got parts {list(row)}, wanted {parts}; every bar has the same parts")
    figure, axes = plt.subplots(figsize=(6.4, 1.1 + 0.45 * len(rows)))
    start = np.zeros(len(rows))
    for part, colour in coloured(parts):
        widths = np.array([row[part] for row in rows.values()])
        axes.barh(list(rows), widths, left=start, color=colour, height=0.6, label=part)
        start += widths
    for place, total in enumerate(start):
        axes.annotate(f"{total:.3g}", (total, place), xytext=(5, 0), textcoords="offset points", va="center",
                      fontsize=8.5, color=INK)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel(xlabel)
    axes.set_title(title)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    figure.legend(loc="outside lower center", ncols=len(parts))
    return figure
