"""The explorer: a model and a text, and what one head reads of it under any mechanism."""

import base64
import html
import io
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cca_lab.attention import statistics
from cca_lab.mechanisms import LoCoCo, Mechanism, class_of, mechanism_of
from cca_lab.views.explorer.options import settings_of, sliders, starting_options, titles
from cca_lab.views.explorer.reading import Reading, Source
from cca_lab.views.explorer.state import Head, State, Totals, head_maps, overview, thumbnails
from cca_lab.views.scripts import VIEW_FILES, VIEW_STYLE, allowed, inline_json, joined

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SWITCH = "CCA_LAB_WIDGETS"  # "0": pictures instead of widgets, where notebooks are run to be stored

TEXT = '''def average(numbers):
    """Return the arithmetic mean of a list of numbers."""
    if not numbers:
        raise ValueError("average of an empty list")
    total = 0
    for number in numbers:
        total += number
    return total / len(numbers)


def spread(numbers):
    """Return the mean distance of the numbers from their average."""
    middle = average(numbers)
    distances = [abs(number - middle) for number in numbers]
    return average(distances)
'''
UNTRAINED = ("LoCoCo without a trained convolution: each slot that mixes is the plain mean of what "
             "it could mix")
START = ('render(document.getElementById("explorer"), '
         'JSON.parse(document.getElementById("state").textContent));')
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; {policy}; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ margin: 0; background: light-dark(#ffffff, #14171b); }}
{style}
</style>
</head>
<body>
{above}<div id="explorer"></div>
<script type="application/json" id="state">{state}</script>
<script>{script}</script>
</body>
</html>
"""


class Explorer:
    """One head of one layer, and what its rows read under a mechanism; notebooks show it.

    Args:
        source: where queries and keys come from.
        attention: the mechanism's name.
        options: its options; those left out are its defaults, sizes in proportion to the text.
        layer, head: counted from 0.
        query: the token whose row is shown; the last one by default.

    Raises:
        ValueError: for a mechanism, an option, a layer, a head or a query that is not there.
    """

    def __init__(self, source: Source, attention: str = "cca",
                 options: dict[str, Any] | None = None, *, layer: int = 0, head: int = 0,
                 query: int | None = None) -> None:
        self.source = source
        self._options: dict[str, dict[str, Any]] = {}  # of each mechanism that was shown
        self._reading: tuple[Any, Reading] | None = None
        self._overview: tuple[Any, dict[str, Any]] | None = None
        # by layer: queries, and full attention's weights for them
        self._full: dict[int, tuple[Tensor, Tensor]] = {}
        self._widget: Any = None
        self.listeners: list[Callable[[], None]] = []  # called after each change
        self.layer, self.head = layer, head
        self.query = len(source.words) - 1
        self.mechanism: Mechanism = mechanism_of("full", {})
        self.change(attention=attention, options=options or {}, query=query)

    # ------------------------------------------------------------ changes

    def change(self, *, attention: str | None = None, options: dict[str, Any] | None = None,
               layer: int | None = None, head: int | None = None,
               query: int | None = None) -> None:
        """Change what is shown; after a ValueError everything is as before.

        A mechanism begins with the options that it had when it was last shown.
        """
        source = self.source
        name = self.mechanism.name if attention is None else class_of(attention, "attention").name
        if attention is None and not options:
            mechanism = self.mechanism
        else:
            known = self._options.get(name) or starting_options(name, len(source.words))
            mechanism = mechanism_of(name, {**known, **(options or {})})
        chosen = {"layer": (layer, self.layer, source.layers),
                  "head": (head, self.head, source.heads),
                  "query": (query, self.query, len(source.words))}
        new = {what: old if given is None else given for what, (given, old, _) in chosen.items()}
        for what, (_, _, count) in chosen.items():
            if not 0 <= new[what] < count:
                raise ValueError(f"{what}: got {new[what]}, wanted 0 to {count - 1}; choose "
                                 "another number")
        self._reading = self._read(mechanism, new["layer"])
        self.mechanism = mechanism
        self.layer, self.head, self.query = new["layer"], new["head"], new["query"]
        self._options[name] = {option: getattr(mechanism, option)
                               for option in mechanism.option_names()}
        for listener in self.listeners:
            listener()

    def _read(self, mechanism: Mechanism, layer: int) -> tuple[Any, Reading]:
        """Return a layer's reading and its key, the present one where nothing differs."""
        key = (repr(mechanism), layer)
        if self._reading is not None and self._reading[0] == key:
            return self._reading
        given = self.source.inputs(layer, mechanism)
        # full attention's weights do not depend on the mechanism, only on q and k
        known = self._full.get(layer)
        full = known[1] if known is not None and known[0] is given.q else None
        reading = Reading(mechanism.at_layer(layer), given, full)
        self._full[layer] = given.q, reading.full
        return key, reading

    # ------------------------------------------------------------ what is shown

    @property
    def reading(self) -> Reading:
        """The reading of the present layer."""
        assert self._reading is not None
        return self._reading[1]

    def state(self, *, overview: bool = True, rows: bool = False) -> State:
        """Return all that the view draws.

        `overview` includes thumbnails of all heads, which reads every layer; `rows` the rows of all
        queries, for a page without a program.
        """
        reading, head, shown = self.reading, self.head, self.mechanism
        attention = {"name": shown.name, "title": shown.title, "settings": settings_of(shown)}
        shown_head = Head(self.source.name, self.layer, head, self.source.layers, self.source.heads)
        every_row = tuple(reading.row(head, query) for query in range(len(self.source.words))
                          ) if rows else None
        return State(self.source.words, attention, reading.columns(head),
                     reading.row(head, self.query), self.totals(),
                     shown_head if self.source.name else None,
                     head_maps(reading.effective[head], reading.full[head]),
                     self.overview() if overview else None, every_row, self.remark())

    def remark(self) -> str:
        """Return what a reader has to know about what is shown; "" for most mechanisms."""
        mixes = isinstance(self.mechanism, LoCoCo) and self.mechanism.convolved > 0
        return UNTRAINED if mixes and self.reading.given.module is None else ""

    def totals(self) -> Totals:
        """Return pairs and cache of the whole text."""
        length, mechanism = len(self.source.words), self.mechanism
        try:
            entries = length if mechanism.name == "full" else mechanism.cache_entries(length)
        except ValueError:  # it depends on how the text is cut into calls
            entries = None
        return Totals(self.reading.pairs(self.head), length * (length + 1) // 2, entries, length,
                      *self.source.cache_bytes(mechanism))

    @torch.no_grad()
    def overview(self) -> dict[str, Any]:
        """Return thumbnails and mean distances from full attention of all heads, as JSON values."""
        key = repr(self.mechanism)
        if self._overview is None or self._overview[0] != key:
            small, distances = [], []
            for layer in range(self.source.layers):
                reading = self._read(self.mechanism, layer)[1]
                small.append(thumbnails(reading.effective))
                distances.append(1 - statistics.overlap(reading.effective, reading.full).mean(-1))
            self._overview = key, overview(torch.stack(small), torch.stack(distances))
        return self._overview[1]

    def form(self) -> dict[str, Any]:
        """Return what the widget's controls show, as JSON values."""
        return {"mechanisms": titles(), "attention": self.mechanism.name,
                "options": sliders(self.mechanism, len(self.source.words)), "layer": self.layer,
                "head": self.head, "layers": self.source.layers, "heads": self.source.heads,
                "error": ""}

    # ------------------------------------------------------------ how it is shown

    def figure(self) -> "Figure":
        """Return a static picture: the text, the columns and the numbers."""
        from cca_lab.views.explorer.figure import figure

        return figure(self.state(overview=False))

    def page(self, above: str = "") -> str:
        """Return a page of HTML that needs no program: the query moves, head and mechanism stay.

        `above` is HTML, such as a heading.
        """
        state = self.state(overview=False, rows=True)  # a grid of heads would be of no use
        script = f"{joined(VIEW_FILES)}\n{START}\n"
        return PAGE.format(policy=allowed(script), title=html.escape(state.attention["title"]),
                           style=VIEW_STYLE.read_text(encoding="utf-8"), script=script,
                           state=inline_json(state.to_json()), above=above)

    def save(self, path: str | Path, above: str = "") -> None:
        """Write `page(above)` to a file; one that is there is replaced."""
        from cca_lab.files import check_file, replacing

        check_file(Path(path))
        with replacing(Path(path)) as temporary:
            temporary.write_text(self.page(above), encoding="utf-8")

    def widget(self) -> Any:
        """Return the widget, always the same; ModuleNotFoundError without anywidget."""
        if self._widget is None:
            from cca_lab.views.explorer.widget import ExplorerWidget

            self._widget = ExplorerWidget(self)
        return self._widget

    def __repr__(self) -> str:
        model = f"{self.source.name}, layer {self.layer}, " if self.source.name else ""
        return (f"Explorer({self.mechanism} on {len(self.source.words)} tokens; "
                f"{model}head {self.head}; query {self.query})")

    def _repr_mimebundle_(self, include: Any = None,
                          exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a text, a described picture, which GitHub shows, and the widget if one runs."""
        figure = self.figure()
        data = self.widget()._repr_mimebundle_()[0] if widgets_run() else {}
        data |= {"text/plain": repr(self), "image/png": png(figure)}
        described: Any = figure._repr_mimebundle_  # type: ignore[attr-defined]  # figures.style
        return data, described()[1]


def explore(model: Any = "gpt2-mini", text: str | Tensor = TEXT, *, attention: str | None = None,
            layer: int = 0, head: int = 0, query: int | None = None, tokenizer: Any = None,
            **options: Any) -> Explorer:
    """Show what the heads of a model read of a text under any mechanism.

    Args:
        model: a shipped model's name, a folder, or a model of transformers (with its `tokenizer`).
        text: a text, or token ids (L,).
        attention: the mechanism's name; by default that of a swapped model, else "cca".
        layer, head, query: as in `Explorer`.
        tokenizer: of a model that is given as an object.
        options: of the mechanism, such as group=8, window=16.

    Returns:
        An `Explorer`: the last value of a cell shows it.

    Raises:
        ValueError: as `Explorer`, or for a model or text that cannot be read.
    """
    from cca_lab.models import attention_of
    from cca_lab.views.explorer.listening import ModelText, opened

    model, tokenizer, name = opened(model, tokenizer)
    source = ModelText(model, tokenizer, text, name)
    current = attention_of(source.model)
    if attention is None and current.name != "full":
        attention, options = current.name, {**current.options(), **options}
    return Explorer(source, attention or "cca", options, layer=layer, head=head, query=query)


def png(figure: "Figure") -> str:
    """Return a figure as PNG in base64."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def widgets_run() -> bool:
    """Return whether this is a Jupyter kernel with anywidget, and widgets are not switched off."""
    if os.environ.get(SWITCH) == "0" or not (find_spec("anywidget") and find_spec("IPython")):
        return False
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None
