"""The explorer: a model and a text, and what one head reads of it under any mechanism."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cca_lab.attention import statistics as analysis
from cca_lab.mechanisms import LoCoCo, Mechanism, class_of, mechanism_of
from cca_lab.settings import check_sizes
from cca_lab.views.explorer import maps
from cca_lab.views.explorer.inputs import Source
from cca_lab.views.explorer.options import controls, settings_of, starting_options, titles
from cca_lab.views.explorer.reading import Reading
from cca_lab.views.explorer.state import Place, State, Totals

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cca_lab.views.explorer.library import Library

UNTRAINED = "LoCoCo without a trained convolution: each slot that mixes is the plain mean of what it could mix"


class Explorer:
    """One head of one layer, and what its rows read under a mechanism. In a notebook it shows itself.

    Args:
        source: where queries and keys come from.
        attention: the mechanism's name.
        options: its options; those left out are its defaults, sizes in proportion to the text.
        layer, head: counted from 0.
        query: the token whose row is shown; the last one by default.
        everywhere: whether the queries and keys are those of the model with this mechanism in every layer;
            otherwise the model attends as it is.
        library: opens another model or text; None if there is no other.

    Raises:
        ValueError: for a mechanism, an option, a layer, a head or a query that is not there.
    """

    def __init__(self, source: Source, attention: str = "cca", options: dict[str, Any] | None = None, *, layer: int = 0,
                 head: int = 0, query: int | None = None, everywhere: bool = False,
                 library: "Library | None" = None) -> None:
        self.source, self.library = source, library
        self._options: dict[str, dict[str, Any]] = {}  # of each mechanism that was shown
        self._reading: tuple[Any, Reading] | None = None
        self._overview: tuple[Any, dict[str, Any]] | None = None
        self._full: dict[int, tuple[Tensor, Tensor]] = {}  # by layer: queries, and full attention's weights for them
        self._widget: Any = None
        self.listeners: list[Callable[[], None]] = []  # called after each change
        self.layer, self.head, self.everywhere, self.query = layer, head, everywhere, len(source.words) - 1
        self.mechanism: Mechanism = mechanism_of("full", {})
        self.change(attention=attention, options=options or {}, query=query)

    # ------------------------------------------------------------ changes

    def change(self, *, attention: str | None = None, options: dict[str, Any] | None = None, layer: int | None = None,
               head: int | None = None, query: int | None = None, everywhere: bool | None = None,
               model: str | None = None, text: str | None = None) -> None:
        """Change what is shown; after a ValueError everything is as before.

        Args:
            attention: a mechanism's name; it begins with the options that it had when it was last shown.
            options: new values of some options.
            layer, head, query, everywhere: as in the class.
            model, text: what the library opens; the last token then becomes the query.
        """
        source = self.source
        if model is not None or text is not None:
            if self.library is None:
                raise ValueError("model, text: there is no other to open here; use explore(model, text)")
            source = self.library.open(model, text)
            layer, head = (min(old if new is None else new, count - 1) for old, new, count in (
                (self.layer, layer, source.layers), (self.head, head, source.heads)))
            query = len(source.words) - 1 if query is None else query
        name = self.mechanism.name if attention is None else class_of(attention, "attention").name
        if attention is None and not options:
            mechanism = self.mechanism
        else:
            known = self._options.get(name) or starting_options(name, len(source.words))
            mechanism = mechanism_of(name, {**known, **(options or {})})
        chosen = {"layer": (layer, self.layer, source.layers), "head": (head, self.head, source.heads),
                  "query": (query, self.query, len(source.words))}
        new = {what: old if given is None else given for what, (given, old, _) in chosen.items()}
        check_sizes(**{what: (new[what], 0, count - 1) for what, (_, _, count) in chosen.items()})
        everywhere = self.everywhere if everywhere is None else bool(everywhere)
        reading = self._read(source, mechanism, new["layer"], everywhere)
        self.source, self.mechanism, self.everywhere, self._reading = source, mechanism, everywhere, reading
        self.layer, self.head, self.query = new["layer"], new["head"], new["query"]
        self._options[name] = {option: getattr(mechanism, option) for option in mechanism.option_names()}
        for listener in self.listeners:
            listener()

    def _read(self, source: Source, mechanism: Mechanism, layer: int, everywhere: bool) -> tuple[Any, Reading]:
        """Return a layer's reading and its key, the present one where nothing differs."""
        key = (source, repr(mechanism), layer, everywhere)
        if self._reading is not None and self._reading[0] == key:
            return self._reading
        given = source.inputs(layer, mechanism, everywhere)
        known = self._full.get(layer)  # full attention's weights do not depend on the mechanism, only on q and k
        reading = Reading(mechanism, given, known[1] if known is not None and known[0] is given.q else None)
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

        Args:
            overview: whether to compute the thumbnails of all heads, which reads every layer.
            rows: whether to include the rows of all queries, for a page without a program.
        """
        reading, head, length, shown = self.reading, self.head, len(self.source.words), self.mechanism
        attention = {"name": shown.name, "title": shown.title, "settings": settings_of(shown)}
        place = Place(self.source.name, self.layer, head, self.source.layers, self.source.heads)
        return State(self.source.words, attention, reading.columns(head), reading.row(head, self.query), self.totals(),
                     place if self.source.name else None, maps.head_maps(reading.effective[head], reading.full[head]),
                     self.overview() if overview else None,
                     tuple(reading.row(head, query) for query in range(length)) if rows else None,
                     self.remark())

    def remark(self) -> str:
        """Return what a reader has to know about what is shown; "" for most mechanisms."""
        mechanism = self.mechanism
        untrained = isinstance(mechanism, LoCoCo) and mechanism.convolved > 0 and self.reading.given.module is None
        return UNTRAINED if untrained else ""

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
        """Return thumbnails of every head, and each head's mean distance from full attention, as JSON values."""
        key = (self.source, repr(self.mechanism), self.everywhere)
        if self._overview is None or self._overview[0] != key:
            small, distances = [], []
            for layer in range(self.source.layers):
                one = self._read(self.source, self.mechanism, layer, self.everywhere)[1]
                small.append(maps.thumbnails(one.effective))
                distances.append(1 - analysis.overlap(one.effective, one.full).mean(-1))
            self._overview = key, maps.overview(torch.stack(small), torch.stack(distances))
        return self._overview[1]

    def form(self) -> dict[str, Any]:
        """Return what the widget's controls show, as JSON values."""
        library = self.library
        return {"mechanisms": titles(), "attention": self.mechanism.name,
                "options": controls(self.mechanism, len(self.source.words)), "layer": self.layer, "head": self.head,
                "layers": self.source.layers, "heads": self.source.heads, "everywhere": self.everywhere,
                "models": [] if library is None else library.names, "model": "" if library is None else library.name,
                "text": None if library is None else library.text, "error": ""}

    # ------------------------------------------------------------ how it is shown

    def figure(self) -> "Figure":
        """Return a static picture: the text, the columns and the numbers."""
        from cca_lab.views.explorer.figure import figure

        return figure(self.state(overview=False))

    def page(self) -> str:
        """Return a page of HTML that needs no program: the query moves, head and mechanism stay."""
        from cca_lab.views.explorer.standalone import page

        return page(self.state(rows=True))

    def save(self, path: str | Path) -> None:
        """Write `page()` to a file; one that is there is replaced."""
        from cca_lab.files import check_file, replacing

        check_file(Path(path))
        with replacing(Path(path)) as temporary:
            temporary.write_text(self.page(), encoding="utf-8")

    def widget(self) -> Any:
        """Return the widget, always the same; it needs anywidget.

        Raises:
            ModuleNotFoundError: if anywidget is not installed.
        """
        if self._widget is None:
            from cca_lab.views.explorer.widget import ExplorerWidget

            self._widget = ExplorerWidget(self)
        return self._widget

    def __repr__(self) -> str:
        where = f"{self.source.name}, layer {self.layer}, head {self.head}" if self.source.name else f"head {self.head}"
        return f"Explorer({self.mechanism} on {len(self.source.words)} tokens; {where}; query {self.query})"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the widget where there is one, and always the picture, for pages and programs that run no widgets."""
        from cca_lab.views.explorer.display import mimebundle

        return mimebundle(self)
