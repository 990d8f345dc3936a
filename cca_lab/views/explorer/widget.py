"""The explorer as a Jupyter widget: traits that the browser draws, and messages that change the explorer."""

from typing import TYPE_CHECKING, Any, ClassVar

from cca_lab.extras import install
from cca_lab.views.explorer.script import style, widget_module

try:
    import anywidget
    import traitlets
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(f"{missing.name}: is not installed, and the widget needs it; {install('notebooks')}, or "
                              "use explorer.figure() or explorer.save(path)", name=missing.name) from missing

if TYPE_CHECKING:
    from cca_lab.views.explorer.explorer import Explorer


class ExplorerWidget(anywidget.AnyWidget):
    """What `js/widget.js` draws; each trait is sent only when it changes.

    Args:
        explorer: it computes; its changes are shown, wherever they come from.

    Attributes:
        reading: the state without row and overview.
        row: the row of the query.
        overview: thumbnails of all heads; after a change they are sent after the rest.
        form: what the controls show, see `Explorer.form`.
        answered: serial number of the last message that was answered.
    """

    _esm: ClassVar[str] = widget_module()
    _css: ClassVar[str] = style()
    reading = traitlets.Dict().tag(sync=True)
    row = traitlets.Dict().tag(sync=True)
    overview = traitlets.Dict(allow_none=True, default_value=None).tag(sync=True)
    form = traitlets.Dict().tag(sync=True)
    answered = traitlets.Int(0).tag(sync=True)

    def __init__(self, explorer: "Explorer") -> None:
        self._explorer = explorer
        self._shown: Any = None
        super().__init__(**self._traits_now())
        self.overview = explorer.overview()
        explorer.listeners.append(self.refresh)
        self.on_msg(self.receive)

    def _traits_now(self) -> dict[str, Any]:
        """Return the traits that the explorer's present state changes."""
        explorer = self._explorer
        shown = explorer.reading, explorer.head
        if self._shown == shown:
            return {"row": explorer.reading.row(explorer.head, explorer.query).to_json(), "form": explorer.form()}
        self._shown = shown
        state = explorer.state(overview=False).to_json()
        row = state.pop("row")
        state.pop("overview")
        return {"reading": state, "row": row, "form": explorer.form()}

    def refresh(self) -> None:
        """Show the explorer's present state: first the head, then the thumbnails of all heads, which take longer."""
        with self.hold_sync():
            for name, value in self._traits_now().items():
                setattr(self, name, value)
        self.overview = self._explorer.overview()

    def receive(self, widget: Any, content: dict[str, Any], buffers: Any) -> None:
        """Answer a message of the browser: {"serial": number, "changes": arguments of `Explorer.change`}."""
        try:
            self._explorer.change(**content["changes"])
        except (ValueError, TypeError) as error:  # a control never breaks the view: it says what is wrong
            self.form = {**self._explorer.form(), "error": " ".join(str(error).split())}
        self.answered = content["serial"]
