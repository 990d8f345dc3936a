"""The figures of a memory show the numbers they are given."""

import pytest
import torch

from cca_lab.views.figures.caches import columns_held, remembrance


def test_remembrance_draws_what_is_left_and_marks_the_half_life():
    figure = remembrance({"steady": torch.tensor([1.0, 0.5, 0.25]), "dropped": [1.0, 1.0, 0.0]},
                         half_life={"steady": 1.0})
    steady, mark, dropped = figure.axes[0].lines
    assert steady.get_ydata().tolist() == [1, 0.5, 0.25] and list(dropped.get_xdata()) == [0, 1]
    assert list(mark.get_xdata()) == [1.0, 1.0] and figure.axes[0].get_yscale() == "log"
    with pytest.raises(ValueError, match="half_life: got"):
        remembrance({"steady": [1.0]}, half_life={"other": 1.0})


def test_columns_held_draws_every_count():
    figure = columns_held({"eager": [1, 2, 2], "lazy": [1, 2, 3]}, title="held")
    assert [line.get_ydata().tolist() for line in figure.axes[0].lines] == [[1, 2, 2], [1, 2, 3]]
    assert [line.get_xdata().tolist() for line in figure.axes[0].lines] == [[1, 2, 3]] * 2
    assert figure.axes[0].get_title(loc="left") == "held"
