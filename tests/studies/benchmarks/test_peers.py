"""`cca-lab study peers`: every library attends as its pattern says, and none is left out silently.

OpenVINO and ONNX Runtime are optional (the extra `peers`); without them their forms are skipped.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab.extras import EXTRAS, missing
from cca_lab.mechanisms import CCA
from cca_lab.studies.benchmarks import peers

LENGTH = 610  # some cores, and for SparseAttention an incomplete last block
FLEX = peers.flex_call
NAMES = [f"{form.library}: {form.operator}, {form.pattern}" for form in peers.FORMS]


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    """Compiling takes half a minute, and changes no number that is tested here."""
    monkeypatch.setattr(peers, "flex_call", lambda *given, compiled: FLEX(*given, compiled=False))


def mask_of(pattern: str) -> Tensor:
    """Return which tokens a row sees, by brute force, bool (L, L)."""
    row, token = torch.arange(LENGTH)[:, None], torch.arange(LENGTH)
    causal = token <= row
    if pattern == peers.NEAREST:
        return causal & (row - token < peers.nearest_window(LENGTH))
    if pattern == peers.BLOCKS:
        starts, columns = (torch.from_numpy(each)[0] for each in peers.block_lists(LENGTH))
        seen = [columns[starts[block]: starts[block + 1]] for block in range(len(starts) - 1)]
        blocks = token // peers.BLOCK
        return causal & torch.stack([torch.isin(blocks, seen[block]) for block in blocks])
    return causal


def check(form):
    if form.library in EXTRAS["peers"] and missing("peers"):
        pytest.skip(f"not installed: {', '.join(missing('peers'))}")
    if form.operator == "native" and "native" not in peers.backends():
        pytest.skip("the native op cannot be built here")
    q, k, v = (torch.randn(1, peers.HEADS, LENGTH, peers.HEAD_DIM) for _ in range(3))
    with torch.no_grad():
        got = form.make(q, k, v, form.pattern)()
        if form.pattern == peers.CORES:
            wanted = CCA(group=peers.GROUP, window=peers.WINDOW, backend="dense").attention(q, k, v)
        else:
            wanted = F.scaled_dot_product_attention(q, k, v, attn_mask=mask_of(form.pattern))
    assert (got - wanted).abs().max() < 1e-4


@pytest.mark.parametrize("form", peers.FORMS, ids=NAMES)
def test_a_form_attends_as_its_pattern_says(form):
    check(form)


@pytest.mark.parametrize("form", [peers.FORMS[2], peers.FORMS[4]], ids=lambda form: form.library)
def test_raw_tokens_in_the_place_of_cores_are_caught(form, monkeypatch):
    """The mutant: columns that hold the first tokens where the cores belong."""
    monkeypatch.setattr(peers, "_columns", lambda q, k, v: [
        torch.cat([x[:, :, : peers._cores(LENGTH)], x], dim=2) for x in (k, v)])
    with pytest.raises(AssertionError):
        check(form)


@pytest.mark.parametrize("pattern", [peers.FULL, peers.NEAREST, peers.BLOCKS])
def test_pairs_are_those_that_are_seen(pattern):
    """Counted in the mask; the mutant that takes whole blocks on the diagonal has more."""
    assert peers.pairs_of(pattern, LENGTH) == int(mask_of(pattern).sum())


@pytest.mark.parametrize("pattern", [peers.NEAREST, peers.BLOCKS])
def test_a_pattern_has_as_many_pairs_as_cca_or_just_more(pattern):
    """At 4096 tokens by less than 1 and 25 %; one token fewer would be too few."""
    more = peers.pairs_of(pattern, 4096) / peers.pairs_of(peers.CORES, 4096)
    assert 1 <= more < (1.01 if pattern == peers.NEAREST else 1.25)
    shorter = peers._in_window(4096, peers.nearest_window(4096) - 1)
    assert shorter < peers.pairs_of(peers.CORES, 4096)


def test_a_library_that_fails_is_a_row_with_its_reason(monkeypatch):
    def fails(q, k, v, pattern):
        raise RuntimeError("no such instruction\nmore")

    monkeypatch.setattr(peers, "FORMS", (peers.FORMS[0], peers.FORMS[1]._replace(make=fails)))
    first, second = peers.measure(128, "float32", 2)
    assert second["reason"] == "RuntimeError: no such instruction"
    assert first["sdpa_ratio"] == 1.0 and first["rounds"] == 2
    assert first["rate"] == pytest.approx(
        4 * peers.HEAD_DIM * peers.HEADS * 128 * 129 / 2 / first["seconds"])


def test_no_call_is_begun_that_takes_too_much_memory(monkeypatch):
    form = peers.FORMS[0]
    monkeypatch.setattr(peers, "FORMS", (form, form._replace(masked=2**20)))
    small, large = peers.measure(128, "float32", 1)
    assert "reason" not in small
    assert large["reason"] == "would allocate 16 GiB for its 128 x 128 pairs"
