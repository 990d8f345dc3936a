"""The figures of decoding show the numbers they are given."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex

from cca_lab.views.figures.caches import against_context, entries_held, spread, token_times
from cca_lab.views.figures.style import CORE, RAW, SERIES

WORDS = ["the", "cat", "sat"]
HELD = [torch.eye(3)[:1], torch.eye(3)[:2], torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])]


def test_entries_held_draws_a_cell_for_each_entry_after_each_token():
    axes = entries_held({"pairs": HELD}, tokens=WORDS, waiting={"pairs": [(), (), (0,)]}).axes[0]
    cells = {text.get_position(): text.get_text() for text in axes.texts}
    assert cells == {(0.5, 0.5): "the", (0.5, 1.5): "the", (1.5, 1.5): "cat", (0.5, 2.5): "the cat",
                     (1.5, 2.5): "sat"}
    assert [to_hex(patch.get_facecolor()).upper() for patch in axes.patches] == [RAW, RAW, RAW,
                                                                                 CORE, RAW]
    assert [patch.get_alpha() for patch in axes.patches] == [1, 1, 1, 0.35, 1]
    assert [label.get_text() for label in axes.get_yticklabels()] == WORDS


@pytest.mark.parametrize("matrices", [HELD[:2], [torch.eye(2)] * 3], ids=["too few", "too narrow"])
def test_entries_held_refuses_what_does_not_fit_the_tokens(matrices):
    with pytest.raises(ValueError, match="cache 'pairs': got"):
        entries_held({"pairs": matrices}, tokens=WORDS)


def test_against_context_draws_lines_and_dots_and_names_them():
    figure = against_context([64, 128], {"full": [1, 2], "small": [1, 1]}, ylabel="KiB",
                             measured={"full": {64: 1.0}})
    axes = figure.axes[0]
    line, dot, flat, none = axes.lines
    assert list(line.get_ydata()) == [1, 2] and list(flat.get_ydata()) == [1, 1]
    assert list(dot.get_xdata()) == [64] and not list(none.get_xdata())
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert {(text.get_text(), text.get_color()) for text in axes.texts} == {("full", SERIES[0]),
                                                                            ("small", SERIES[1])}
    heights = {text.get_text(): text.xy[1] for text in axes.texts}
    assert heights["full"] > heights["small"]


def test_given_colours_are_the_colours_of_lines_names_and_panels():
    given = {str(n): f"#0000{n:02}" for n in range(8)}
    series = {name: [1.0 + int(name), 2.0] for name in reversed(given)}
    axes = against_context([64, 128], series, ylabel="KiB", colours=given).axes[0]
    assert [to_hex(line.get_color()) for line in axes.lines[::2]] == list(reversed(given.values()))
    assert all(text.get_color() == given[text.get_text()] for text in axes.texts)
    panels = token_times(series, colours=given).axes
    assert [to_hex(panel.patches[0].get_facecolor())
            for panel in panels] == list(reversed(given.values()))


@pytest.mark.parametrize(("arguments", "message"), [
    (dict(series={"full": [1, 2]}, colours={"cca": "red"}), r"colours: got none for \['full'\]"),
    (dict(series={"full": [1]}), "series 'full': got 1 values for 2"),
    (dict(series={str(n): [1, 2] for n in range(7)}), "series: got 7 names"),
    (dict(series={"full": [1, 2]}, measured={"other": {64: 1}}), "measured: got"),
], ids=["a colour", "length", "colours", "dots"])
def test_against_context_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        against_context([64, 128], ylabel="KiB", **arguments)


@pytest.mark.parametrize(("places", "wanted"), [
    ([0.1, 0.5], [0.1, 0.5]), ([0.5, 0.5], [0.45, 0.55]), ([0.5, 0.5, 0.5], [0.4, 0.5, 0.6]),
    ([0.4, 0.5, 0.5], [11 / 30, 14 / 30, 17 / 30])])
def test_spread_moves_only_what_is_too_close(places, wanted):
    assert spread(places, 0.1) == pytest.approx(wanted)


def test_spread_keeps_order_and_gap():
    places = sorted(np.random.default_rng(0).random(9) * 0.6)
    assert np.diff(spread(places, 0.05)).min() >= 0.05 - 1e-12


def test_token_times_draws_a_bar_for_each_token():
    figure = token_times({"full": [1.0, 2.0], "small": [0.5, 4.0]}, title="times")
    assert [[bar.get_height() for bar in axes.patches] for axes in figure.axes] == [[1, 2],
                                                                                    [0.5, 4]]
    with pytest.raises(ValueError, match="got 0 names"):
        token_times({})
