"""What every test of a figure asks: nothing stays on pyplot's list, and pictures are small."""

import io

import matplotlib.pyplot as plt
import pytest
from matplotlib.figure import Figure


@pytest.fixture(autouse=True)
def no_figure_stays_open():
    plt.close("all")  # what another file's test left open is not ours
    yield
    assert plt.get_fignums() == []


def check_png(figure: Figure) -> None:
    """Check that a figure is drawn, and small enough for a notebook."""
    png = io.BytesIO()
    figure.savefig(png, bbox_inches="tight")
    assert 0 < len(png.getvalue()) < 100_000
