"""`cca-lab study peers`: every library attends as its pattern says, and none is left out silently.

OpenVINO and ONNX Runtime are optional (the extra `peers`); without them their forms are skipped.
"""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cca_lab.attention import native
from cca_lab.extras import EXTRAS, missing
from cca_lab.mechanisms import CCA
from cca_lab.studies.benchmarks import peers

LENGTH = 610  # some cores, and for SparseAttention an incomplete last block
GROUP, WINDOW = peers.GROUP, peers.WINDOW
FLEX = peers.flex_call
NAMES = [f"{form.title}, {form.pattern}" for form in peers.FORMS]


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    """Compiling takes half a minute, and changes no number that is tested here."""
    monkeypatch.setattr(peers, "flex_call", lambda *given, compiled: FLEX(*given, compiled=False))


def skip_what_is_missing(form, dtype="float32"):
    if form.library in EXTRAS["peers"] and missing("peers"):
        pytest.skip(f"not installed: {', '.join(missing('peers'))}")
    if dtype not in form.dtypes:
        pytest.skip(f"{form.title} does not compute {dtype} on a CPU")
    if form.operator == "native" and not (native.available() and (
            dtype == "float32" or native.load() or native.bfloat16_units())):
        pytest.skip(f"the native op cannot be built here for {dtype}")


def inputs(dtype=torch.float32):
    return [torch.randn(1, peers.HEADS, LENGTH, peers.HEAD_DIM).to(dtype) for _ in range(3)]


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


def check(form, dtype="float32", tolerance=1e-4):
    q, k, v = inputs(getattr(torch, dtype))
    with torch.no_grad():
        got = form.make(q, k, v, form.pattern)().float()
        q, k, v = (x.float() for x in (q, k, v))
        if form.pattern == peers.CORES:
            wanted = CCA(group=GROUP, window=WINDOW, backend="dense").attention(q, k, v)
        else:
            wanted = F.scaled_dot_product_attention(q, k, v, attn_mask=mask_of(form.pattern))
    assert (got - wanted).abs().max() < tolerance


@pytest.mark.parametrize("form", peers.FORMS, ids=NAMES)
def test_a_form_attends_as_its_pattern_says(form):
    skip_what_is_missing(form)
    check(form)


@pytest.mark.parametrize("form", peers.FORMS, ids=NAMES)
def test_in_bfloat16_too(form):
    skip_what_is_missing(form, "bfloat16")
    check(form, "bfloat16", 0.1)


@pytest.mark.parametrize("name, form", [("flex_attention", peers.FORMS[2]),
                                        ("openvino", peers.FORMS[4])])
def test_raw_tokens_in_the_place_of_cores_are_caught(name, form, monkeypatch):
    """The mutant: columns that hold the first tokens where the cores belong."""
    skip_what_is_missing(form)
    monkeypatch.setattr(peers, "_columns", lambda q, k, v: [
        torch.cat([x[:, :, : peers._cores(LENGTH)], x], dim=2) for x in (k, v)])
    with pytest.raises(AssertionError):
        check(form)


def test_a_window_one_token_longer_is_caught(monkeypatch):
    """The mutant: ONNX Runtime's window counts the row's own token, or it does not."""
    form = peers.FORMS[6]
    skip_what_is_missing(form)
    q, k, v = inputs()
    right = mask_of(form.pattern)
    monkeypatch.setattr(peers, "nearest_window", lambda length, right=peers.nearest_window:
                        right(length) + 1)
    got = form.make(q, k, v, form.pattern)()
    assert (got - F.scaled_dot_product_attention(q, k, v, attn_mask=right)).abs().max() > 1e-2


@pytest.mark.parametrize("pattern", [peers.FULL, peers.NEAREST, peers.BLOCKS])
def test_pairs_are_those_that_are_seen(pattern):
    """Counted in the mask; the mutant that takes whole blocks on the diagonal has more."""
    assert peers.pairs_of(pattern, LENGTH) == int(mask_of(pattern).sum())


@pytest.mark.parametrize("pattern", [peers.NEAREST, peers.BLOCKS])
def test_a_pattern_has_as_many_pairs_as_cca_or_just_more(pattern):
    """At 4096 tokens by less than 1 and 25 %; one token or one block fewer would be too few."""
    more = peers.pairs_of(pattern, 4096) / peers.pairs_of(peers.CORES, 4096)
    assert 1 <= more < (1.01 if pattern == peers.NEAREST else 1.25)
    shorter = peers._in_window(4096, peers.nearest_window(4096) - 1)
    assert shorter < peers.pairs_of(peers.CORES, 4096)


def test_what_is_not_installed_is_a_row_with_its_reason(monkeypatch):
    """The mutant: a library that is missing, skipped in silence."""
    monkeypatch.setattr(peers, "find_spec", lambda name: None if name == "openvino" else name)
    rows = peers.measure(128, "float32", 1, {})
    assert len(rows) == len(peers.FORMS)
    reasons = {row["form"]: row.get("reason", "") for row in rows}
    assert "not installed (openvino)" in reasons["openvino: scaled_dot_product_attention"]
    assert "cca-lab[peers]" in reasons["openvino: scaled_dot_product_attention"]
    for row in rows:
        assert ("reason" in row) != (row.get("seconds", 0) > 0)


def test_a_library_that_fails_is_a_row_with_its_reason(monkeypatch):
    def fails(q, k, v, pattern):
        raise RuntimeError("no such instruction\nmore")

    monkeypatch.setattr(peers, "FORMS", (peers.FORMS[0], peers.FORMS[1]._replace(make=fails)))
    first, second = peers.measure(128, "float32", 2, {})
    assert second["reason"] == "RuntimeError: no such instruction"
    assert first["sdpa_ratio"] == first["full_ratio"] == 1.0 and first["rounds"] == 2
    assert first["rate"] == pytest.approx(
        4 * peers.HEAD_DIM * peers.HEADS * 128 * 129 / 2 / first["seconds"])


def test_no_call_is_begun_that_takes_too_long_or_too_much_memory():
    """Time grows with the pairs that are computed; a mutant by the length alone would call it."""
    full, cores, masked = peers.FORMS[0], peers.FORMS[2], peers.FORMS[4]
    before = {full: (4096, 3.0), cores: (4096, 3.0)}
    likely = partial(peers.why_not, length=16384, dtype="float32", before=before)
    assert "would take about 48 s" in str(likely(full))
    assert likely(cores) is None  # of 16 times the pairs CCA sees 8
    if not missing("peers"):
        assert "GiB" in str(peers.why_not(masked, 65536, "float32", {}))


def test_a_long_call_is_made_once(monkeypatch):
    """Without a round to warm up; the mutant makes every call twice."""
    calls = []
    form = peers.FORMS[0]._replace(make=lambda *given: partial(calls.append, given))
    monkeypatch.setattr(peers, "FORMS", (form,))
    monkeypatch.setattr(peers, "PATIENCE", 1e9)
    (row,) = peers.measure(128, "float32", 3, {form: (64, 100.0)})
    assert len(calls) == row["rounds"] == 1
