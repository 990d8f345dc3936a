"""What mechanisms hold, memories and decoding: the figures show the data that they are given."""

import re

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex

from cca_lab.views.figures import caches
from cca_lab.views.figures.caches import (
    against_context,
    entries_held,
    remembrance,
    spread,
    token_times,
)
from cca_lab.views.figures.style import CORE, OF_MECHANISM, RAW, SERIES
from tests.views.figures.conftest import check_png

WORDS = "the cat sat on the mat".split()
HELD = torch.tensor([[1.0, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [0.5, 0.5, 1, 0, 0, 0],
                     [0.5, 0.5, 0, 1, 0, 0], [0.5, 0.5, 0, 0, 1, 0], [0.2, 0.8, 0, 0, 0, 1]])
POOLING = torch.tensor([[0.2, 0.8, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1.0]])
WEIGHTS = HELD / HELD.sum(-1, keepdim=True)


def test_holdings_show_what_is_raw_what_is_pooled_and_no_future():
    figure = caches.holdings({"pooled": HELD, "raw": HELD == 1})
    titles = [axes.get_title(loc="left") + axes.get_title() for axes in figure.axes]
    assert titles == ["pooled", "raw"]
    raw, pooled = figure.axes[0].collections
    past = torch.ones(6, 6).tril().bool().numpy()
    assert (raw.get_array().reshape(6, 6).filled(0) == (HELD == 1).numpy()).all()
    assert (raw.get_array().reshape(6, 6).mask == ~past).all(), "the future stays white"
    shown = pooled.get_array().reshape(6, 6)
    assert (~shown.mask == ((HELD > 0) & (HELD < 1)).numpy()).all()
    assert len(figure.axes[1].collections) == 1, "nothing is pooled there"
    words = [text.get_text().partition(",")[0] for text in figure.legends[0].get_texts()]
    assert words == ["raw", "not read", "pooled"]
    raw_only = caches.holdings({"raw": HELD == 1})
    assert [text.get_text() for text in raw_only.legends[0].get_texts()] == ["raw", "not read"]
    check_png(figure)


def test_kept_and_forgotten_has_a_line_for_each_mechanism():
    figure = caches.kept_and_forgotten({"a": HELD[3], "b": HELD[5]}, WEIGHTS[5], tokens=WORDS)
    top, axes = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert [bar.get_height() for bar in top.patches] == pytest.approx(WEIGHTS[5].tolist())
    check_png(figure)


def test_remembrance_draws_what_is_left_and_marks_the_half_life():
    figure = remembrance({"steady": torch.tensor([1.0, 0.5, 0.25]), "dropped": [1.0, 1.0, 0.0]},
                         half_life={"steady": 1.0})
    steady, mark, dropped = figure.axes[0].lines
    assert steady.get_ydata().tolist() == [1, 0.5, 0.25] and list(dropped.get_xdata()) == [0, 1]
    assert list(mark.get_xdata()) == [1.0, 1.0] and figure.axes[0].get_yscale() == "log"


THREE = ["the", "cat", "sat"]
ENTRIES = [torch.eye(3)[:1], torch.eye(3)[:2], torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])]


def test_entries_held_draws_a_cell_for_each_entry_after_each_token():
    axes = entries_held({"pairs": ENTRIES}, tokens=THREE, waiting={"pairs": [(), (), (0,)]}).axes[0]
    cells = {text.get_position(): text.get_text() for text in axes.texts}
    assert cells == {(0.5, 0.5): "the", (0.5, 1.5): "the", (1.5, 1.5): "cat", (0.5, 2.5): "the cat",
                     (1.5, 2.5): "sat"}
    colours = [to_hex(patch.get_facecolor()).upper() for patch in axes.patches]
    assert colours == [RAW, RAW, RAW, CORE, RAW]
    assert [patch.get_alpha() for patch in axes.patches] == [1, 1, 1, 0.35, 1]
    assert [label.get_text() for label in axes.get_yticklabels()] == THREE


def test_against_context_draws_lines_and_dots_and_names_them():
    figure = against_context([64, 128], {"full": [1, 2], "small": [1, 1]}, ylabel="KiB",
                             measured={"full": {64: 1.0}})
    axes = figure.axes[0]
    line, dot, flat, none = axes.lines
    assert list(line.get_ydata()) == [1, 2] and list(flat.get_ydata()) == [1, 1]
    assert list(dot.get_xdata()) == [64] and not list(none.get_xdata())
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    names = {text.get_text(): text.get_color() for text in axes.texts}
    assert names == {"full": OF_MECHANISM["full"], "small": SERIES[0]}
    heights = {text.get_text(): text.xy[1] for text in axes.texts}
    assert heights["full"] > heights["small"]


def test_given_colours_are_the_colours_of_lines_names_and_panels():
    given = {str(n): f"#0000{n:02}" for n in range(8)}
    series = {name: [1.0 + int(name), 2.0] for name in reversed(given)}
    axes = against_context([64, 128], series, ylabel="KiB", colours=given).axes[0]
    assert [to_hex(line.get_color()) for line in axes.lines[::2]] == list(reversed(given.values()))
    assert all(text.get_color() == given[text.get_text()] for text in axes.texts)
    panels = token_times(series, colours=given).axes
    bars = [to_hex(panel.patches[0].get_facecolor()) for panel in panels]
    assert bars == list(reversed(given.values()))


REFUSED = [
    (caches.holdings, {"held": {"a": HELD[None]}}, "pass one head"),
    (caches.holdings, {"held": {"a": HELD, "b": HELD[:5, :5]}}, "pass one head"),
    (caches.kept_and_forgotten, {"rows": {"a": HELD[3, :4]}, "weights": WEIGHTS[5],
                                 "tokens": WORDS}, "wanted (1, L)"),
    (remembrance, {"curves": {"a": [1.0]}, "half_life": {"b": 1.0}}, "half_life: got"),
    (entries_held, {"caches": {"two": ENTRIES[:2]}, "tokens": THREE}, "cache 'two': got"),
    (entries_held, {"caches": {"low": [torch.eye(2)] * 3}, "tokens": THREE}, "cache 'low': got"),
    (token_times, {"milliseconds": {}}, "got 0 names"),
    *((against_context, {"lengths": [64, 128], "ylabel": "KiB", **options}, message)
      for options, message in [
          ({"series": {"full": [1, 2]}, "colours": {"cca": "red"}}, "got none for ['full']"),
          ({"series": {"full": [1]}}, "series 'full': got 1 values for 2"),
          ({"series": {str(n): [1, 2] for n in range(7)}}, "series: got 7 names"),
          ({"series": {"full": [1, 2]}, "measured": {"other": {64: 1}}}, "measured: got")])]


@pytest.mark.parametrize("draw, options, message", REFUSED)
def test_what_does_not_fit_is_refused(draw, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        draw(**options)


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
    heights = [[bar.get_height() for bar in axes.patches] for axes in figure.axes]
    assert heights == [[1, 2], [0.5, 4]]
