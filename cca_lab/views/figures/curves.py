"""Values against the length, and bars side by side."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from cca_lab.views.figures.style import INK, SERIES, coloured, name_line, powers_of_two, styled


@styled
def growth(lengths: Sequence[float], series: Mapping[str, Sequence[float]], *, ylabel: str,
           xlabel: str = "tokens $L$", title: str = "") -> Figure:
    """Draw how a quantity grows with the length, both axes in powers of two, each curve named at its end.

    Args:
        lengths: positive, increasing.
        series: positive values by name, one for each length.
        ylabel, xlabel, title: texts.

    Raises:
        ValueError: if a series does not have one value for each length.
    """
    for name, values in series.items():
        if len(values) != len(lengths):
            raise ValueError(f"series {name!r}: got {len(values)} values for {len(lengths)} lengths, "
                             "wanted one for each")
    figure, axes = plt.subplots(figsize=(6.4, 3.6))
    for (name, values), colour in coloured(series.items()):
        axes.plot(lengths, values, color=colour, linewidth=2, marker="o", markersize=3.5)
        name_line(axes, name, lengths[-1], values[-1], colour)
    powers_of_two(axes, xlabel, ylabel, title)
    return figure


@styled
def bars(values: Mapping[str, float], *, xlabel: str, title: str = "", numbers: str | None = None,
         logarithmic: bool = False) -> Figure:
    """Draw one horizontal bar for each value, in the order given.

    Args:
        values: by name, not negative.
        xlabel: what the values are, with their unit.
        title: of the figure.
        numbers: format of the number at the end of each bar; three significant digits by default.
        logarithmic: whether the axis is logarithmic; then every value must be positive.
    """
    figure, axes = plt.subplots(figsize=(6.4, 0.6 + 0.38 * len(values)))
    drawn = axes.barh(list(values), list(values.values()), color=SERIES[0], height=0.62)
    axes.bar_label(drawn, labels=[_written(value, numbers) for value in values.values()], padding=4,
                   fontsize=8.5, color=INK)
    axes.invert_yaxis()
    if logarithmic:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
    axes.margins(x=0.12)
    axes.set_xlabel(xlabel)
    axes.set_title(title)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return figure


def _written(value: float, form: str | None) -> str:
    """Format a number, by default with three significant digits and without an exponent."""
    if form is not None:
        return format(value, form)
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
