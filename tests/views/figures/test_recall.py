"""The heat map of needles: every share in its cell, and what does not fit is refused."""

import numpy as np
import pytest

from cca_lab.views.figures.recall import found_by_depth

SHARES = np.array([[1.0, 0.5, 0.0], [0.25, 0.75, 0.1]])


def test_each_share_stands_at_its_depth_and_length():
    axes = found_by_depth(SHARES, depths=[0.0, 1.0], lengths=[64, 128, 256], title="full").axes[0]
    np.testing.assert_allclose(axes.collections[0].get_array().reshape(2, 3), 100 * SHARES)
    assert [text.get_text() for text in axes.texts] == ["100", "50", "0", "25", "75", "10"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["64", "128", "256"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0 %", "100 %"]
    # the beginning of the prompt is on top
    top = axes.transData.transform([(0.5, 0.5), (0.5, 1.5)])
    assert top[0, 1] > top[1, 1] and axes.get_title(loc="left") == "full"
    assert axes.collections[0].get_clim() == (0, 100)


def test_many_cells_have_colours_alone():
    (axes, _) = found_by_depth(np.ones((30, 2)), depths=np.linspace(0, 1, 30), lengths=[1, 2]).axes
    assert not axes.texts


@pytest.mark.parametrize("shares, told", [
    (SHARES.T, "got shape (3, 2), wanted (2, 3)"), (100 * SHARES, "wanted 0 to 1"),
    (SHARES * np.nan, "wanted 0 to 1")])
def test_what_does_not_fit_is_refused(shares, told):
    with pytest.raises(ValueError) as error:
        found_by_depth(shares, depths=[0.0, 1.0], lengths=[64, 128, 256])
    assert told in str(error.value)
