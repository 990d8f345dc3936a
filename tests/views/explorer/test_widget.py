"""The widget without a browser: a message goes in, traits come out, and only those that changed."""

import json

import pytest
import torch

pytest.importorskip("anywidget", reason="anywidget is not installed")

from cca_lab.views.explorer import explore
from cca_lab.views.explorer import explorer as explorer_module
from tests.models.tiny import text, tiny
from tests.views.explorer.tensors import explore_tensors


class Sent:
    """What a widget sends to the browser: the names of the traits of each message."""

    def __init__(self, widget, monkeypatch):
        self.messages = []
        monkeypatch.setattr(widget, "send_state", lambda key=None: self.messages.append(
            sorted([key] if isinstance(key, str) else key or widget.keys)))


@pytest.fixture
def explorer():
    return explore(tiny("gpt2"), text(30)[0], attention="cca", group=4, window=5)


def ask(widget, serial, **changes):
    widget.receive(widget, json.loads(json.dumps({"serial": serial, "changes": changes})), [])


def test_a_click_sends_the_row_and_nothing_of_the_head(explorer, monkeypatch):
    widget = explorer.widget()
    sent = Sent(widget, monkeypatch)
    ask(widget, 1, query=7)
    assert widget.row == explorer.state().row.to_json() and widget.row["query"] == 7
    assert widget.answered == 1 and explorer.query == 7
    assert {name for message in sent.messages for name in message} == {"row", "answered"}


@pytest.mark.parametrize("changes", [{"options": {"group": 0}}, {"attention": "none"},
                                     {"query": 99}, {"unknown": 1},
                                     {"options": {"group": "four"}}])
def test_what_is_not_valid_is_said_and_changes_nothing(explorer, changes):
    widget = explorer.widget()
    before = {**widget.reading, "row": widget.row}
    ask(widget, 5, **changes)
    assert widget.form["error"] and widget.answered == 5
    assert {**widget.reading, "row": widget.row} == before
    ask(widget, 6, query=3)
    assert widget.form["error"] == "" and widget.row["query"] == 3


@pytest.fixture
def stored(monkeypatch):
    """What a notebook stores of an explorer while a widget runs."""
    monkeypatch.setattr(explorer_module, "widgets_run", lambda: True)
    return explore_tensors(torch.eye(3), torch.eye(3), group=1, window=1)._repr_mimebundle_()


def test_a_notebook_stores_the_picture_beside_the_widget(stored):
    data, metadata = stored
    assert {"application/vnd.jupyter.widget-view+json", "image/png", "text/plain"} == set(data)
    assert data["text/plain"].startswith("Explorer(cca") and metadata["image/png"]["alt"]
