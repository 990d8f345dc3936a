"""The view that moves row by row: what it says equals what the mechanism reads."""

import json
import re

import pytest
import torch

from cca_lab import CCA, DGA, H2O, LoCoCo, StreamingLLM
from cca_lab.views.explorer.figure import POOLED
from cca_lab.views.explorer.moving import moving

MECHANISMS = [CCA(group=2, window=2), DGA(group=2, gamma=0.25), LoCoCo(slots=3, segment=4),
              StreamingLLM(sinks=2, recent=3), H2O(heavy=2, recent=2)]


def named(mechanism):
    return mechanism.name


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=named)
def test_a_row_shows_what_the_mechanism_represents(mechanism):
    generator = torch.Generator().manual_seed(3)
    q, k = torch.randn(2, 1, 1, 16, 8, dtype=torch.float64, generator=generator)
    read = mechanism.represented(q, k)[0, 0]
    for row, shown in zip(read, moving(mechanism, 16, seed=3).data["rows"], strict=True):
        assert [kind not in ("", "unread") for kind in shown["tokens"]] == row.bool().tolist()


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=named)
def test_columns_of_one_row_do_not_overlap_in_a_lane(mechanism):
    data = moving(mechanism, 20).data
    for row in data["rows"]:
        shown = [data["columns"][number] for number in row["columns"]]
        for n, one in enumerate(shown):
            assert one["kind"] in POOLED and one["lane"] < data["lanes"]
            assert all(one["lane"] != other["lane"] or one["tokens"][0] > other["tokens"][-1]
                       or one["tokens"][-1] < other["tokens"][0] for other in shown[:n])


def test_the_sentence_names_the_new_core_and_the_tokens_that_left():
    texts = [row["text"] for row in moving(CCA(group=2, window=2), 8).data["rows"]]
    assert texts[0] == "Row 0 reads 1 single token and 0 cores."
    assert any("new: that of tokens 0, 1; no longer read as single tokens: 0, 1." in text
               for text in texts)
    assert "unread: 1 to 3." in moving(StreamingLLM(sinks=1, recent=2), 8).data["rows"][6]["text"]


def test_the_html_holds_the_strip_and_the_view():
    shown = moving(CCA(group=2, window=2), words=["a", "</script>", "c", "d"])
    bundle = shown._repr_mimebundle_()
    assert bundle["text/html"].count("</script>") == 1
    (picture,) = re.findall('<img alt="([^"]+)" src="data:image/png;base64,', bundle["text/html"])
    assert "CCA-Attention" in picture
    assert json.dumps(shown.data["colours"], separators=(",", ":")) in bundle["text/html"]
    assert len(shown.figure().axes) == 4


@pytest.mark.parametrize("length", [0, 129])
def test_lengths_that_cannot_be_shown(length):
    with pytest.raises(ValueError, match="length"):
        moving(CCA(), length)
