"""The training figures draw the numbers they are given."""

import numpy as np

from cca_lab.figures.training import convergence, match_by_position


def test_convergence_draws_the_losses_their_running_mean_and_the_reference():
    losses = [5.0, 3.0, 4.0, 2.0]
    axes = convergence({"run": losses}, 1.5, smoothing=2).axes[0]
    seen, mean, reference = axes.get_lines()
    assert list(seen.get_ydata()) == losses
    assert np.allclose(mean.get_ydata(), [4.0, 3.5, 3.0]) and list(mean.get_xdata()) == [2, 3, 4]
    assert set(reference.get_ydata()) == {1.5}


def test_convergence_takes_a_run_shorter_than_the_running_mean():
    assert convergence({"run": [2.0]}).axes[0].get_lines()[1].get_ydata().tolist() == [2.0]


def test_match_by_position_sorts_positions_and_shows_percent():
    line = match_by_position({"model": {1.0: 0.9, 0.0: 0.1}}).axes[0].get_lines()[0]
    assert list(line.get_xdata()) == [0.0, 1.0]
    assert np.allclose(line.get_ydata(), [10, 90])
