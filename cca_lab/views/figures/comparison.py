"""All mechanisms on one model with equal memory: where each still finds an answer, and its perplexity."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import seaborn
from matplotlib.figure import Figure

from cca_lab.views.figures.style import FAINT, RAW, WEIGHTS, styled

_ROW, _HEAD = 0.34, 1.3  # inches


@styled
def comparison(rows: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw exact match by the answer's place as a matrix, and perplexity with its interval beside it.

    Args:
        rows: by mechanism: "title", "exact_match" (by place, "0.0" to "1.0", and "all") and "perplexity"
            ("value", "low", "high"), as `cca-lab compare` writes them; the first one is the reference.
    """
    titles = [row["title"] for row in rows.values()]
    first = next(iter(rows.values()))
    places = [place for place in first["exact_match"] if place not in ("all", "by_offset")]
    matches = np.array([[100 * row["exact_match"][place]["value"] for place in places] for row in rows.values()])
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, _HEAD + _ROW * len(rows)), sharey=True,
                                         width_ratios=(1.1, 1.0))
    seaborn.heatmap(matches, ax=left, cmap=WEIGHTS, vmin=0, vmax=100, annot=True, fmt=".0f", cbar=False,
                    linewidths=1, annot_kws={"size": 8.5})
    left.set_xticks(np.arange(len(places)) + 0.5, [f"{100 * float(place):.0f} %" for place in places])
    left.set_yticks(np.arange(len(titles)) + 0.5, titles, rotation=0)
    left.set(xlabel="where the answer stands in the context", title="Answers found, %")
    at = np.arange(len(titles)) + 0.5
    value, low, high = (np.array([row["perplexity"][key] for row in rows.values()]) for key in ("value", "low", "high"))
    right.errorbar(value, at, xerr=[value - low, high - value], fmt="o", color=RAW, ecolor=FAINT, capsize=2)
    right.axvline(value[0], color=FAINT, linestyle="--", linewidth=1)
    right.set(xlabel="perplexity, 95 % interval (log scale)", title="How well it reads", xscale="log")
    ticks = [tick for tick in (5, 10, 15, 20, 30, 50, 100, 200, 500, 1000) if low.min() * 0.8 < tick < high.max() * 1.2]
    right.set_xticks(ticks, [str(tick) for tick in ticks])
    right.minorticks_off()
    right.tick_params(left=False, labelleft=False)
    return figure
