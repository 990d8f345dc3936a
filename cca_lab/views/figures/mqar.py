"""Recall against memory: the accuracy of every mechanism by the size of its state."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from cca_lab.views.figures.style import EMPTY, FAINT, INK, OF_MECHANISM, styled

COLOURS = {name: OF_MECHANISM[name] for name in (
    "full", "cca", "dga", "lococo", "h2o", "streaming_llm", "lm_infinite", "mean_pooling", "random_tokens")}
_MARKERS = dict(zip(COLOURS, "*osD^vPX<", strict=True))


@styled
def frontier(points: Mapping[str, Mapping[int, Sequence[float]]], titles: Mapping[str, str], *, published: float,
             guess: float, title: str = "") -> Figure:
    """Draw queries answered against the bytes of the state: a line through the means, a small dot for each seed.

    Args:
        points: for each mechanism, state in bytes -> accuracy of each seed, 0 to 1. "full" is drawn as a point.
        titles: the name of each mechanism in the legend.
        published: accuracy of attention in Zoology, drawn as a dashed line.
        guess: accuracy of naming one of the values of a text at random, drawn as a dotted line.
        title: of the figure.

    Raises:
        ValueError: for a mechanism without a colour, or a size without a seed.
    """
    for name, by_size in points.items():
        if name not in COLOURS:
            raise ValueError(f"points: got {name!r}, wanted one of {', '.join(COLOURS)}; give it a colour")
        if not all(by_size.values()):
            raise ValueError(f"points: got no accuracy of {name!r} at a size, wanted one for each seed")
    figure, axes = plt.subplots(figsize=(8.2, 4.2))
    for name, by_size in points.items():
        sizes = sorted(by_size)
        means = [100 * sum(by_size[size]) / len(by_size[size]) for size in sizes]
        axes.plot([size / 1024 for size in sizes], means, linestyle="none" if name == "full" else "-",
                  marker=_MARKERS[name], markersize=13 if name == "full" else 6, color=COLOURS[name],
                  label=titles[name], zorder=3)
        for size in sizes:
            shown = [100 * share for share in by_size[size]]
            axes.plot([size / 1024] * len(shown), shown, ".", color=COLOURS[name], alpha=0.5, markersize=5, zorder=2)
    axes.axhline(100 * published, color=INK, linestyle="--", linewidth=1, label="attention in Zoology, at least")
    axes.axhline(100 * guess, color=FAINT, linestyle=":", linewidth=1, label="guessing among the text's values")
    every = sorted({size for by_size in points.values() for size in by_size})
    axes.set_xscale("log", base=2)
    axes.set_xticks([size / 1024 for size in every if _apart(size, every)],
                    [f"{size / 1024:g}" for size in every if _apart(size, every)])
    axes.minorticks_off()
    axes.set(xlabel="state at its largest, KiB for one text", ylabel="queries answered, %", ylim=(0, 104), title=title)
    axes.grid(color=EMPTY)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _apart(size: int, every: Sequence[int]) -> bool:
    """Return whether a size has a tick: the largest of those that are less than an eighth apart."""
    return not any(size < other < 1.125 * size for other in every)
