"""The figures of group coding: what they show is the data."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex

from cca_lab.views.figures import groups
from cca_lab.views.figures.style import SERIES, WRONG


@pytest.fixture(autouse=True)
def no_figure_stays_open():
    plt.close("all")
    yield
    assert plt.get_fignums() == []


def test_predictions_are_lines_and_measurements_dots_of_the_same_colour():
    figure = groups.predicted_and_measured([1, 2], {"a": [4, 2], "b": [3, 3]},
                                                 {"b": [(3, 0.1), (2.9, 0.2)]}, xlabel="x",
                                                 ylabel="y", reference={"c": [1, 0.5]})
    (axes,) = figure.axes
    lines = {line.get_label(): line.get_ydata().tolist() for line in axes.lines}
    assert lines["a"] == [4, 2] and lines["b"] == [3, 3] and lines["c"] == [1, 0.5]
    dots = axes.containers[0].lines[0]
    assert dots.get_ydata().tolist() == [3, 2.9] and dots.get_color() == SERIES[1]
    assert axes.get_xscale() == "log"


def test_separation_marks_what_leaves_the_range():
    figure = groups.separation({"in": ([2, 8], [1.5]), "out": ([2, 8], [0.5, 3])}, m=2)
    marked = [line.get_xdata().tolist() for axes in figure.axes for line in axes.lines
              if to_hex(line.get_color()) == to_hex(WRONG)]
    assert marked == [[], [0.5]]
    assert figure.axes[0].lines[0].get_xdata().tolist() == [1, 4]


def test_descent_paths_count_their_steps():
    path = np.array([[1.0, 1.0], [0.5, -0.5], [0.0, 0.0]])
    (axes,) = groups.descent_paths({"even": (np.eye(2), path)}).axes
    assert axes.get_title(loc="left") == "even: 2 steps"
    np.testing.assert_array_equal(axes.lines[0].get_xydata(), path)


@pytest.mark.parametrize("logarithmic", [True, False])
def test_intervals_have_a_panel_a_title(logarithmic):
    triples = [(1.0, 0.9, 1.1), (2.0, 1.5, 2.5)]
    figure = groups.with_intervals({"keys": {"full": triples}, "logits": {"cca": triples}},
                                         [0.1, 0.3], xlabel="sigma", ylabel="KL",
                                         logarithmic=logarithmic)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["keys", "logits"]
    assert [text.get_text() for text in figure.axes[1].get_legend().get_texts()] == ["full", "cca"]
    assert figure.axes[0].lines[0].get_ydata().tolist() == [1.0, 2.0]
    assert [axes.lines[0].get_color()
            for axes in figure.axes] == list(SERIES[:2])  # one colour a name
