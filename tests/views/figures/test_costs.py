"""Figures of costs: what they show is the data, and what does not fit is refused."""

import matplotlib.pyplot as plt
import pytest

from cca_lab.views.figures import costs


@pytest.fixture(autouse=True)
def no_figure_stays_open():
    plt.close("all")  # what another file's test left open is not ours
    yield
    assert plt.get_fignums() == []


def test_valleys_mark_the_least_of_every_curve():
    (axes,) = costs.valleys([1, 2, 4], {"a": [4, 2, 3], "b": [9, 8, 7]}, ylabel="pairs").axes
    marks = [line for line in axes.lines if line.get_marker() == "o"]
    assert [(mark.get_xdata()[0], mark.get_ydata()[0]) for mark in marks] == [(2, 2), (4, 7)]
    assert {"g = 2", "g = 4", "a", "b"} <= {text.get_text() for text in axes.texts}


def test_stacked_parts_stand_side_by_side():
    (axes,) = costs.stacked({"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 4}},
                            xlabel="operations").axes
    assert [(bar.get_x(), bar.get_width()) for bar in axes.patches] == [(0, 1), (0, 3), (1, 2),
                                                                        (3, 4)]
    assert [text.get_text() for text in axes.texts] == ["3", "7"]


@pytest.mark.parametrize(("draw", "message"), [
    (lambda: costs.valleys([1, 2], {"a": [1]}, ylabel=""), "1 values for 2"),
    (lambda: costs.stacked({"a": {"x": 1}, "b": {"y": 1}}, xlabel=""), "wanted \\['x'\\]"),
])
def test_what_does_not_fit_is_refused(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()
