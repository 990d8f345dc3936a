"""What attention costs: pairs, operations, times, and the roofline of a machine."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from cca_lab.views.figures.lines import curves
from cca_lab.views.figures.style import (
    CORE,
    EMPTY,
    FAINT,
    GOOD,
    INK,
    RAW,
    SERIES,
    coloured,
    grid,
    styled,
)


@styled
def stacked(rows: Mapping[str, Mapping[str, float]], *, xlabel: str, title: str = "") -> Figure:
    """Draw one horizontal bar for each row, made of its parts side by side, each in its colour."""
    names = list(next(iter(rows.values())))
    figure, axes = plt.subplots(figsize=(6.4, 1.1 + 0.45 * len(rows)))
    start = np.zeros(len(rows))
    for name, colour in coloured(names):
        widths = np.array([row[name] for row in rows.values()])
        axes.barh(list(rows), widths, left=start, color=colour, height=0.6, label=name)
        start += widths
    for at, total in enumerate(start):
        axes.annotate(f"{total:.3g}", (total, at), xytext=(5, 0), textcoords="offset points",
                      va="center", fontsize=8.5, color=INK)
    axes.margins(x=0.1)
    _horizontal(axes, xlabel, title)
    figure.legend(loc="outside lower center", ncols=len(names))
    return figure


def _horizontal(axes: Axes, xlabel: str, title: str) -> None:
    """Set up axes of horizontal bars: the first on top, names without a line."""
    axes.invert_yaxis()
    axes.set(xlabel=xlabel, title=title)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


class Point(NamedTuple):
    """One measurement."""

    pairs: float
    flops: float
    bytes: float
    seconds: float


@styled
def roofline(series: Mapping[str, Sequence[Point]], *, peak: float, bandwidth: float,
             title: str = "", peak_name: str = "matrix product") -> Figure:
    """Draw measurements under the roofline of the machine on which they were taken.

    Left: time against pairs visited, and the time that they take at the peak of matrix products.
    Right: useful operations per second against operations per byte, under the machine's
    min(peak, bandwidth x intensity), in operations and bytes per second.
    """
    points = [point for given in series.values() for point in given]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.0))
    for (name, given), colour in coloured(series.items()):
        given = sorted(given)
        style = dict(color=colour, marker="o", markersize=4, linewidth=1.6, label=name)
        left.plot([p.pairs for p in given], [p.seconds for p in given], **style)
        right.plot([p.flops / p.bytes for p in given], [p.flops / p.seconds for p in given],
                   **style)
    a_pair = min(point.flops / point.pairs for point in points)
    ends = np.array([min(point.pairs for point in points), max(point.pairs for point in points)])
    left.plot(ends, ends * a_pair / peak, color=INK, linewidth=1.2, linestyle="--")
    left.annotate("at the peak", (ends[0], ends[0] * a_pair / peak), xytext=(14, -2),
                  textcoords="offset points", fontsize=8.5, color=INK)
    intensities, ridge = [point.flops / point.bytes for point in points], peak / bandwidth
    roof = np.geomspace(min(ridge, *intensities) / 2, 2 * max(ridge, *intensities), 200)
    right.plot(roof, np.minimum(peak, bandwidth * roof), color=FAINT, linewidth=1.4)
    speed = f"{peak / 1e12:.3g} T/s" if peak >= 1e12 else f"{peak / 1e9:.3g} G/s"
    right.annotate(f"{peak_name}: {speed}", (roof[-1], peak), xytext=(0, 5),
                   textcoords="offset points", ha="right", fontsize=8.5, color=INK)
    for axes in (left, right):
        axes.set(xscale="log", yscale="log")
        grid(axes, below=False)
    left.set(xlabel="query-key pairs visited", ylabel="seconds", title=title or "Time")
    right.set(xlabel="useful operations a byte", ylabel="useful operations a second",
              title="Under the roof")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center",
                  ncols=min(3, len(series)))
    return figure


@dataclass(frozen=True)
class Rung:
    """One form of a mechanism."""

    name: str
    what: str
    error: float | None
    seconds: dict[int, float | None]
    note: str = ""


@styled
def strip(forms: Sequence[Rung], *, climbed: Collection[str] = (), title: str = "") -> Figure:
    """Draw a box for each form of a mechanism: its times, and its difference from the loops.

    `climbed` names the forms that the reader wrote (`views.reader.climbed`): they are marked.
    """
    lengths = list(forms[0].seconds) if forms else []
    rows = len(lengths) - 1 + any(form.note or form.name in climbed for form in forms)
    figure, axes = plt.subplots(figsize=(min(10.0, 2.05 * len(forms) + 0.4),
                                         2.0 + 0.22 * len(lengths)))
    axes.set_axis_off()
    axes.set(xlim=(-0.02, len(forms)), ylim=(0, 1), title=title)
    for at, form in enumerate(forms):
        written = form.name in climbed
        edge = GOOD if written else CORE if at else RAW
        axes.add_patch(FancyBboxPatch((at + 0.04, 0.03), 0.84, 0.92, boxstyle="round,pad=0.02",
                                      linewidth=2.5 if written else 1, facecolor="white",
                                      edgecolor=edge))
        if at:
            axes.annotate("", (at + 0.02, 0.5), (at - 0.1, 0.5),
                          arrowprops={"arrowstyle": "->", "color": FAINT})
        axes.text(at + 0.46, 0.86, form.name, ha="center", va="center", fontweight="bold",
                  fontsize=11, color=INK)
        axes.text(at + 0.46, 0.74, form.what, ha="center", va="center", fontsize=8.5, color=INK)
        same = "" if form.error is None else f"from the loops: {form.error:.0e}"
        axes.text(at + 0.46, 0.64, same, ha="center", va="center", fontsize=7.5, color=FAINT)
        axes.plot([at + 0.1, at + 0.82], [0.57, 0.57], color=EMPTY, linewidth=1)
        for row, length in enumerate(lengths):
            height = 0.48 - 0.38 * row / max(1, rows)
            axes.text(at + 0.1, height, f"{length} tokens", va="center", fontsize=8.5, color=FAINT)
            axes.text(at + 0.82, height, duration(form.seconds[length]), ha="right", va="center",
                      fontsize=8.5)
        note = ", ".join(filter(None, ["\u2713 you wrote it" if written else "", form.note]))
        axes.text(at + 0.46, 0.09, note, ha="center", va="center", fontsize=8, color=edge)
    return figure


def duration(seconds: float | None) -> str:
    """Return a time in words of at most seven signs; a dash where nothing was measured."""
    if seconds is None:
        return "-"
    for unit, factor in (("µs", 1e-6), ("ms", 1e-3)):
        if seconds < 999.5 * factor:  # what rounds to 1000 is one of the next unit
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds:.3g} s"


@styled
def growth(lengths: Sequence[float], series: Mapping[str, Sequence[float]], *, ylabel: str,
           title: str = "") -> Figure:
    """Draw how a quantity grows with the length, in powers of two."""
    return curves(lengths, series, xlabel="tokens $L$", ylabel=ylabel, title=title, scales=(2, 2),
                  marker="o")


@styled
def valleys(groups: Sequence[int], series: Mapping[str, Sequence[float]], *, ylabel: str,
            title: str = "") -> Figure:
    """Draw a cost against the group size in powers of two, with the minimum of every curve."""
    return curves(groups, series, xlabel="group size $g$", ylabel=ylabel, title=title,
                  scales=(2, 2), least=True)


@styled
def bars(values: Mapping[str, float], *, xlabel: str, title: str = "") -> Figure:
    """Draw one horizontal bar for each value, in the order given."""
    figure, axes = plt.subplots(figsize=(6.4, 0.6 + 0.38 * len(values)))
    drawn = axes.barh(list(values), list(values.values()), color=SERIES[0], height=0.62)
    texts = [format(value, ".3g" if value < 1000 else ".0f") for value in values.values()]
    axes.bar_label(drawn, labels=texts, padding=4, fontsize=8.5, color=INK)
    axes.margins(x=0.12)
    _horizontal(axes, xlabel, title)
    return figure
