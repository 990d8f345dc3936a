"""Figures of sparsity and of single rows: they show the data, and refuse what does not fit."""

import numpy as np
import pytest
import torch

from cca_lab.attention.statistics import k90, received
from cca_lab.views.figures import heatmaps, sparsity


def causal_maps(*shape: int) -> torch.Tensor:
    length = shape[-1]
    scores = 2 * torch.randn(*shape, length, generator=torch.Generator().manual_seed(0))
    return scores.masked_fill(~torch.ones(length, length).tril().bool(), float("-inf")).softmax(-1)


def test_head_maps_shows_each_map_in_its_place():
    maps = causal_maps(2, 3, 5)
    figure = sparsity.head_maps(maps, title="maps")
    panels = [axes for axes in figure.axes if axes.get_images()]
    assert len(panels) == 6
    for index, axes in enumerate(panels):
        np.testing.assert_array_equal(axes.get_images()[0].get_array(), maps[index // 3, index % 3])


def test_sorted_weights_mark_k90_of_each_row():
    rows = causal_maps(4, 20)[:, -1]  # (4, 20)
    _, axes = sparsity.sorted_weights({"one": rows[:2], "two": rows[2:]}).axes
    marks = [line for line in axes.lines if line.get_marker() == "o"]
    assert [int(mark.get_xdata()[0]) for mark in marks] == k90(rows).tolist()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["one", "two"]


def test_by_head_writes_every_number():
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    figure = sparsity.by_head({"a": values, "b": values / 10}, numbers={"a": ".0f"})
    written = [[text.get_text() for text in axes.texts] for axes in figure.axes]
    assert written == [["1", "2", "3", "4"], ["0.10", "0.20", "0.30", "0.40"]]


@pytest.mark.parametrize("shared, largest", [(False, [5.0, 0.5]), (True, [5.0, 5.0])])
def test_by_head_shares_a_scale_if_asked(shared, largest):
    values = np.arange(6.0).reshape(2, 3)
    figure = sparsity.by_head({"a": values, "b": values / 10}, shared=shared)
    assert [axes.collections[0].get_clim() for axes in figure.axes] == [(0, most)
                                                                        for most in largest]


def test_by_layer_lies_down_and_frames_the_marked_heads():
    values = torch.arange(60.0).reshape(20, 3)
    first, second = sparsity.by_layer({"a": values, "b": -values}, numbers=".0f",
                                      marked={"a": [[], [0, 2], *[[]] * 18]}).axes
    assert first.collections[0].get_array().shape == (3, 20)
    assert first.get_title(loc="left") == "a (darkest: 59)" and not second.patches
    assert [frame.get_xy() for frame in first.patches] == [(1, 0), (1, 2)]
    assert [text.get_text() for text in second.get_xticklabels()] == ["0", "5", "10", "15"]


def test_by_position_averages_blocks_and_keeps_the_short_last_one():
    (axes,) = sparsity.by_position({"a": torch.arange(5.0)}, ylabel="y", even=torch.ones(5),
                                   smoothing=2).axes
    even, line = axes.lines
    assert even.get_ydata().tolist() == [1, 1, 1]
    assert line.get_xdata().tolist() == line.get_ydata().tolist() == [0.5, 2.5, 4.0]


def test_received_has_a_bar_for_each_token_and_layer():
    values = received(causal_maps(2, 4))
    figure = sparsity.received(values, ["a", "b", "c", "d"])
    heights = [[bar.get_height() for bar in axes.patches] for axes in figure.axes]
    np.testing.assert_allclose(heights, values.nan_to_num())


def test_lines_break_after_line_ends_and_before_they_are_too_long():
    assert heatmaps.lines_of(["ab", "cd", ".\n", "ef"], most=10) == [[0, 1, 2], [3]]
    assert heatmaps.lines_of(["abc", "def", "g"], most=4) == [[0], [1, 2]]
    assert heatmaps.lines_of(["a\n", "\n", "b\n"], most=4) == [[0], [1], [2]]


def test_shaded_text_prints_every_token_and_frames_the_marked_one():
    texts = ["An", " answer", " costs", " $1", ".\n", "Q"]
    (axes,) = heatmaps.shaded_text(texts, torch.tensor([0.1, 0.6, 0.1, 0.1, 0.1, 0.0]),
                                   marked={1}).axes
    assert [text.get_text() for text in axes.texts] == ["An", " answer", " costs", r" \$1",
                                                        ".\u21b5", "Q"]
    frames = [patch for patch in axes.patches if patch.get_linewidth() > 1]
    assert len(frames) == 1 and frames[0].get_x() == 2 and frames[0].get_width() == len(" answer")
    darkness = [sum(patch.get_facecolor()[:3]) for patch in axes.patches if patch not in frames]
    assert min(darkness) == darkness[1] and max(darkness) == darkness[5]


def test_rows_by_group_shades_the_groups_that_are_cores():
    rows = causal_maps(12)[-2:]
    figure = heatmaps.rows_by_group({"a": rows[0], "b": rows[1]}, group=4, cores=2, marked=3)
    for axes, row in zip(figure.axes, rows, strict=True):
        spans = [patch for patch in axes.patches if patch.get_width() == 4]
        assert [span.get_x() for span in spans] == [-0.5, 3.5]
        bars = [patch.get_height() for patch in axes.patches if patch.get_width() == 1][:12]
        np.testing.assert_allclose(bars, row)


@pytest.mark.parametrize("call, words", [
    (lambda: sparsity.head_maps(torch.ones(2, 3, 3)), "wanted (layers, heads, L, L)"),
    (lambda: sparsity.sorted_weights({"a": torch.ones(1, 3), "b": torch.ones(1, 4)}),
     "lengths [3, 4]"),
    (lambda: sparsity.received(torch.ones(2, 3), ["a"]), "got 1 for 3"),
    (lambda: heatmaps.shaded_text(["a", "b"], torch.ones(3)), "wanted one for each"),
])
def test_what_does_not_fit_is_refused(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)
