"""Wrong comparisons of learning curves (DGA Figures 3a, 4)."""

import numpy as np

from cca_lab.studies.convergence import Difference


def unpaired(arm, reference):
    """Add the spread of both arms as if they had different seeds, so shared spread is noise."""
    spread = np.hypot(np.std(arm, ddof=1), np.std(reference, ddof=1)) / len(arm) ** 0.5
    return Difference(float(np.mean(arm) - np.mean(reference)), 3.18 * float(spread))
