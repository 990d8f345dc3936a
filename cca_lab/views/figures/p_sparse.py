"""Figures of P_sparse: an objective over x, bounds against random rows, and the curves of every head."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cca_lab.views.figures.style import EMPTY, FAINT, INK, WRONG, as_array, coloured, styled

DASHED = (0, (5, 3))
OFF = 0.15  # share of the range; points nearer to the diagonal are not named


@styled
def objectives(x: Any, curves: Mapping[str, Any], *, truth: float, wrong: str, title: str = "") -> Figure:
    """Draw the lower bounds that are claimed at each x, and the value that they must not exceed.

    Args:
        x: (n,) positive, increasing.
        curves: (n,) by name.
        truth: P_sparse.
        wrong: name of the curve that is drawn as wrong.
        title: of the figure.
    """
    figure, axes = plt.subplots(figsize=(7.0, 3.2))
    for (name, values), colour in coloured(curves.items()):
        axes.plot(as_array(x), as_array(values), color=WRONG if name == wrong else colour, linewidth=2, label=name)
    axes.axhline(truth, color=INK, linewidth=1.2, linestyle=DASHED, label="$P_{sparse}$")
    axes.set(xscale="log", xlabel="$x$", ylabel="claimed lower bound")
    axes.set_ylim(min(-0.05, axes.get_ylim()[0]), 1.05)
    axes.set_title(title)
    _finish(axes)
    return figure


@styled
def bounds(lengths: Sequence[int], drawn: Any, errors: Any, curves: Mapping[str, Any], *, bracket: Any = None,
           wrong: Sequence[str] = (), title: str = "") -> Figure:
    """Draw the share of random rows that are sparse, with its error, and bounds on it.

    Args:
        lengths: (n,) increasing.
        drawn: (n,) shares of sparse rows in a random sample.
        errors: (n,) half-widths of their intervals.
        curves: (n,) bounds by name.
        bracket: (n, 2) lower and upper ends, shaded; None to leave it out.
        wrong: names of curves that are drawn as wrong.
        title: of the figure.
    """
    figure, axes = plt.subplots(figsize=(7.2, 3.7))
    if bracket is not None:
        low, high = as_array(bracket).T
        axes.fill_between(lengths, low, high, color=EMPTY, label="bracket")
    for (name, values), colour in coloured(curves.items()):
        failed = name in wrong
        axes.plot(lengths, as_array(values), color=WRONG if failed else colour, linewidth=2, label=name,
                  linestyle=DASHED if failed else "-")
    axes.errorbar(lengths, as_array(drawn), yerr=as_array(errors), fmt="o", color=INK, markersize=4, linewidth=1.2,
                  capsize=2, label="drawn rows")
    axes.set(xlabel="tokens $L$", ylabel="$P_{sparse}(L, \\rho)$", ylim=(-0.03, 1.05))
    axes.set_title(title)
    _finish(axes)
    return figure


@styled
def head_curves(lengths: Any, shares: Mapping[float, Any], *, predicted: Any = None, predicted_at: Any = None,
                predicted_rate: float | None = None, title: str = "") -> Figure:
    """Draw P_sparse against the length for every head, one colour per rate rho (DGA, Figures 2b and 7).

    Args:
        lengths: (n,).
        shares: (layers, H, n) by rate.
        predicted: (layers, H, k), dashed; None to leave it out.
        predicted_at: (k,) lengths of the predictions.
        predicted_rate: the rate of the predictions, which have its colour.
        title: of the figure.

    Raises:
        ValueError: unless every curve has one value for each length.
    """
    lengths = as_array(lengths)
    arrays = {rate: as_array(values) for rate, values in shares.items()}
    for rate, array in arrays.items():
        if array.ndim != 3 or array.shape[-1] != len(lengths):
            raise ValueError(f"shares of rate {rate}: got shape {array.shape}, wanted (layers, heads, {len(lengths)})")
    colours = dict(coloured(arrays))
    layers, heads = next(iter(arrays.values())).shape[:2]
    figure, panels = plt.subplots(layers, heads, sharex=True, sharey=True, squeeze=False,
                                  figsize=(1.6 * heads + 0.5, 1.1 * layers + 0.9))
    for (layer, head), axes in np.ndenumerate(panels):
        for rate, array in arrays.items():
            axes.plot(lengths, array[layer, head], color=colours[rate], linewidth=1.8,
                      label=f"$\\rho$ = {rate:g}")
        if predicted is not None:
            axes.plot(as_array(predicted_at), as_array(predicted)[layer, head], color=colours[predicted_rate],
                      linewidth=1.4, linestyle=DASHED, label=f"iid Gaussian, $\\rho$ = {predicted_rate:g}")
        axes.set(ylim=(-0.05, 1.05), yticks=[0, 0.5, 1])
        axes.grid(color=EMPTY, linewidth=0.8)
        if layer == 0:
            axes.set_title(f"head {head}", loc="center", fontweight="normal", fontsize=9, pad=4)
        if head == 0:
            axes.set_ylabel(f"layer {layer}", fontsize=9)
        if layer == layers - 1:
            axes.set_xlabel("tokens $L$", fontsize=9)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    return figure


@styled
def agreement(predicted: Mapping[str, Any], measured: Any, names: Sequence[str], *, quantity: str,
              title: str = "") -> Figure:
    """Draw predictions against measurements, one point for each head; on the diagonal they agree.

    Args:
        predicted: (n,) by the name of the theory, one colour each.
        measured: (n,).
        names: (n,) names of the heads, written beside points of the last theory that are far from the diagonal.
        quantity: what the numbers are.
        title: of the figure.

    Raises:
        ValueError: unless there is one name for each point.
    """
    measured = as_array(measured).ravel()
    series = {theory: as_array(values).ravel() for theory, values in predicted.items()}
    for theory, values in series.items():
        if not len(values) == len(measured) == len(names):
            raise ValueError(f"names: got {len(names)} for {len(values)} points of {theory!r} and {len(measured)} "
                             "measured, wanted one for each")
    figure, axes = plt.subplots(figsize=(6.4, 3.8))
    everything = np.concatenate([measured, *series.values()])
    ends = [everything.min(), everything.max()]
    axes.plot(ends, ends, color=FAINT, linewidth=1.2, linestyle=DASHED, label="agreement")
    for (theory, values), colour in coloured(series.items()):
        axes.plot(values, measured, "o", color=colour, markersize=5, label=theory)
    for name, guess, seen in zip(names, values, measured, strict=True):
        if abs(guess - seen) > OFF * (ends[1] - ends[0]):
            axes.annotate(name, (guess, seen), xytext=(4, 3), textcoords="offset points", fontsize=7.5, color=FAINT)
    axes.set(xlabel=f"{quantity}, predicted", ylabel=f"{quantity}, measured")
    axes.set_title(title)
    _finish(axes)
    return figure


def _finish(axes: Axes) -> None:
    axes.grid(color=EMPTY, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
