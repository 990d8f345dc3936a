"""A mechanism's forms as a strip: from the loops to the kernel, with what each costs and how close it is."""

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from cca_lab.views.figures.style import CORE, EMPTY, FAINT, INK, RAW, styled


@dataclass(frozen=True)
class Rung:
    """One form of a mechanism.

    Attributes:
        name: "loops" or a backend.
        what: the idea, in a few words.
        error: largest difference from the loops at the first length; None for the loops.
        seconds: by length; None where it would take too long.
        note: what the times mean, if not what they seem; empty otherwise.
    """

    name: str
    what: str
    error: float | None
    seconds: dict[int, float | None]
    note: str = ""


@styled
def strip(forms: Sequence[Rung], *, title: str = "") -> Figure:
    """Draw a box for each form of a mechanism, with its time at each length and its difference from the loops.

    Args:
        forms: from the loops up, all with the same lengths.
        title: of the figure.

    Raises:
        ValueError: for no form, or forms with different lengths.
    """
    lengths = list(forms[0].seconds) if forms else []
    if not forms or any(list(form.seconds) != lengths for form in forms):
        raise ValueError(f"forms: got {len(forms)}, with different lengths or none, wanted one or more with the same")
    rows = len(lengths) - 1 + any(form.note for form in forms)
    figure, axes = plt.subplots(figsize=(min(10.0, 2.05 * len(forms) + 0.4), 2.0 + 0.22 * len(lengths)))
    axes.set_axis_off()
    axes.set(xlim=(-0.02, len(forms)), ylim=(0, 1), title=title)
    for at, form in enumerate(forms):
        axes.add_patch(FancyBboxPatch((at + 0.04, 0.03), 0.84, 0.92, boxstyle="round,pad=0.02", linewidth=1,
                                      facecolor="white", edgecolor=CORE if at else RAW))
        if at:
            axes.annotate("", (at + 0.02, 0.5), (at - 0.1, 0.5), arrowprops={"arrowstyle": "->", "color": FAINT})
        axes.text(at + 0.46, 0.86, form.name, ha="center", va="center", fontweight="bold", fontsize=11, color=INK)
        axes.text(at + 0.46, 0.74, form.what, ha="center", va="center", fontsize=8.5, color=INK)
        same = "" if form.error is None else f"from the loops: {form.error:.0e}"
        axes.text(at + 0.46, 0.64, same, ha="center", va="center", fontsize=7.5, color=FAINT)
        axes.plot([at + 0.1, at + 0.82], [0.57, 0.57], color=EMPTY, linewidth=1)
        for row, length in enumerate(lengths):
            height = 0.48 - 0.38 * row / max(1, rows)
            axes.text(at + 0.1, height, f"{length} tokens", va="center", fontsize=8.5, color=FAINT)
            axes.text(at + 0.82, height, duration(form.seconds[length]), ha="right", va="center", fontsize=8.5)
        axes.text(at + 0.46, 0.09, form.note, ha="center", va="center", fontsize=7.5, color=CORE)
    return figure


def duration(seconds: float | None) -> str:
    """Return a time in words of at most seven signs; a dash where nothing was measured."""
    if seconds is None:
        return "-"
    for unit, factor in (("µs", 1e-6), ("ms", 1e-3)):
        if seconds < 1000 * factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds:.3g} s"
