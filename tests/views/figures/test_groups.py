"""The figures of DGA: what is drawn is what was given."""

import io

import matplotlib.pyplot as plt
import numpy as np
import pytest

from cca_lab.mechanisms.dga import FocalRule, row_reads
from cca_lab.views.figures import groups
from cca_lab.views.figures.style import CORE, RAW

WORDS = "Ada came home and then Ben slept".split()
FOCAL, GROUPS = [0, 2, 5], [[1, 3], [4, 6]]
READS = [row_reads(i, FOCAL, GROUPS, FocalRule(group=2, gamma=0.0)) for i in range(7)]


def check_png(figure) -> None:
    png = io.BytesIO()
    figure.savefig(png, bbox_inches="tight")
    assert len(png.getvalue()) < 100_000 and plt.get_fignums() == []


def test_division_draws_each_token_once_and_names_each_column(recwarn):
    figure = groups.division(WORDS, range(7), FOCAL, GROUPS, title="a")
    bars, drawing = figure.axes
    assert [bar.get_height() for bar in bars.patches] == list(range(7))
    blue = [t for t, bar in enumerate(bars.patches) if bar.get_facecolor()
            == plt.matplotlib.colors.to_rgba(RAW)]
    assert blue == FOCAL and CORE != RAW
    assert [text.get_text() for text in drawing.texts] == ["Ada", "home", "Ben", "came and",
                                                           "then slept", *WORDS]
    assert len(drawing.lines) == 7
    check_png(figure)
    assert not recwarn.list


@pytest.mark.parametrize("wrong", [([0], GROUPS), (FOCAL, [[1, 3], [4, 6], [0, 2]])])
def test_division_wants_each_token_in_one_place(wrong):
    with pytest.raises(ValueError, match="exactly one"):
        groups.division(WORDS, range(7), *wrong)


def test_reading_draws_how_each_row_reads_each_token(recwarn):
    kinds = groups.kinds_of(READS, GROUPS)
    assert kinds[4].tolist() == [groups.FOCAL, groups.POOLED, groups.FOCAL, groups.POOLED,
                                 groups.OPEN, groups.UNREAD, groups.UNREAD]
    assert np.array_equal(kinds != groups.UNREAD, np.tri(7, dtype=bool))
    figure = groups.reading(kinds, tokens=WORDS)
    assert np.array_equal(np.asarray(figure.axes[0].collections[0].get_array()).reshape(7, 7),
                          kinds)
    check_png(figure)
    assert not recwarn.list
