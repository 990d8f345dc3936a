"""Trained models: the figures draw the numbers that they are given."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from cca_lab.views.figures import sparsity, training
from cca_lab.views.figures.style import SERIES
from cca_lab.views.figures.training import (
    convergence,
    kept_tokens,
    match_by_offset,
    match_by_position,
    recipes,
)
from tests.views.figures.conftest import check_png


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


def test_match_by_offset_shows_percent_and_where_documents_begin_on_groups():
    shares = {"aligned": [1.0, 0.0, 0.1, 0.0, 0.9], "shifted": np.array([0.8, 0.7, 0.75, 0.7, 0.8])}
    figure = match_by_offset(shares, 4)
    (axes,) = figure.axes
    aligned, shifted, first, second = axes.get_lines()
    for line, (name, share) in zip((aligned, shifted), shares.items(), strict=True):
        assert list(line.get_xdata()) == [0, 1, 2, 3, 4] and line.get_label() == name
        assert np.allclose(line.get_ydata(), 100 * np.asarray(share))
    assert {line.get_xdata()[0] for line in (first, second)} == {0, 4}
    assert first.get_linestyle() == ":"
    assert aligned.get_color() != shifted.get_color()
    assert aligned.get_marker() != shifted.get_marker()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(shares)
    assert list(axes.get_xticks()) == [0, 1, 2, 3, 4]
    assert "multiple of the group, 4" in axes.get_xlabel()
    assert axes.get_ylim()[0] < 0 and axes.get_ylim()[1] > 100  # nothing lies on the frame
    check_png(figure)


def test_match_by_offset_draws_no_more_lines_than_can_be_told_apart():
    six = {str(index): [0.5, 0.5] for index in range(len(SERIES))}
    lines = match_by_offset(six, 8).axes[0].get_lines()[:-1]
    for look in ({line.get_color() for line in lines}, {line.get_marker() for line in lines}):
        assert len(look) == len(SERIES)
    with pytest.raises(ValueError, match="series: got 7, wanted at most 6"):
        match_by_offset(six | {"one more": [0.5, 0.5]}, 8)


def looks(axes):
    """Return colour, marker's outline and position of each recipe, and of the hollow marks."""
    filled, hollow = [], []
    for points in axes.collections[1:]:  # the first is the swapped model
        colours = points.get_edgecolor()
        look = (to_hex(colours[0]), points.get_paths()[0].vertices.tobytes(),
                tuple(points.get_offsets()[0]))
        (filled if len(points.get_facecolor()) else hollow).append(look)
    return filled, hollow


def test_recipes_draws_points_controls_and_the_swapped_model():
    points = {"slow": (1.2, 0.4), "fast": (1.1, 0.9)}
    figure = recipes(points, {"fast": 1.05}, (1.9, 0.02))
    (axes,) = figure.axes
    assert tuple(axes.collections[0].get_offsets()[0]) == pytest.approx((1.9, 2.0))
    filled, hollow = looks(axes)
    assert [look[2] for look in filled] == [pytest.approx((1.2, 40)), pytest.approx((1.1, 90))]
    assert [look[:2] for look in hollow] == [filled[1][:2]] and hollow[0][2] == (1.05, 104.0)
    assert [line.get_xdata()[0] for line in axes.get_lines()] == [1.0, 1.9]
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["swapped, untrained", "slow", "fast"]
    check_png(figure)


@pytest.mark.parametrize("count", [10, 30])
def test_more_recipes_than_colours_are_told_apart_by_their_marks(count):
    points = {f"recipe {index}": (1 + index / 100, index / count) for index in range(count)}
    filled, hollow = looks(recipes(points, dict.fromkeys(points, 1.0), (2.0, 0.0)).axes[0])
    assert len({look[:2] for look in filled}) == count
    assert [look[:2] for look in filled] == [look[:2] for look in hollow]


def test_recipes_shows_every_mark_whole():
    """A recipe that answers all or nothing lies on the frame, and would be cut there."""
    axes = recipes({"none": (1.1, 0.0), "all": (1.1, 1.0)}, {}, (1.9, 0.0)).axes[0]
    low, high = axes.get_ylim()
    assert low < 0 and high > 100


def test_kept_tokens_draws_a_matrix_for_each_model_offset_0_above():
    kept = {"swapped": np.full((3, 4), 0.25), "trained": np.arange(12).reshape(3, 4) / 12}
    figure = kept_tokens(kept, "A map Ada Bach".split())
    assert [panel.get_title(loc="left") for panel in figure.axes] == list(kept)
    for panel, weights in zip(figure.axes, kept.values(), strict=True):
        assert np.allclose(np.asarray(panel.collections[0].get_array()).reshape(3, 4), weights)
        assert panel.collections[0].get_clim() == (0, 1)
        assert [tick.get_text() for tick in panel.get_xticklabels()] == ["A", "map", "Ada", "Bach"]
        assert panel.get_ylim() == (3, 0)  # sharing an axis has not turned it over again
        written = [text.get_text() for text in panel.texts]
        assert written == [f"{weight:.1f}" for weight in weights.flatten()]
    assert figure.axes[0].get_ylabel() == "tokens of text before"
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["0", "1", "2"]
    check_png(figure)


def test_kept_tokens_takes_one_model():
    assert len(kept_tokens({"one": np.eye(2)}, ["a", "b"]).axes) == 1


def lines(axes):
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata()))
            for line in axes.get_lines()}


def test_beside():
    figure = training.printed_and_ours({"a": 2.0, "b": 3.0}, "perplexity",
                                       {"x": [1.0, 3.0], "y": [4.0]}, "ratio", "Table 0")
    left, right = figure.axes
    assert list(left.get_lines()[0].get_ydata()) == [2.0, 3.0]
    dots, mean = right.get_lines()[:-1], right.get_lines()[-1]
    assert [list(line.get_ydata()) for line in dots] == [[1.0, 3.0], [4.0]]
    assert list(mean.get_ydata()) == [2.0, 4.0]
    assert [tick.get_text() for tick in right.get_xticklabels()] == ["x", "y"]


def test_frontier():
    points = {"CCA": [{"kib": 192, "answers": 0.5, "ratio": 1.2,
                       "swapped": {"answers": 0.2, "ratio": 1.5}},
                      {"kib": 384, "answers": 0.9, "ratio": 1.1, "swapped": None}],
              "H2O": [{"kib": 384, "swapped": {"answers": 0.3, "ratio": 1.3}}]}
    figure = training.frontier(points, {"kib": 2048, "answers": 1.0, "ratio": 1.0}, "KiB")
    answers, ratio = figure.axes
    assert lines(answers)["CCA"] == ([192, 384], [50.0, 90.0])
    assert lines(ratio)["CCA"] == ([192, 384], [1.2, 1.1])
    assert lines(answers)["full attention"] == ([2048], [100.0])
    hollow = [line for line in answers.get_lines() if line.get_markerfacecolor() == "white"]
    assert [list(line.get_ydata()) for line in hollow] == [[20.0], [30.0]]


def test_perplexity_by_length_names_what_it_leaves_out():
    def row(values, attention="cca", swapped=True):
        return {"attention": attention, "swapped": swapped,
                "perplexity": [{"value": value} for value in values]}

    rows = {"full": row([9, 8], "full"), "lococo": row([900, 800], "lococo"),
            "tuned": row([9, 9], "cca", False)}
    result = {"model": "m", "windows": 2, "entries": 96, "buckets": [0, 256, 512], "rows": rows}
    (axes,) = training.perplexity(result).axes
    assert [list(line.get_ydata()) for line in axes.get_lines()] == [[9, 8], [9, 9]]
    assert list(axes.get_lines()[0].get_xdata()) == [256, 512]
    assert "above 40: lococo" in axes.get_xlabel()


def test_heads_of_models():
    results = [{"model": "a", "k90": [[1.0, 2.0], [3.0, 9.0]]}, {"model": "b", "k90": [[5.0]]}]
    (axes,) = sparsity.models(results, {"k90": "k90"}).axes
    drawn = [list(line.get_xdata()) for line in axes.get_lines()]
    assert drawn == [[1.0, 2.0, 3.0, 9.0], [2.5], [5.0], [5.0]]
    heights = np.concatenate([line.get_ydata() for line in axes.get_lines()[:1]])
    assert np.abs(heights).max() < 0.25
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["a", "b"]


def test_one_dot_for_each_statistic_needs_statistics():
    with pytest.raises(KeyError):
        sparsity.models([{"model": "a", "k90": [[1.0]]}], {"k90": "k90", "sink": "sink"})
