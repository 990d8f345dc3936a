"""Groups and group coding: what the figures show is the data."""

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgba

from cca_lab.mechanisms.dga import FocalRule, row_reads
from cca_lab.views.figures import groups
from cca_lab.views.figures.style import CORE, OF_MECHANISM, RAW, SERIES, WRONG
from tests.views.figures.conftest import check_png

WORDS = "Ada came home and then Ben slept".split()
FOCAL, GROUPS = [0, 2, 5], [[1, 3], [4, 6]]
READS = [row_reads(i, FOCAL, GROUPS, FocalRule(group=2, gamma=0.0)) for i in range(7)]


def test_division_draws_each_token_once_and_names_each_column(recwarn):
    figure = groups.division(WORDS, range(7), FOCAL, GROUPS, title="a")
    bars, drawing = figure.axes
    assert [bar.get_height() for bar in bars.patches] == list(range(7))
    blue = [t for t, bar in enumerate(bars.patches) if bar.get_facecolor() == to_rgba(RAW)]
    assert blue == FOCAL and CORE != RAW
    assert [text.get_text() for text in drawing.texts] == ["Ada", "home", "Ben", "came and",
                                                           "then slept", *WORDS]
    assert len(drawing.lines) == 7
    check_png(figure)
    assert not recwarn.list


@pytest.mark.parametrize("wrong", [([0], GROUPS), (FOCAL, [[1, 3], [4, 6], [0, 2]])])
def test_division_wants_each_token_in_one_place(wrong):
    with pytest.raises(ValueError, match="exactly one"):
        groups.division(WORDS, range(7), *wrong)


def test_reading_draws_how_each_row_reads_each_token(recwarn):
    kinds = groups.kinds_of(READS, GROUPS)
    assert kinds[4].tolist() == [groups.FOCAL, groups.POOLED, groups.FOCAL, groups.POOLED,
                                 groups.OPEN, groups.UNREAD, groups.UNREAD]
    assert np.array_equal(kinds != groups.UNREAD, np.tri(7, dtype=bool))
    figure = groups.reading(kinds, tokens=WORDS)
    assert np.array_equal(np.asarray(figure.axes[0].collections[0].get_array()).reshape(7, 7),
                          kinds)
    check_png(figure)
    assert not recwarn.list


def test_predictions_are_lines_and_measurements_dots_of_the_same_colour():
    figure = groups.predicted_and_measured([1, 2], {"a": [4, 2], "b": [3, 3]},
                                           {"b": [(3, 0.1), (2.9, 0.2)]}, xlabel="x", ylabel="y",
                                           reference={"c": [1, 0.5]})
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
    colours = [axes.lines[0].get_color() for axes in figure.axes]
    assert colours == [OF_MECHANISM["full"], OF_MECHANISM["cca"]]
