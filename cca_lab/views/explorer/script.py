"""The explorer's JavaScript as one text: for anywidget, which takes one module, and for a page without a network."""

from functools import cache
from pathlib import Path

from cca_lab.views.page.bundle import bundle

MODULES = Path(__file__).parent / "js"


@cache
def script(entry: str) -> str:
    """Return a module and all that it imports as one script, in which `modules["view.js"]` holds the view's exports.

    Args:
        entry: a file of `js/`, such as "view.js".
    """
    return bundle(MODULES / entry)


def widget_module() -> str:
    """Return the widget as one ES module, whose default export is what anywidget asks for."""
    return f'{script("widget.js")}\nexport default {{ render: modules["widget.js"].render }};\n'


@cache
def style() -> str:
    """Return the style sheet."""
    return (MODULES.parent / "view.css").read_text(encoding="utf-8")
