"""The explorer as a Jupyter widget: traits that the browser draws, messages that change it."""

from typing import Any, ClassVar

from cca_lab.extras import install
from cca_lab.views.scripts import VIEW, VIEW_FILES, VIEW_STYLE, joined

try:
    import anywidget
    import traitlets
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"{missing.name}: is not installed, and the widget needs it; {install('notebooks')}, or "
        "use explorer.figure() or explorer.save(path)", name=missing.name) from missing
SCRIPT = joined([*VIEW_FILES, VIEW / "widget.js"])


class ExplorerWidget(anywidget.AnyWidget):
    """What `js/widget.js` draws; each trait is sent only when it changes.

    `explorer` computes, and its changes are shown, wherever they come from.
    """

    # what anywidget asks for
    _esm: ClassVar[str] = f"{SCRIPT}\nexport default {{ render: renderWidget }};\n"
    _css: ClassVar[str] = VIEW_STYLE.read_text(encoding="utf-8")
    reading = traitlets.Dict().tag(sync=True)  # the state without row and overview
    row = traitlets.Dict().tag(sync=True)
    # after a change, sent after the rest
    overview = traitlets.Dict(allow_none=True, default_value=None).tag(sync=True)
    form = traitlets.Dict().tag(sync=True)  # what the controls show
    answered = traitlets.Int(0).tag(sync=True)  # serial number of the last message answered

    def __init__(self, explorer: Any) -> None:
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
            return {"row": explorer.reading.row(explorer.head, explorer.query).to_json(),
                    "form": explorer.form()}
        self._shown = shown
        state = explorer.state(overview=False).to_json()
        row = state.pop("row")
        state.pop("overview")
        return {"reading": state, "row": row, "form": explorer.form()}

    def refresh(self) -> None:
        """Show the present state: first the head, then all thumbnails, which take longer."""
        with self.hold_sync():
            for name, value in self._traits_now().items():
                setattr(self, name, value)
        self.overview = self._explorer.overview()

    def receive(self, widget: Any, content: dict[str, Any], buffers: Any) -> None:
        """Answer a message of the browser: {"serial": number, "changes": of `Explorer.change`}."""
        try:
            self._explorer.change(**content["changes"])
        # a control never breaks the view: it says what is wrong
        except (ValueError, TypeError) as error:
            self.form = {**self._explorer.form(), "error": " ".join(str(error).split())}
        self.answered = content["serial"]
