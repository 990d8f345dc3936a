"""What each row reads, row after row: the explorer's view of random queries and keys, to be played.

The view needs no program and no widget, so it moves in a stored notebook and on the site too.
"""

import hashlib
import html
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from matplotlib.figure import Figure

from cca_lab.mechanisms import Mechanism
from cca_lab.settings import check_integers
from cca_lab.views.explorer.explorer import Explorer, png
from cca_lab.views.explorer.reading import Tensors
from cca_lab.views.scripts import VIEW_FILES, VIEW_STYLE, inline_json, joined

MOST = 128  # tokens


class Moving:
    """What each row of a mechanism reads; the last value of a cell shows it."""

    def __init__(self, explorer: Explorer) -> None:
        self.explorer = explorer

    def figure(self) -> Figure:
        """Return a picture of the last row."""
        return self.explorer.figure()

    def html(self, picture: str) -> str:
        """Return the view as HTML: a script puts it in the place of a picture (PNG in base64)."""
        state = self.explorer.state(overview=False, rows=True)
        assert state.rows is not None
        data = inline_json(replace(state, row=state.rows[0]).to_json())
        name = hashlib.sha256(data.encode()).hexdigest()[:12]  # the same each time a cell is run
        return (f"<style>{VIEW_STYLE.read_text(encoding='utf-8')}</style>\n"
                f'<div data-moving="{name}"><img alt="{html.escape(repr(self))}" '
                f'src="data:image/png;base64,{picture}"></div>\n'
                f"<script>(() => {{\n{joined(VIEW_FILES)}\nconst data = {data};\n"
                f"for (const place of document.querySelectorAll('[data-moving=\"{name}\"]')) "
                "{ place.replaceChildren(); render(place, data); }\n})();</script>")

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Return the view with its picture, and a text."""
        return {"text/html": self.html(png(self.figure())), "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"Moving({self.explorer.mechanism}; {len(self.explorer.source.words)} rows)"


def moving(mechanism: Mechanism, length: int = 16, *, words: Sequence[str] = (),
           seed: int = 0) -> Moving:
    """Show, row after row, which tokens a mechanism reads raw, pooled and not at all.

    Args:
        mechanism: such as CCA(group=2, window=2).
        length: of a text of random queries and keys, by `seed`; at most 128.
        words: (length,) texts of the tokens; their numbers by default.

    Raises:
        ValueError: for a length that is not there or as many words as do not fit.
    """
    length = len(words) or length
    check_integers(1, length=length)
    if length > MOST:
        raise ValueError(f"length: got {length}, wanted at most {MOST}; show fewer tokens")
    generator = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, 1, 1, length, 8, dtype=torch.float64, generator=generator)
    return Moving(Explorer(Tensors(q, k, words=tuple(words)), mechanism.name, mechanism.options()))
