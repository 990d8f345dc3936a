"""The figures of the baselines: what is drawn is what was given, and what does not fit is refused."""

import io

import pytest
import torch
from matplotlib.figure import Figure

from cca_lab.figures import baselines

WORDS = "the cat sat on the mat".split()
HELD = torch.tensor([[1.0, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [0.5, 0.5, 1, 0, 0, 0], [0.5, 0.5, 0, 1, 0, 0],
                     [0.5, 0.5, 0, 0, 1, 0], [0.2, 0.8, 0, 0, 0, 1]])
POOLING = torch.tensor([[0.2, 0.8, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1.0]])
WEIGHTS = HELD / HELD.sum(-1, keepdim=True)


def png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def test_three_views_show_columns_rows_and_weights():
    figure = baselines.three_views(POOLING, HELD, WEIGHTS, tokens=WORDS, title="pooled")
    assert len(figure.axes) == 3
    assert "columns of the last row: 2" in figure.axes[0].get_title(loc="left") + figure.axes[0].get_title()
    assert [label.get_text() for label in figure.axes[1].get_yticklabels()] == WORDS
    raw, pooled = figure.axes[1].collections
    past = torch.ones(6, 6).tril().bool().numpy()
    assert (raw.get_array().reshape(6, 6).filled(0) == (HELD == 1).numpy()).all()
    assert (raw.get_array().reshape(6, 6).mask == ~past).all(), "the future stays white"
    shown = pooled.get_array().reshape(6, 6)
    assert (~shown.mask == ((HELD > 0) & (HELD < 1)).numpy()).all()
    assert len(png(figure)) < 150_000


def test_kept_and_forgotten_has_a_line_for_each_mechanism():
    figure = baselines.kept_and_forgotten({"a": HELD[3], "b": HELD[5]}, WEIGHTS[5], tokens=WORDS)
    top, axes = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert [bar.get_height() for bar in top.patches] == pytest.approx(WEIGHTS[5].tolist())
    assert len(png(figure)) < 150_000


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="pass one head"):
        baselines.three_views(POOLING, HELD[None], WEIGHTS, tokens=WORDS)
    with pytest.raises(ValueError, match="wanted \\(1, L\\)"):
        baselines.kept_and_forgotten({"a": HELD[3, :4]}, WEIGHTS[5], tokens=WORDS)
