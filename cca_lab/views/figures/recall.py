"""Recall: needles by depth."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from cca_lab.views.figures.heatmaps import heatmaps
from cca_lab.views.figures.style import as_array, styled


@styled
def found_by_depth(shares: Any, *, depths: Sequence[float], lengths: Sequence[int],
                   title: str = "") -> Figure:
    """Draw a heat map of the answers found.

    `shares` is (depths, lengths); depth 0 is the beginning of the prompt, 1 its end.
    """
    return heatmaps({title: 100 * as_array(shares).astype(float)}, largest=100, numbers=".0f",
                    rows=[f"{100 * depth:.0f} %" for depth in depths], columns=lengths,
                    row_name="depth of the needle", column_name="tokens of the prompt",
                    bar="answers found, %")
