"""The online softmax as a row of panels, one for each key."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from cca_lab.views.figures.style import CORE, EMPTY, FAINT, RAW, styled, tick_labels


@styled
def online_softmax_steps(shares: Sequence[Sequence[float]], maxima: Sequence[float], sums: Sequence[float], *,
                         labels: Sequence[str] | None = None) -> Figure:
    """Draw the state of a one-pass softmax after each key.

    Args:
        shares: after n keys, the n numbers exp(score_t - running maximum) whose sum is the running sum.
        maxima: the running maximum after each key.
        sums: the running sum after each key.
        labels: of the keys.

    Raises:
        ValueError: unless step n has n shares, one maximum and one sum.
    """
    steps = len(shares)
    if [len(step) for step in shares] != list(range(1, steps + 1)) or not len(maxima) == len(sums) == steps:
        raise ValueError(f"shares: got {[len(step) for step in shares]} numbers, {len(maxima)} maxima and "
                         f"{len(sums)} sums; wanted 1, 2, 3 ... shares and one maximum and sum for each step")
    figure, panels = plt.subplots(1, steps, figsize=(1.55 * steps, 2.5), sharey=True)
    for step, axes in enumerate(np.atleast_1d(panels)):
        moved = step > 0 and maxima[step] != maxima[step - 1]
        axes.bar(np.arange(steps), np.ones(steps), color=EMPTY, width=0.8)
        axes.bar(np.arange(step + 1), shares[step], color=[CORE if moved else RAW] * step + [RAW], width=0.8)
        axes.set_title(f"key {step + 1}: max {maxima[step]:g}\nsum {sums[step]:.4g}", fontsize=9,
                       fontweight="normal")
        axes.set_xticks(np.arange(steps), tick_labels(labels, steps), rotation=90 if labels else 0)
        axes.set_ylim(0, 1.05)
        axes.spines["left"].set_visible(False)
        axes.tick_params(length=0)
        axes.set_yticks([0, 0.5, 1] if step == 0 else [])
    np.atleast_1d(panels)[0].set_ylabel("exp(score − max)", color=FAINT)
    return figure
