"""The explorer: one view, for every mechanism, of what a head reads; a widget, page or figure.

    from cca_lab.views.explorer import explore

    explore("data/models/gpt2-mini", attention="cca", group=8, window=16)

`state` is what is shown, `reading` computes it with the package's own functions, `js/view.js`
draws it.
"""

from cca_lab.views.explorer.explorer import Explorer, explore

__all__ = ["Explorer", "explore"]
