"""How close attention comes to the roofline of a machine: time against pairs, speed against intensity."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cca_lab.views.figures.style import EMPTY, FAINT, INK, coloured, styled


class Point(NamedTuple):
    """One measurement.

    Attributes:
        pairs: query-key pairs visited, of all heads.
        flops: the floating-point operations that the pairs need.
        bytes: the least number of bytes that must be moved.
        seconds: the time taken.
    """

    pairs: float
    flops: float
    bytes: float
    seconds: float


@styled
def roofline(series: Mapping[str, Sequence[Point]], *, peak: float, bandwidth: float, title: str = "",
             peak_name: str = "matrix product") -> Figure:
    """Draw measurements under the roofline of the machine on which they were taken.

    Left: time against pairs visited; no attention can be below the line on which every pair runs at the peak
    of matrix products. Right: useful operations per second against operations per byte, under min(peak, bandwidth
    x intensity).

    Args:
        series: measurements by name, in any order; at most six names.
        peak: operations per second of a matrix product, measured in the same run.
        bandwidth: bytes per second of a copy, measured in the same run.
        title: of the left panel.
        peak_name: what the peak was measured with.

    Raises:
        ValueError: if there is no measurement, a number is not positive, or there are more names than colours.
    """
    points = [point for given in series.values() for point in given]
    if not points:
        raise ValueError("series: got no measurement, wanted one or more")
    for name, given in series.items():
        if any(value <= 0 for point in given for value in point):
            raise ValueError(f"series {name!r}: got a number that is not positive, wanted pairs, flops, bytes and "
                             "seconds over 0")
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.0))
    for (name, given), colour in coloured(series.items()):
        given = sorted(given)
        style = dict(color=colour, marker="o", markersize=4, linewidth=1.6, label=name)
        left.plot([p.pairs for p in given], [p.seconds for p in given], **style)
        right.plot([p.flops / p.bytes for p in given], [p.flops / p.seconds for p in given], **style)
    _least_time(left, points, peak)
    _roof(right, points, peak, bandwidth, peak_name)
    for axes in (left, right):
        axes.set(xscale="log", yscale="log")
        axes.grid(color=EMPTY, linewidth=0.8)
    left.set(xlabel="query-key pairs visited", ylabel="seconds", title=title or "Time")
    right.set(xlabel="useful operations a byte", ylabel="useful operations a second", title="Under the roof")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=min(3, len(series)))
    return figure


def _least_time(axes: Axes, points: Sequence[Point], peak: float) -> None:
    """Draw the time that the pairs take at the peak."""
    a_pair = min(point.flops / point.pairs for point in points)
    ends = np.array([min(point.pairs for point in points), max(point.pairs for point in points)])
    axes.plot(ends, ends * a_pair / peak, color=INK, linewidth=1.2, linestyle="--")
    axes.annotate("at the peak", (ends[0], ends[0] * a_pair / peak), xytext=(14, -2), textcoords="offset points",
                  fontsize=8.5, color=INK)


def _roof(axes: Axes, points: Sequence[Point], peak: float, bandwidth: float, peak_name: str) -> None:
    """Draw min(peak, bandwidth x intensity)."""
    intensities = [point.flops / point.bytes for point in points]
    ridge = peak / bandwidth
    ends = np.geomspace(min(ridge, *intensities) / 2, 2 * max(ridge, *intensities), 200)
    axes.plot(ends, np.minimum(peak, bandwidth * ends), color=FAINT, linewidth=1.4)
    axes.annotate(f"{peak_name}: {peak / 1e12:.3g} T/s" if peak >= 1e12 else f"{peak_name}: {peak / 1e9:.3g} G/s",
                  (ends[-1], peak), xytext=(0, 5), textcoords="offset points", ha="right", fontsize=8.5, color=INK)
