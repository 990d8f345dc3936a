"""The figures of the baselines.

What is drawn is what was given, and what does not fit is refused.
"""

import io

import pytest
import torch
from matplotlib.figure import Figure

from cca_lab.views.figures import caches

WORDS = "the cat sat on the mat".split()
HELD = torch.tensor([[1.0, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [0.5, 0.5, 1, 0, 0, 0],
                     [0.5, 0.5, 0, 1, 0, 0], [0.5, 0.5, 0, 0, 1, 0], [0.2, 0.8, 0, 0, 0, 1]])
POOLING = torch.tensor([[0.2, 0.8, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1.0]])
WEIGHTS = HELD / HELD.sum(-1, keepdim=True)


def png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def test_holdings_show_what_is_raw_what_is_pooled_and_no_future():
    figure = caches.holdings({"pooled": HELD, "raw": HELD == 1})
    assert [axes.get_title(loc="left") + axes.get_title() for axes in figure.axes] == ["pooled",
                                                                                       "raw"]
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
    assert len(png(figure)) < 150_000


def test_last_columns_have_a_line_each_and_the_words_below():
    figure = caches.last_columns({"pooled": POOLING, "raw": torch.eye(6)[4:]}, tokens=WORDS)
    assert [axes.get_title(loc="left") + axes.get_title()
            for axes in figure.axes] == ["pooled: 2 columns", "raw: 2 columns"]
    raw, pooled = figure.axes[0].collections
    assert (raw.get_array().reshape(2, 6).filled(0) == (POOLING == 1).numpy()).all()
    assert (~pooled.get_array().reshape(2, 6).mask == ((POOLING > 0) & (POOLING < 1)).numpy()).all()
    assert [label.get_text() for label in figure.axes[1].get_xticklabels()] == WORDS
    assert len(png(figure)) < 150_000


def test_kept_and_forgotten_has_a_line_for_each_mechanism():
    figure = caches.kept_and_forgotten({"a": HELD[3], "b": HELD[5]}, WEIGHTS[5], tokens=WORDS)
    top, axes = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert [bar.get_height() for bar in top.patches] == pytest.approx(WEIGHTS[5].tolist())
    assert len(png(figure)) < 150_000


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="pass one head"):
        caches.holdings({"a": HELD[None]})
    with pytest.raises(ValueError, match="pass one head"):
        caches.holdings({"a": HELD, "b": HELD[:5, :5]})
    with pytest.raises(ValueError, match="wanted \\(N, 6\\)"):
        caches.last_columns({"a": POOLING[:, :4]}, tokens=WORDS)
    with pytest.raises(ValueError, match="wanted \\(1, L\\)"):
        caches.kept_and_forgotten({"a": HELD[3, :4]}, WEIGHTS[5], tokens=WORDS)
