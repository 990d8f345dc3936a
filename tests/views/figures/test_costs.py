"""Costs and the roofline: minima, sums, lines and points lie where the numbers are."""

import pytest

from cca_lab.studies.benchmarks.attention import points
from cca_lab.views.figures import costs
from cca_lab.views.figures.costs import Point, roofline


def test_valleys_mark_the_least_of_every_curve():
    (axes,) = costs.valleys([1, 2, 4], {"a": [4, 2, 3], "b": [9, 8, 7]}, ylabel="pairs").axes
    marks = [line for line in axes.lines if line.get_marker() == "o"]
    assert [(mark.get_xdata()[0], mark.get_ydata()[0]) for mark in marks] == [(2, 2), (4, 7)]
    assert {"g = 2", "g = 4", "a", "b"} <= {text.get_text() for text in axes.texts}


def test_stacked_parts_stand_side_by_side():
    (axes,) = costs.stacked({"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 4}},
                            xlabel="operations").axes
    bars = [(bar.get_x(), bar.get_width()) for bar in axes.patches]
    assert bars == [(0, 1), (0, 3), (1, 2), (3, 4)]
    assert [text.get_text() for text in axes.texts] == ["3", "7"]


SERIES = {"a": [Point(200, 800, 40, 4.0), Point(100, 400, 40, 1.0)], "b": [Point(50, 200, 20, 2.0)]}


def test_points_are_drawn_where_they_were_measured():
    figure = roofline(SERIES, peak=1000.0, bandwidth=100.0, peak_name="a product")
    left, right = figure.axes
    assert left.lines[0].get_xydata().tolist() == [[100, 1.0], [200, 4.0]]  # in order of pairs
    assert right.lines[0].get_xydata().tolist() == [[10, 400], [20, 200]]
    assert right.lines[1].get_xydata().tolist() == [[10, 100]]


def test_the_roof_and_the_least_time_are_those_of_the_peak():
    left, right = roofline(SERIES, peak=1000.0, bandwidth=100.0, peak_name="a product").axes
    intensity, roof = right.lines[-1].get_data()
    assert (roof <= 1000.0).all() and roof[-1] == 1000.0
    assert roof[0] == pytest.approx(100.0 * intensity[0])
    assert intensity[0] < 10 < 20 < intensity[-1]
    pairs, least = left.lines[-1].get_data()
    assert (least / pairs).tolist() == [4 / 1000.0] * 2  # four operations a pair
    assert "a product: 1e-06 G/s" in {text.get_text() for text in right.texts}


def under(series):
    return lambda: roofline(series, peak=1.0, bandwidth=1.0)


@pytest.mark.parametrize(("draw", "message"), [
    (lambda: costs.valleys([1, 2], {"a": [1]}, ylabel=""), "1 values for 2"),
    (lambda: costs.stacked({"a": {"x": 1}, "b": {"y": 1}}, xlabel=""), "wanted \\['x'\\]"),
    (under({}), "got no measurement"), (under({"a": [Point(1, 1, 1, 0)]}), "'a'.*not positive"),
    (under({str(n): [Point(1, 1, 1, 1)] for n in range(7)}), "at most 6"),
])
def test_what_cannot_be_drawn_is_refused(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()


@pytest.mark.parametrize(("dtype", "itemsize"), [("float32", 4), ("bfloat16", 2)])
def test_the_points_of_the_cpu_bench(dtype, itemsize):
    """Mutant: four bytes for every dtype, which halves the intensity of bfloat16."""
    shape = {"batch": 1, "heads": 8, "head_dim": 64, "group": 16, "dtype": dtype}
    row = {"length": 40, "window": 16, "implementation": "blocked", "full_seconds": 2.0,
           "cca_seconds": 1.0}
    drawn = points({"shape": shape, "rows": [row | {"pass": "forward"},
                                             row | {"pass": "forward+backward"}]})
    traffic = 4 * 8 * 40 * 64 * itemsize  # q, k, v, out
    assert drawn == {"full": [Point(8 * 820, 4 * 64 * 8 * 820, traffic, 2.0)],
                     "blocked, s = 16": [Point(8 * 685, 4 * 64 * 8 * 685, traffic, 1.0)]}
