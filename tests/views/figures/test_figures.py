"""The figures: each returns a Figure off pyplot's list, and what is drawn is what was given."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from cca_lab.attention import causal_intervals, visible_mask
from cca_lab.attention.plan import plan_of
from cca_lab.mechanisms.cca import groups
from cca_lab.views.figures import costs, diagrams, heatmaps, style, tiling, training
from tests.views.figures.conftest import check_png

WORDS = "the cat sat on the mat".split()
SQUARE = torch.arange(36, dtype=torch.float64).view(6, 6) / 36
LENGTHS = [2, 4, 8]
SHARES = [[1.0], [0.5, 1.0]]

FIGURES = {"heatmaps": lambda: heatmaps.heatmaps({"a": SQUARE, "b": SQUARE / 2}, rows=WORDS,
                                                 columns=WORDS),
           "heatmap": lambda: heatmaps.heatmap(SQUARE, title="a", numbers=".2f"),
           "visibility": lambda: heatmaps.visibility(torch.ones(6, 8).bool(), 2, tokens=WORDS),
           "times_read": lambda: heatmaps.times_read({"a": torch.ones(6, 6).tril()}, tokens=WORDS),
           "tiles": lambda: tiling.tiles(6, 4, 3, labels=WORDS),
           "parts": lambda: tiling.parts(plan_of(causal_intervals(64)[0, 0]), 64, 64),
           "growth": lambda: costs.growth(LENGTHS, {"a": LENGTHS}, ylabel="pairs"),
           "bars": lambda: costs.bars({"a": 1.0, "b": 20.0}, xlabel="ms", logarithmic=True),
           "online_softmax_steps": lambda: heatmaps.online_softmax_steps(SHARES, [0, 1],
                                                                         [1.0, 1.5]),
           "mixing": lambda: diagrams.mixing(torch.eye(2), inputs=["a", "b"]),
           "lab_map": lambda: diagrams.lab_map({"papers": {"A": True}, "mechanisms": {"a": False}},
                                               [("A", "a")]),
           "vectors_in_circle": lambda: diagrams.vectors_in_circle({"a": (1, 0), "b": (0, 1)},
                                                                   bold=["b"])}


def drawn(figure: Figure, panel: int = 0) -> np.ndarray:
    """The matrix that a panel shows."""
    axes = figure.axes[panel]
    mesh = axes.collections[0]
    return np.asarray(mesh.get_array()).reshape(mesh.get_coordinates().shape[0] - 1, -1)


def written(figure: Figure, panel: int = 0) -> list[str]:
    """The texts inside a panel, in the order of its cells."""
    return [text.get_text() for text in figure.axes[panel].texts]


def ticks(figure: Figure, panel: int = 0) -> tuple[list[str], list[str]]:
    """The labels of rows and columns of a panel."""
    axes = figure.axes[panel]
    return tuple([label.get_text() for label in axis.get_ticklabels()]
                 for axis in (axes.yaxis, axes.xaxis))


@pytest.mark.parametrize("name", FIGURES)
def test_draws_small_without_a_warning_shows_nothing_and_leaves_the_caller_s_style(name, recwarn):
    before = plt.rcParams.copy()
    figure = FIGURES[name]()
    assert isinstance(figure, Figure)
    assert plt.get_fignums() == []
    assert plt.rcParams == before
    check_png(figure)
    assert not recwarn.list


# Heat maps


def test_heatmaps_draw_the_matrices_on_one_scale():
    figure = heatmaps.heatmaps({"a": SQUARE, "b": SQUARE / 2}, rows=WORDS, columns=WORDS)
    np.testing.assert_array_equal(drawn(figure, 0), SQUARE)
    np.testing.assert_array_equal(drawn(figure, 1), SQUARE / 2)
    assert ticks(figure, 1) == (WORDS, WORDS)
    assert {panel.collections[0].get_clim() for panel in figure.axes[:2]} == {(0.0, 35 / 36)}


def test_heatmap_writes_numbers_but_no_exact_zero():
    figure = heatmaps.heatmap([[0.5, 0.0], [0.25, 0.001]], numbers=".2f")
    assert written(figure) == ["0.50", "", "0.25", "0.00"]


@pytest.mark.parametrize("side, labels", [(32, 32), (33, 0)])
def test_labels_are_drawn_as_long_as_they_can_be_read(side, labels):
    rows, columns = ticks(heatmaps.heatmap(np.ones((side, side))))
    assert len(rows) == len(columns) == labels


def test_heatmaps_take_tensors_with_gradients():
    matrix = torch.rand(2, 2, dtype=torch.float64, requires_grad=True)
    np.testing.assert_array_equal(drawn(heatmaps.heatmap(matrix)), matrix.detach())


@pytest.mark.parametrize("matrices", [{"a": [[1]], "b": [[1, 2]]}, {"a": [[[1]]]}, {}])
def test_heatmaps_refuse_other_shapes(matrices):
    with pytest.raises(ValueError, match="matrices"):
        heatmaps.heatmaps(matrices)


def test_labels_must_fit():
    with pytest.raises(ValueError, match="labels: got 3 for 6"):
        heatmaps.heatmap(SQUARE, rows=["a", "b", "c"])


def test_visibility_tells_cores_from_raw_tokens():
    cores = groups.core_count(6, 2, 2)
    mask = visible_mask(groups.intervals(6, 2, 2), cores + 6)[0, 0]
    figure = heatmaps.visibility(mask, cores, tokens=WORDS, core_names=["the cat", "sat on"])
    expected = mask.int() * torch.tensor([heatmaps.CORE_CELL] * cores + [heatmaps.RAW_CELL] * 6)
    np.testing.assert_array_equal(drawn(figure), expected)
    assert ticks(figure) == (WORDS, ["the cat", "sat on", *WORDS])


def test_times_read_writes_every_count_but_the_right_zeros():
    count = torch.tensor([[1, 0, 0], [0, 1, 1], [2, 1, 1]])
    figure = heatmaps.times_read({"a": count})
    assert written(figure) == ["1", "", "", "0", "1", "1", "2", "1", "1"]
    past, future, rarely, twice, ahead = range(5)
    expected = [[past, future, future], [rarely, past, ahead], [twice, past, past]]
    np.testing.assert_array_equal(drawn(figure), expected)
    assert len(figure.legends[0].get_texts()) == 5


def test_the_legend_names_what_occurs():
    (legend,) = heatmaps.times_read({"a": torch.ones(3, 3).tril()}).legends
    assert [text.get_text() for text in legend.get_texts()] == ["past, read once",
                                                                "future, not read"]


# Tiles


@pytest.mark.parametrize("length, query_tile, key_tile",
                         [(12, 4, 3), (10, 4, 3), (5, 1, 1), (5, 9, 2), (7, 3, 7)])
def test_tile_kinds_are_what_the_pairs_say(length, query_tile, key_tile):
    past = np.tri(length, dtype=bool)
    for row, kinds in enumerate(tiling.tile_kinds(length, query_tile, key_tile)):
        line = past[row * query_tile : (row + 1) * query_tile]
        for column, kind in enumerate(kinds):
            block = line[:, column * key_tile : (column + 1) * key_tile]
            expected = (tiling.Tile.WHOLE if block.all() else
                        tiling.Tile.MASKED if block.any() else tiling.Tile.SKIPPED)
            assert kind is expected, (row, column)


def test_tiles_cover_the_square_once():
    patches = [patch for patch in tiling.tiles(10, 4, 3).axes[0].patches
               if isinstance(patch, Rectangle)]
    assert sum(patch.get_width() * patch.get_height() for patch in patches) == 100


@pytest.mark.parametrize("length, group, window", [(200, 4, 16), (64, 64, 64)])
def test_parts_cover_what_the_plan_computes(length, group, window):
    intervals = groups.intervals(length, group, window)
    columns = groups.core_count(length, group, window) + length
    plan = plan_of(intervals[0, 0])
    figure = tiling.parts(plan, length, columns, cores=columns - length)
    covered = np.zeros((length, columns), dtype=int)
    for patch in figure.axes[0].patches:
        (left, top), width, height = patch.get_xy(), patch.get_width(), patch.get_height()
        covered[int(top) : int(top + height), int(left) : int(left + width)] += 1
    assert len(figure.axes[0].patches) == sum(part.count for part in plan)
    assert (covered[visible_mask(intervals, columns)[0, 0].numpy()] > 0).all()


# Curves, steps, diagrams


def test_growth_draws_each_series():
    figure = costs.growth(LENGTHS, {"a": [4, 16, 64], "b": [1, 2, 3]}, ylabel="pairs")
    lines = figure.axes[0].get_lines()
    assert [list(line.get_ydata()) for line in lines] == [[4, 16, 64], [1, 2, 3]]
    assert all(list(line.get_xdata()) == LENGTHS for line in lines)
    assert written(figure) == ["a", "b"]
    with pytest.raises(ValueError, match="'a'"):
        costs.growth(LENGTHS, {"a": [1]}, ylabel="pairs")


def test_bars_draw_and_write_the_values():
    figure = costs.bars({"slow": 1650.4, "quick": 0.0551}, xlabel="ms", logarithmic=True)
    assert [bar.get_width() for bar in figure.axes[0].patches] == [1650.4, 0.0551]
    assert written(figure) == ["1650", "0.0551"]


def test_online_softmax_steps_draw_the_shares():
    figure = heatmaps.online_softmax_steps(SHARES, [0.0, 1.0], [1.0, 1.5], labels=["x", "y"])
    for axes, shares in zip(figure.axes, SHARES, strict=True):
        # after two bars of background
        assert [bar.get_height() for bar in axes.patches][2:] == shares
    with pytest.raises(ValueError, match="shares"):
        heatmaps.online_softmax_steps(SHARES, [0.0], [1.0, 1.5])


def test_mixing_draws_one_line_for_each_weight():
    weights = torch.tensor([[0.2, 0.8, 0.0], [0.0, 0.0, 1.0]])
    lines = diagrams.mixing(weights, outputs=["c", "d"], inputs=["x", "y", "z"]).axes[0].get_lines()
    widths = np.array([line.get_linewidth() for line in lines])
    np.testing.assert_allclose(widths / widths.max(), [0.2, 0.8, 1.0], rtol=1e-6)
    figure = diagrams.mixing(weights, outputs=["c", "d"], inputs=["x", "y", "z"])
    assert set(written(figure)) == {"0.2", "0.8", "c", "d", "x", "y", "z"}


def test_lab_map_has_a_box_for_each_entry_and_dashes_what_is_planned():
    figure = diagrams.lab_map({"papers": {"A": True, "B": False}, "mechanisms": {"a": True}},
                              [("A", "a")])
    boxes = [patch for patch in figure.axes[0].patches if isinstance(patch, FancyBboxPatch)]
    assert [box.get_linestyle() in ("-", "solid") for box in boxes] == [True, False, True]
    assert len(figure.axes[0].get_lines()) == 1
    assert set(written(figure)) == {"papers", "mechanisms", "A", "B", "a"}


def test_vectors_end_where_they_were_given():
    vectors = {"a": (1.0, 0.0), "b": (0.3, -0.4)}
    axes = diagrams.vectors_in_circle(vectors, bold=["b"]).axes[0]
    ends = {line.get_label(): (line.get_xdata()[-1], line.get_ydata()[-1])
            for line in axes.get_lines()}
    assert vectors.items() <= ends.items()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b"]


def test_colours_of_different_meaning_differ():
    colours = [style.RAW, style.CORE, style.GOOD, style.WRONG, style.MISSING, style.SKY]
    assert len(set(colours)) == len(colours) == len(style.SERIES)


def test_a_mechanism_has_its_colour_in_every_series():
    table = style.OF_MECHANISM
    names = {"StreamingLLM": "streaming_llm", "CCA, g = 4": "cca", "full attention": "full",
             "LM-Infinite": "lm_infinite"}
    assert dict(style.coloured(names)) == {name: table[key] for name, key in names.items()}
    other, own = (colour for _, colour in style.coloured(["loops", "streaming LLM"]))
    assert own == table["streaming_llm"] != other


def test_two_series_of_one_mechanism_differ():
    colours = [colour for _, colour in style.coloured(["CCA, g = 2", "CCA, g = 4", "DGA"])]
    assert len(set(colours)) == 3 and colours[2] == style.OF_MECHANISM["dga"]


def test_the_comparison_shows_every_mechanism_and_place():
    estimate = {"value": 12.0, "low": 11.0, "high": 13.0}
    row = {"exact_match": {place: {"value": 0.25} for place in ("0.0", "0.5", "1.0", "all")},
           "perplexity": estimate}
    figure = training.comparison({"full": row | {"title": "Full"}, "cca": row | {"title": "CCA"}})
    left, right = figure.axes
    assert [tick.get_text() for tick in left.get_yticklabels()] == ["Full", "CCA"]
    assert [text.get_text() for text in left.texts] == ["25"] * 6
    assert right.get_xlim()[0] < 12 < right.get_xlim()[1]


def test_no_curve_is_dropped_for_want_of_a_colour():
    """Zipping with the colours would end at the shorter of the two."""
    six = {str(n): [1, 2] for n in range(6)}
    assert len(costs.growth([1, 2], six, ylabel="pairs").axes[0].lines) == 6
    with pytest.raises(ValueError, match="got 7, wanted at most 6"):
        costs.growth([1, 2], six | {"one more": [1, 2]}, ylabel="pairs")


def test_a_drawing_that_fails_leaves_no_figure_open():
    @style.styled
    def fails():
        plt.subplots()
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        fails()
    assert plt.get_fignums() == []
