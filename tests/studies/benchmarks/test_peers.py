"""`cca-lab study peers`: every form attends as its pattern says, and none is left out silently."""

import pytest
import torch
import torch.nn.functional as F

from cca_lab.mechanisms import CCA
from cca_lab.studies.benchmarks import peers

LENGTH = 610  # some cores
FLEX = peers.flex_call
NAMES = [f"{form.library}: {form.operator}, {form.pattern}" for form in peers.FORMS]


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    """Compiling takes half a minute, and changes no number that is tested here."""
    monkeypatch.setattr(peers, "flex_call", lambda *given, compiled: FLEX(*given, compiled=False))


def check(form):
    if form.operator == "native" and "native" not in peers.backends():
        pytest.skip("the native op cannot be built here")
    q, k, v = (torch.randn(1, peers.HEADS, LENGTH, peers.HEAD_DIM) for _ in range(3))
    with torch.no_grad():
        got = form.make(q, k, v, form.pattern)()
        if form.pattern == peers.CORES:
            wanted = CCA(group=peers.GROUP, window=peers.WINDOW, backend="dense").attention(q, k, v)
        else:
            wanted = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert (got - wanted).abs().max() < 1e-4


@pytest.mark.parametrize("form", peers.FORMS, ids=NAMES)
def test_a_form_attends_as_its_pattern_says(form):
    check(form)


def test_raw_tokens_in_the_place_of_cores_are_caught(monkeypatch):
    """The mutant: columns that hold the first tokens where the cores belong."""
    monkeypatch.setattr(peers, "_columns", lambda q, k, v: [
        torch.cat([x[:, :, : peers._cores(LENGTH)], x], dim=2) for x in (k, v)])
    with pytest.raises(AssertionError):
        check(peers.FORMS[2])


def test_a_form_that_fails_is_a_row_with_its_reason(monkeypatch):
    def fails(q, k, v, pattern):
        raise RuntimeError("no such instruction\nmore")

    monkeypatch.setattr(peers, "FORMS", (peers.FORMS[0], peers.FORMS[1]._replace(make=fails)))
    first, second = peers.measure(128, "float32", 2)
    assert second["reason"] == "RuntimeError: no such instruction"
    assert first["sdpa_ratio"] == 1.0 and first["rounds"] == 2
    assert first["rate"] == pytest.approx(
        4 * peers.HEAD_DIM * peers.HEADS * 128 * 129 / 2 / first["seconds"])
