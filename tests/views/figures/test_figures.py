"""The figures: small, off pyplot's list, described; and what is drawn is what was given."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from cca_lab.attention.kernels.programs import Read
from cca_lab.attention.statistics import k90
from cca_lab.views.figures import (
    caches,
    costs,
    diagrams,
    groups,
    heatmaps,
    sparsity,
    style,
    tiling,
    training,
)
from tests.views.figures.conftest import check_png

WORDS = "the cat sat on the mat".split()
SQUARE = torch.arange(36, dtype=torch.float64).view(6, 6) / 36
READS = [Read(0, (0, 2), (0, 4), False), Read(1, (2, 4), (0, 4), True),
         Read(1, (2, 4), (4, 8), False)]
FORMS = [costs.Rung("loops", "Python", None, {8: 0.5}), costs.Rung("fast", "C++", 1e-9, {8: None})]


def causal_maps(*shape: int) -> torch.Tensor:
    length = shape[-1]
    scores = 2 * torch.randn(*shape, length, generator=torch.Generator().manual_seed(0))
    return scores.masked_fill(~torch.ones(length, length).tril().bool(), float("-inf")).softmax(-1)


FIGURES = {
    "heatmaps": lambda: heatmaps.heatmaps({"a": SQUARE, "b": SQUARE / 2}, rows=WORDS),
    "visibility": lambda: heatmaps.visibility(torch.ones(6, 8).bool(), 2, tokens=WORDS),
    "times_read": lambda: heatmaps.times_read({"a": torch.ones(6, 6).tril()}, tokens=WORDS),
    "shaded_text": lambda: heatmaps.shaded_text(WORDS, SQUARE[0], marked={1}),
    "online_softmax_steps": lambda: heatmaps.online_softmax_steps([[1.0], [0.5, 1.0]], [0, 1],
                                                                  [1.0, 1.5]),
    "tiles": lambda: tiling.tiles(6, 4, 3, labels=WORDS),
    "programs": lambda: tiling.programs(READS, 3, 6, loaded=torch.eye(3, 6).bool()),
    "growth": lambda: costs.growth([2, 4], {"a": [2, 4]}, ylabel="pairs"),
    "valleys": lambda: costs.valleys([2, 4, 8], {"a": [4, 3, 4]}, ylabel="pairs"),
    "bars": lambda: costs.bars({"a": 1.0, "b": 20.0}, xlabel="ms"),
    "stacked": lambda: costs.stacked({"x": {"a": 1.0, "b": 2.0}}, xlabel="ms"),
    "roofline": lambda: costs.roofline({"a": [costs.Point(10, 20, 5, 1e-3)]}, peak=1e9,
                                       bandwidth=1e8),
    "strip": lambda: costs.strip(FORMS, climbed={"loops"}),
    "mixing": lambda: diagrams.mixing(torch.eye(2), inputs=["a", "b"]),
    "vectors_in_circle": lambda: diagrams.vectors_in_circle({"a": (1, 0), "b": (0, 1)}, bold=["b"]),
    "layers_to_reach": lambda: diagrams.layers_to_reach({"a": [[1, 0], [3, 1]]}),
    "division": lambda: groups.division(WORDS, SQUARE[0], [0, 1], [[2, 3], [4, 5]]),
    "reading": lambda: groups.reading([[1, 0], [2, 3]]),
    "predicted_and_measured": lambda: groups.predicted_and_measured(
        [1, 2], {"a": [1, 2]}, {"a": [(1, 0.1), (2, 0.1)]}, xlabel="m", ylabel="v"),
    "separation": lambda: groups.separation({"a": ([4.0, 2.0], [1.5])}, m=2),
    "holdings": lambda: caches.holdings({"a": np.tri(4), "b": np.tri(4) / 2}),
    "kept_and_forgotten": lambda: caches.kept_and_forgotten({"a": SQUARE[0]}, SQUARE[1],
                                                            tokens=WORDS),
    "entries_held": lambda: caches.entries_held({"a": [[[1, 0]], [[1, 0], [0, 1]]]},
                                                tokens=["x", "y"], waiting={"a": [[], [1]]}),
    "remembrance": lambda: caches.remembrance({"a": [1, 0.5]}, half_life={"a": 1.0}),
    "against_context": lambda: caches.against_context([2, 4], {"a": [1, 2]}, ylabel="KiB",
                                                      measured={"a": {2: 1.1}}),
    "head_maps": lambda: sparsity.head_maps(causal_maps(2, 3, 5)),
    "sorted_weights": lambda: sparsity.sorted_weights({"one": causal_maps(8)[-1]}),
    "by_head": lambda: sparsity.by_head({"a": SQUARE, "b": SQUARE}, shared=True),
    "by_layer": lambda: sparsity.by_layer({"a": SQUARE}, marked={"a": [[1]]}),
    "received": lambda: sparsity.received(SQUARE[:2], WORDS),
    "models": lambda: sparsity.models([{"model": "a", "k90": [[1.0, 2.0]]}], {"k90": "k90"}),
    "objectives": lambda: sparsity.objectives([1, 2], {"a": [0.1, 0.2]}, truth=0.5, wrong="a"),
    "bounds": lambda: sparsity.bounds([2, 4], [0.1, 0.2], [0.01, 0.02], {"a": [0.1, 0.2]},
                                      wrong=["a"]),
    "head_curves": lambda: sparsity.head_curves([2, 4], {0.1: np.ones((2, 2, 2))}),
    "match_by_offset": lambda: training.match_by_offset({"a": [1.0, 0.0, 0.9]}, 2),
    "answered": lambda: training.answered({"full": (0.9, 0.8, 1.0), "cca": (0.2, 0.1, 0.3)}),
    "recipes": lambda: training.recipes({"slow": (1.2, 0.4)}, {"slow": 1.05}, (1.9, 0.02)),
    "kept_tokens": lambda: training.kept_tokens({"a": np.eye(2)}, ["x", "y"]),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_small_described_and_leaves_the_caller_s_style(name, recwarn):
    before = plt.rcParams.copy()
    figure = FIGURES[name]()
    assert isinstance(figure, Figure) and plt.get_fignums() == [] and plt.rcParams == before
    assert figure._repr_mimebundle_()[1]["image/png"]["alt"]
    check_png(figure)
    assert not recwarn.list


def drawn(figure: Figure, panel: int = 0) -> np.ndarray:
    """The matrix that a panel shows."""
    mesh = figure.axes[panel].collections[0]
    return np.asarray(mesh.get_array()).reshape(mesh.get_coordinates().shape[0] - 1, -1)


def written(figure: Figure, panel: int = 0) -> list[str]:
    """The texts inside a panel, in the order of its cells."""
    return [text.get_text() for text in figure.axes[panel].texts]


def ticks(figure: Figure, panel: int = 0) -> tuple[list[str], list[str]]:
    """The labels of rows and columns of a panel."""
    axes = figure.axes[panel]
    return tuple([label.get_text() for label in axis.get_ticklabels()]
                 for axis in (axes.yaxis, axes.xaxis))


def test_heatmaps_draw_the_matrices_on_one_scale_and_write_no_exact_zero():
    figure = heatmaps.heatmaps({"a": SQUARE, "b": SQUARE / 2}, rows=WORDS, columns=WORDS)
    np.testing.assert_array_equal(drawn(figure, 0), SQUARE)
    np.testing.assert_array_equal(drawn(figure, 1), SQUARE / 2)
    assert ticks(figure, 1) == (WORDS, WORDS)
    assert {panel.collections[0].get_clim() for panel in figure.axes[:2]} == {(0.0, 35 / 36)}
    numbered = heatmaps.heatmap([[0.5, 0.0], [0.25, 0.001]], numbers=".2f")
    assert written(numbered) == ["0.50", "", "0.25", "0.00"]


def test_times_read_tells_every_kind_and_the_legend_names_what_occurs():
    figure = heatmaps.times_read({"a": torch.tensor([[1, 0, 0], [0, 1, 1], [2, 1, 1]])})
    assert written(figure) == ["1", "", "", "0", "1", "1", "2", "1", "1"]
    past, future, rarely, twice, ahead = range(5)
    expected = [[past, future, future], [rarely, past, ahead], [twice, past, past]]
    np.testing.assert_array_equal(drawn(figure), expected)
    (legend,) = heatmaps.times_read({"a": torch.ones(3, 3).tril()}).legends
    assert [text.get_text() for text in legend.get_texts()] == ["past, read once",
                                                                "future, not read"]


def test_layers_to_reach_tells_never_from_the_future():
    figure = diagrams.layers_to_reach({"a": [[1, 0, 2], [0, 1, 0], [2, 5, 1]]})
    future, never, one, two, more = range(5)
    np.testing.assert_array_equal(drawn(figure), [[one, future, two], [never, one, future],
                                                  [two, more, one]])


@pytest.mark.parametrize("length, query_tile, key_tile", [(10, 4, 3), (5, 1, 1), (5, 9, 2)])
def test_tile_kinds_are_what_the_pairs_say(length, query_tile, key_tile):
    past = np.tri(length, dtype=bool)
    for row, kinds in enumerate(tiling.tile_kinds(length, query_tile, key_tile)):
        line = past[row * query_tile : (row + 1) * query_tile]
        for column, kind in enumerate(kinds):
            block = line[:, column * key_tile : (column + 1) * key_tile]
            expected = (tiling.Tile.WHOLE if block.all() else
                        tiling.Tile.MASKED if block.any() else tiling.Tile.SKIPPED)
            assert kind is expected, (row, column)


def test_a_mechanism_has_its_colour_in_every_figure_and_others_have_the_rest():
    own = dict(style.coloured(["CCA, g = 4", "x", "full"]))
    assert own["CCA, g = 4"] == style.OF_MECHANISM["cca"] and own["full"] == style.INK
    assert own["x"] == style.SERIES[0]
    with pytest.raises(ValueError, match="series: got 7"):
        style.coloured(map(str, range(7)))


def test_sorted_weights_mark_k90_of_each_row():
    rows = causal_maps(4, 20)[:, -1]  # (4, 20)
    _, axes = sparsity.sorted_weights({"one": rows[:2], "two": rows[2:]}).axes
    marks = [line for line in axes.lines if line.get_marker() == "o"]
    assert [int(mark.get_xdata()[0]) for mark in marks] == k90(rows).tolist()


def test_text_is_broken_into_lines_printed_and_shaded_by_weight():
    assert heatmaps.lines_of(["ab", "cd", ".\n", "ef"], most=10) == [[0, 1, 2], [3]]
    assert heatmaps.lines_of(["abc", "def", "g"], most=4) == [[0], [1, 2]]
    texts = ["An", " answer", " $1", ".\n"]
    (axes,) = heatmaps.shaded_text(texts, [0.1, 0.6, 0.1, 0.0], marked={1}).axes
    assert [text.get_text() for text in axes.texts] == ["An", " answer", r" \$1", ".\u21b5"]
    darkness = [sum(patch.get_facecolor()[:3]) for patch in axes.patches
                if patch.get_linewidth() < 1]
    assert min(darkness) == darkness[1] and max(darkness) == darkness[3]
