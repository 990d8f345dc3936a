"""How an explorer shows itself in a notebook: the widget where one runs, and a picture for all other readers."""

import base64
import io
import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cca_lab.views.explorer.explorer import Explorer

SWITCH = "CCA_LAB_WIDGETS"  # "0": pictures instead of widgets, where notebooks are run to be stored


def mimebundle(explorer: "Explorer") -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a notebook stores: a text, a picture with its description, and the widget if one runs.

    A program that knows no widgets, such as GitHub's page of a notebook, takes the picture.
    """
    figure, buffer = explorer.figure(), io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    data: dict[str, Any] = {}
    if widgets_run():
        data |= explorer.widget()._repr_mimebundle_()[0]
    data |= {"text/plain": repr(explorer), "image/png": base64.b64encode(buffer.getvalue()).decode("ascii")}
    described: Any = figure._repr_mimebundle_  # type: ignore[attr-defined]  # set by figures.style
    return data, described()[1]


def widgets_run() -> bool:
    """Return whether this is a Jupyter kernel with anywidget in which widgets are not switched off."""
    if os.environ.get(SWITCH) == "0" or find_spec("anywidget") is None or find_spec("IPython") is None:
        return False
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None
