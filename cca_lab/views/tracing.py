"""A reader's kernel, traced: what each of its programs loads and stores, drawn and in words."""

from collections.abc import Callable, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cca_lab.views.figures.style import EMPTY, GOOD, RAW, WRONG, legend_below, styled

MOST_FLAWS = 5  # that are said in words


def trace(function: Callable[..., Any], *inputs: Any, show: Sequence[str] = (),
          cores: int = 0) -> Figure | None:
    """Run a function that launches a kernel, say what is wrong with its accesses, and draw them.

    Args:
        function: starts the programs, which are interpreted. One that is not written yet is not
            drawn.
        inputs: what it is called with.
        show: arguments of the kernel to draw, a panel each; all two-dimensional ones by default.
        cores: columns of `K` and `V` that are cores: a line marks their end.
    """
    from cca_lab.attention.kernels.tracing import traced

    with traced() as seen:
        try:
            function(*inputs)
        except NotImplementedError:
            print("Nothing to trace: the kernel has no body yet.")
            return None
    flaws = seen.flaws()
    for flaw in flaws[:MOST_FLAWS]:
        print(flaw)
    if len(flaws) > MOST_FLAWS:
        print(f"and {len(flaws) - MOST_FLAWS} more")
    if not flaws:
        print(f"{seen.programs} programs, {len(seen.accesses)} loads and stores: nothing outside, "
              "nothing loaded twice by a program, everything written once")
    names = show or [name for name, x in seen.tensors.items() if x.dim() == 2]
    kinds = {name: _kinds(seen.counts(name, "load"), seen.counts(name, "store"),
                          len(seen.tensors[name])) for name in names}
    return _drawn(kinds, cores)


def _kinds(loads: np.ndarray, stores: np.ndarray, rows: int) -> np.ndarray:
    """Return 0 untouched, 1 loaded, 2 stored, 3 loaded more than once, for each row of a tensor."""
    loaded, written = (x.reshape(len(x), rows, -1).max(2) for x in (loads, stores))
    return np.where(loaded > 1, 3, np.where(written > 0, 2, np.minimum(loaded, 1)))


@styled
def _drawn(kinds: dict[str, np.ndarray], cores: int) -> Figure:
    """Draw which rows of each tensor the programs of a kernel load and store."""
    height = max(len(kind) for kind in kinds.values())
    figure, panels = plt.subplots(len(kinds), 1, squeeze=False,
                                  figsize=(6.4, len(kinds) * (0.75 + 0.16 * height) + 0.4))
    for axes, (name, kind) in zip(panels[:, 0], kinds.items(), strict=True):
        axes.imshow(kind, aspect="auto", vmin=0, vmax=3, interpolation="nearest",
                    extent=(0, kind.shape[1], len(kind), 0),
                    cmap=ListedColormap([EMPTY, RAW, GOOD, WRONG]))
        axes.hlines(np.arange(1, len(kind)), 0, kind.shape[1], color="white", linewidth=1.5)
        axes.set(title=name, ylabel="program", xlabel=f"row of {name}")
        axes.set_yticks(np.arange(len(kind)) + 0.5, range(len(kind)))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if cores and name in ("K", "V"):
            axes.axvline(cores, color="white", linewidth=3)
            axes.set_xlabel(f"row of {name}: {cores} cores, then raw tokens")
    names = {1: ("loaded", RAW), 2: ("stored", GOOD), 3: ("loaded more than once", WRONG)}
    legend_below(panels[-1, 0], dict(names[number] for number in names if any(
        (kind == number).any() for kind in kinds.values())), columns=3)
    return figure
