"""Perplexity by the length of the context, a line for each mechanism."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from cca_lab.views.figures.style import EMPTY, FAINT, OF_MECHANISM, styled

_LINES = ("o-", "o-.")  # by turns, so that lines of one value are both seen
TALLEST = 40  # perplexity at which the axis ends


@styled
def perplexity(result: Mapping[str, Any]) -> Figure:
    """Draw the perplexity of the tokens in each bucket; a mechanism that leaves the axis is named in the caption.

    Args:
        result: what `cca-lab experiments lengths` writes.
    """
    figure, axes = plt.subplots(figsize=(8.6, 4.2))
    ends = result["buckets"][1:]
    outside = []
    for name, row in result["rows"].items():
        values = [estimate["value"] for estimate in row["perplexity"]]
        if min(values[1:]) > TALLEST:
            outside.append(name)
            continue
        colour = OF_MECHANISM.get(row["attention"], FAINT)
        axes.plot(ends, values, _LINES[len(axes.get_lines()) % 2] if row["swapped"] else "s--", color=colour,
                  markersize=4, label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks(ends, [str(end) for end in ends])
    axes.set_ylim(top=min(TALLEST, axes.get_ylim()[1]))
    axes.grid(color=EMPTY)
    figure.legend(loc="outside right center")
    above = f"; above {TALLEST}: {', '.join(outside)}" if outside else ""
    axes.set(xlabel=f"context, tokens (each dot: from half of it){above}", ylabel="perplexity",
             title=f"{result['model']}, {result['windows']} windows, {result['entries']} entries a KV head")
    return figure
