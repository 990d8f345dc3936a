"""How sparse attention is: rows, heads, models, and the probability P_sparse."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import seaborn
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from cca_lab.views.figures.lines import curves
from cca_lab.views.figures.style import (
    DASHED,
    FAINT,
    INK,
    SERIES,
    SKY,
    WEIGHTS,
    WRONG,
    as_array,
    coloured,
    grid,
    heading,
    legend_beside,
    styled,
)

SHADE = 0.4  # exponent of the colour scale: a weight of 1 % is still visible beside one of 100 %
LEAST_WEIGHT = 1e-6  # where a logarithmic axis shows a weight of 0


@styled
def head_maps(maps: Any, *, title: str = "") -> Figure:
    """Draw the attention map of every head, a row of panels for each layer (CCA, Figure 5).

    `maps` is (layers, H, L, L); darkness is the weight to the power 0.4, so that small ones show.
    """
    maps = as_array(maps)
    layers, heads = maps.shape[:2]
    figure, panels = plt.subplots(layers, heads, squeeze=False,
                                  figsize=(1.75 * heads + 0.7, 1.75 * layers + 0.4))
    for (layer, head), axes in np.ndenumerate(panels):
        image = axes.imshow(maps[layer, head], cmap=WEIGHTS, norm=PowerNorm(SHADE, 0, 1),
                            interpolation="nearest")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(True)
        axes.spines[:].set_color("#D0D0D0")
        if layer == 0:
            axes.set_title(f"head {head}", loc="center", fontweight="normal", fontsize=9, pad=4)
        if head == 0:
            axes.set_ylabel(f"layer {layer}", fontsize=9)
    bar = figure.colorbar(image, ax=panels, shrink=0.5, aspect=28, pad=0.02,
                          ticks=[0, 0.01, 0.1, 0.5, 1])
    bar.ax.set_yticklabels(["0", "0.01", "0.1", "0.5", "1"])
    bar.set_label("weight")
    bar.outline.set_visible(False)
    figure.supxlabel("key", fontsize=9, color=FAINT)
    heading(figure, title)
    return figure


@styled
def sorted_weights(rows: Mapping[str, Any], *, mass: float = 0.9, title: str = "") -> Figure:
    """Draw the weights of rows in descending order, and their cumulative sum (DGA, Figure 2a).

    `rows` has (n, L) by name, a colour each; a row has a dot where its sum reaches `mass`.
    """
    arrays = {name: np.atleast_2d(as_array(weights)).astype(float)
              for name, weights in rows.items()}
    lengths = {array.shape[-1] for array in arrays.values()}
    length = lengths.pop()
    rank = np.arange(1, length + 1)
    figure, (weight_axes, mass_axes) = plt.subplots(1, 2, figsize=(7.8, 3.3))
    for (name, array), colour in coloured(arrays.items()):
        for number, row in enumerate(-np.sort(-array)):
            style = {"color": colour, "linewidth": 1.2,
                     "label": name if number == 0 else None}
            weight_axes.plot(rank, np.maximum(row, LEAST_WEIGHT), **style)
            held = row.cumsum()
            mass_axes.plot(rank, held, **style)
            reached = int((held < mass - 1e-6).sum())
            mass_axes.plot(rank[reached], held[reached], "o", color=colour, markersize=5,
                           markeredgecolor="white")
    even = {"color": FAINT, "linewidth": 1.2, "linestyle": DASHED}
    weight_axes.axhline(1 / length, **even)
    weight_axes.annotate("even", (length, 1 / length), xytext=(0, 4), textcoords="offset points",
                         ha="right", color=FAINT, fontsize=8.5)
    mass_axes.plot(rank, rank / length, **even)
    mass_axes.axhline(mass, color=INK, linewidth=0.8)
    weight_axes.set(xscale="log", yscale="log", ylabel="weight", xlabel="key, the heaviest first",
                    ylim=(LEAST_WEIGHT, 1.3), title=title)
    mass_axes.set(xscale="log", ylabel="held by the heaviest keys", xlabel="number of keys",
                  ylim=(0, 1.03))
    for axes in (weight_axes, mass_axes):
        axes.xaxis.set_major_formatter("{x:g}")
    mass_axes.set_title(f"dots: {mass:.0%} is held", fontweight="normal")
    grid(weight_axes, mass_axes)
    mass_axes.legend(loc="lower right")
    return figure


@styled
def by_head(values: Mapping[str, Any], *, numbers: Mapping[str, str] | None = None,
            shared: bool = False) -> Figure:
    """Draw values of every head, with a row for each layer and a column for each head.

    `values` are (layers, H) and `numbers` their formats, by title. One colour scale is `shared`, or
    each panel has its own, from 0 to its largest value.
    """
    arrays, largest = _values_of_heads(values, shared=shared)
    layers, heads = next(iter(arrays.values())).shape
    figure, panels = plt.subplots(1, len(arrays), squeeze=False,
                                  figsize=((0.62 * heads + 0.6) * len(arrays) + 0.2,
                                           0.5 * layers + 0.9))
    for number, (axes, (title, array)) in enumerate(zip(panels[0], arrays.items(), strict=True)):
        seaborn.heatmap(array, ax=axes, cmap=WEIGHTS, vmin=0, vmax=largest[title], cbar=False,
                        annot=True, fmt=(numbers or {}).get(title, ".2f"), annot_kws={"size": 9},
                        linewidths=1, linecolor="white")
        axes.set(title=title, xlabel="head", ylabel="layer" if number == 0 else "")
        axes.tick_params(length=0, rotation=0)
    return figure


@styled
def by_layer(values: Mapping[str, Any], *,
             marked: Mapping[str, Sequence[Sequence[int]]] | None = None) -> Figure:
    """Draw values of every head of a deep model: a panel each, a column for each layer.

    `values` are (layers, H) by title; each panel has its own scale, from 0 to its largest value,
    which stands in the title; darkness is the value to the power 0.4, so
    that small ones show. `marked` heads of each layer have a frame.
    """
    arrays, largest = _values_of_heads(values)
    layers, heads = next(iter(arrays.values())).shape
    figure, panels = plt.subplots(len(arrays), 1, squeeze=False,
                                  figsize=(0.28 * layers + 0.7,
                                           (0.28 * heads + 0.75) * len(arrays)))
    for number, (axes, (title, array)) in enumerate(zip(panels[:, 0], arrays.items(), strict=True)):
        seaborn.heatmap(array.T.clip(min=0), ax=axes, cmap=WEIGHTS, cbar=False, linewidths=1,
                        norm=PowerNorm(SHADE, 0, largest[title]), linecolor="white")
        for layer, chosen in enumerate((marked or {}).get(title, ())):
            for head in chosen:
                axes.add_patch(Rectangle((layer, head), 1, 1, fill=False, edgecolor=WRONG,
                                         linewidth=1.6, clip_on=False))
        axes.set(title=f"{title} (darkest: {largest[title]:.2f})", ylabel="head",
                 xlabel="layer" if number == len(arrays) - 1 else "")
        axes.set_xticks(np.arange(0, layers, 1 if layers <= 12 else 5) + 0.5,
                        range(0, layers, 1 if layers <= 12 else 5))
        axes.tick_params(length=0, rotation=0)
    return figure


def _values_of_heads(values: Mapping[str, Any], *, shared: bool = False
                     ) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Return arrays (layers, H), and the value of the darkest colour of each."""
    arrays = {title: as_array(array).astype(float) for title, array in values.items()}
    largest = {title: max(array.max(), 1e-9) for title, array in arrays.items()}
    if shared:
        largest = dict.fromkeys(arrays, max(largest.values()))
    return arrays, largest


@styled
def received(values: Any, tokens: Sequence[str], *, title: str = "") -> Figure:
    """Draw the accumulated attention of each token, a line of bars a layer (CCA, Appendix C).

    `values` is (layers, L) relative to equal weights, which give 1; NaN leaves a gap.
    """
    values = as_array(values).astype(float)
    layers, length = values.shape
    figure, panels = plt.subplots(layers, 1, sharex=True, sharey=True, squeeze=False,
                                  figsize=(max(4.0, 0.27 * length), 1.0 * layers + 0.9))
    for layer, axes in enumerate(panels[:, 0]):
        axes.bar(np.arange(length), np.nan_to_num(values[layer]), color=SERIES[0], width=0.72,
                 linewidth=0)
        axes.axhline(1, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.set_ylabel(f"layer {layer}", fontsize=9)
        axes.set_xlim(-0.6, length - 0.4)
        axes.tick_params(axis="x", length=0)
        grid(axes)
        axes.grid(visible=False, axis="x")
    panels[-1, 0].set_xticks(np.arange(length), tokens, rotation=90, family="monospace")
    panels[0, 0].set_title(title)
    return figure


@styled
def models(results: Sequence[Mapping[str, Any]], statistics: Mapping[str, str]) -> Figure:
    """Draw statistics of every head as dots: a panel for each statistic, a row for each model.

    `results` are what `cca-lab study heads` writes, `statistics` the labels by key.
    """
    figure, panels = plt.subplots(1, len(statistics), figsize=(9.4, 0.9 + 0.62 * len(results)),
                                  sharey=True, squeeze=False)
    generator = np.random.default_rng(0)
    for axes, (key, label) in zip(panels[0], statistics.items(), strict=True):
        for row, result in enumerate(results):
            values = np.array(result[key]).ravel()
            axes.plot(values, row + generator.uniform(-0.22, 0.22, len(values)), "o", color=SKY,
                      markersize=3, alpha=0.6)
            axes.plot(np.median(values), row, "|", color=INK, markersize=22, markeredgewidth=2)
        axes.set(xlabel=label, yticks=range(len(results)), ylim=(len(results) - 0.5, -0.5),
                 yticklabels=[result["model"] for result in results])
    return figure


@styled
def objectives(x: Any, claims: Mapping[str, Any], *, truth: float, wrong: str,
               title: str = "") -> Figure:
    """Draw the lower bounds that are claimed at each x, and the value that they must not exceed.

    The curve named `wrong` has the colour of errors.
    """
    colours = dict(coloured(claims)) | {wrong: WRONG}
    return curves(x, claims, xlabel="$x$", ylabel="claimed lower bound", title=title,
                  scales=("log", "linear"), reference={"$P_{sparse}$": truth}, limits=(None, 1.05),
                  colours={name: colours[name] for name in claims})


@styled
def bounds(lengths: Sequence[int], drawn: Any, errors: Any, curves: Mapping[str, Any], *,
           wrong: Sequence[str] = (), title: str = "") -> Figure:
    """Draw the share of random rows that are sparse, with its error, and bounds on it.

    `drawn`, `errors` (half-widths of intervals) and `curves` are (n,). Curves named in `wrong` have
    the colour of errors.
    """
    figure, axes = plt.subplots(figsize=(7.2, 3.7))
    for (name, values), colour in coloured(curves.items()):
        failed = name in wrong
        axes.plot(lengths, as_array(values), color=WRONG if failed else colour, linewidth=2,
                  label=name, linestyle=DASHED if failed else "-")
    axes.errorbar(lengths, as_array(drawn), yerr=as_array(errors), fmt="o", color=INK, markersize=4,
                  linewidth=1.2, capsize=2, label="drawn rows")
    axes.set(xlabel="tokens $L$", ylabel="$P_{sparse}(L, \\rho)$", ylim=(-0.03, 1.05),
             title=title)
    grid(axes)
    legend_beside(axes)
    return figure


@styled
def head_curves(lengths: Any, shares: Mapping[float, Any], *, predicted: Any = None,
                predicted_at: Any = None, predicted_rate: float | None = None,
                title: str = "") -> Figure:
    """Draw P_sparse against the length for every head, a colour a rate (DGA, Figures 2b and 7).

    `shares` is (layers, H, n) by rate. `predicted` is (layers, H, k) at k lengths, dashed, in the
    colour of its rate.
    """
    lengths = as_array(lengths)
    arrays = {rate: as_array(values) for rate, values in shares.items()}
    colours = dict(coloured(arrays))
    layers, heads = next(iter(arrays.values())).shape[:2]
    figure, panels = plt.subplots(layers, heads, sharex=True, sharey=True, squeeze=False,
                                  figsize=(1.6 * heads + 0.5, 1.1 * layers + 0.9))
    for (layer, head), axes in np.ndenumerate(panels):
        for rate, array in arrays.items():
            axes.plot(lengths, array[layer, head], color=colours[rate], linewidth=1.8,
                      label=f"$\\rho$ = {rate:g}")
        if predicted is not None and predicted_rate is not None:
            axes.plot(as_array(predicted_at), as_array(predicted)[layer, head],
                      color=colours[predicted_rate], linewidth=1.4, linestyle=DASHED,
                      label=f"iid Gaussian, $\\rho$ = {predicted_rate:g}")
        axes.set(ylim=(-0.05, 1.05), yticks=[0, 0.5, 1])
        grid(axes, below=False)
        if layer == 0:
            axes.set_title(f"head {head}", loc="center", fontweight="normal", fontsize=9, pad=4)
        if head == 0:
            axes.set_ylabel(f"layer {layer}", fontsize=9)
        if layer == layers - 1:
            axes.set_xlabel("tokens $L$", fontsize=9)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    heading(figure, title)
    return figure
