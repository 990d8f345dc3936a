"""The explorer: what a change computes and remembers, and what a notebook stores."""

import base64
import json

import pytest
import torch

from cca_lab.mechanisms import CCA, MECHANISMS
from cca_lab.models import swap_attention
from cca_lab.views.explorer import explore, listening
from cca_lab.views.explorer.explorer import SWITCH, widgets_run
from cca_lab.views.explorer.reading import Tensors
from cca_lab.views.explorer.state import THUMBNAIL, encoded
from tests.models.tiny import text, tiny
from tests.views.explorer.tensors import explore_tensors

WORDS = "the cat sat on the mat and purred".split()


def small(**options):
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 8, 4, generator=generator)
    return explore_tensors(q, k, words=WORDS, **{"group": 2, "window": 2, **options})


@pytest.fixture(scope="module")
def of_model():
    return explore(tiny("llama"), text(30)[0], attention="cca", group=4, window=5, layer=1, head=2)


def test_the_state_is_json_and_rounds_only_there():
    explorer = small()
    state = explorer.state(rows=True)
    assert abs(state.row.weights.sum() - 1) < 1e-12
    shown = json.loads(json.dumps(state.to_json()))
    assert shown["words"] == WORDS and shown["attention"]["settings"] == "group 2, window 2"
    assert [row["query"] for row in shown["rows"]] == list(range(8))
    assert [len(row["full"]) for row in shown["rows"]] == list(range(1, 9))
    assert shown["row"] == shown["rows"][7]
    assert shown["place"] is None
    assert shown["totals"] == {"pairs": 27, "pairsFull": 36, "entries": 6, "entriesFull": 8,
                               "bytes": None, "bytesFull": None}


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_is_shown_and_drawn(of_model, name):
    of_model.change(attention=name)
    shown = of_model.state().to_json()
    assert json.loads(json.dumps({**shown, "form": of_model.form()}))["attention"]["name"] == name
    assert shown["overview"]["layers"] == 2 and len(shown["overview"]["distances"]) == 8
    assert shown["place"] == {"model": of_model.source.name, "layer": 1, "head": 2, "layers": 2,
                              "heads": 4}


def test_a_change_of_query_computes_no_model_and_no_mechanism(of_model, monkeypatch):
    of_model.change(attention="cca", query=3)
    reading, thumbnails = of_model.reading, of_model.overview()

    def forbidden(*_):
        raise AssertionError("the model was run again")

    monkeypatch.setattr(listening, "heard", forbidden)
    monkeypatch.setattr(CCA, "columns", forbidden)
    of_model.change(query=20)
    of_model.change(head=0)
    assert of_model.state().row.query == 20
    assert of_model.reading is reading and of_model.overview() is thumbnails
    monkeypatch.undo()
    monkeypatch.setattr(listening, "heard", forbidden)
    of_model.change(attention="dga")   # nor does another mechanism, on the same queries and keys


@pytest.mark.parametrize("changes", [
    {"attention": "none"}, {"options": {"group": 0}}, {"options": {"size": 3}}, {"query": 8},
    {"layer": 1}, {"options": {"pooling": "max"}},
    {"attention": "h2o", "options": {"heavy": 0, "recent": 0}}])
def test_after_an_error_all_is_as_before(changes):
    explorer = small(query=5)
    before = explorer.state().to_json()
    with pytest.raises(ValueError):
        explorer.change(**changes)
    assert explorer.state().to_json() == before and explorer.form()["options"][0]["value"] == 2


def test_options_are_remembered_and_begin_in_proportion_to_the_text():
    explorer = small(group=3)
    explorer.change(attention="streaming_llm", options={"recent": 1})
    explorer.change(attention="cca")
    assert explorer.mechanism == CCA(group=3, window=2)
    explorer.change(attention="streaming_llm")
    assert explorer.mechanism.recent == 1 and explorer.mechanism.sinks == 2


def test_an_untrained_memory_says_so():
    explorer = small()
    explorer.change(attention="lococo")
    assert "plain mean" in explorer.state().message
    explorer.change(attention="full")
    assert explorer.state().message == ""


def test_a_shipped_model_is_opened_by_its_name():
    explorer = explore("gpt2-mini", "def f(x):\n    return x\n", layer=3, query=2)
    assert "".join(explorer.source.words) == "def f(x):\n    return x\n" and explorer.query == 2
    assert explorer.state().place.model == "gpt2-mini"
    with pytest.raises(ValueError, match="^text: got"):
        explore("gpt2-mini", "x " * 2000)


def test_a_swapped_model_is_shown_with_its_own_attention():
    model = swap_attention(tiny("gpt2"), "cca", group=3, window=7)
    assert explore(model, text(20)[0]).mechanism == CCA(group=3, window=7)
    assert explore(model, text(20)[0], window=2).mechanism == CCA(group=3, window=2)
    assert explore(model, text(20)[0], attention="dga").mechanism.name == "dga"


def test_matrices_keep_the_largest_weights():
    weights = torch.zeros(1, 100, 100)
    weights[0, 99, 7] = 1.0
    size, text_of_bytes = encoded(weights, THUMBNAIL)
    pixels = torch.frombuffer(bytearray(base64.b64decode(text_of_bytes)),
                              dtype=torch.uint8).view(size, size)
    assert size == THUMBNAIL and pixels[31, 2] == 255 and pixels.count_nonzero() == 1


def test_a_figure_and_a_page(tmp_path):
    explorer = small()
    assert len(explorer.figure().axes) == 3
    explorer.save(tmp_path / "explorer.html")
    page = (tmp_path / "explorer.html").read_text(encoding="utf-8")
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    assert "</script>" not in json.dumps(explorer.state().to_json())


def test_a_word_cannot_end_the_pages_data():
    explorer = explore_tensors(torch.eye(2), torch.eye(2), words=["</script><script>alert(1)", "b"])
    assert "</script><script>alert" not in explorer.page()


def test_a_notebook_stores_a_picture_with_a_description(monkeypatch):
    data, metadata = small()._repr_mimebundle_()
    assert set(data) == {"text/plain", "image/png"}
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert "CCA-Attention" in metadata["image/png"]["alt"]
    monkeypatch.setenv(SWITCH, "0")
    assert not widgets_run()


def test_tensors_of_a_wrong_shape():
    with pytest.raises(ValueError, match="^q: got a batch of 2"):
        Tensors(torch.zeros(2, 1, 3, 4), torch.zeros(2, 1, 3, 4))
    with pytest.raises(ValueError, match="^words: got 2 for 3"):
        explore_tensors(torch.zeros(3, 4), torch.zeros(3, 4), words="ab")
