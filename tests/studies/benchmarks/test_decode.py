"""`cca-lab study decode`: filled caches are those that reading would leave."""

import json

import pytest
import torch

from cca_lab.mechanisms import CCA, MECHANISMS, mechanism_of
from cca_lab.mechanisms.caches import CACHES, fits, with_sized
from cca_lab.mechanisms.cca.cache import CCAState
from cca_lab.studies.benchmarks import decode
from cca_lab.studies.benchmarks.decode import Decode, filled_state
from tests.mutants import bench as mutants

SHAPE = {"heads": 4, "kv_heads": 2, "head_dim": 8}
SMALL = {"cca": {"group": 4, "window": 10}, "mean_pooling": {"group": 4, "window": 10},
         "random_tokens": {"group": 4, "window": 10}, "dga": {"group": 4, "gamma": 0.2},
         "lococo": {"slots": 6, "segment": 8}, "h2o": {"heavy": 5, "recent": 7},
         "streaming_llm": {"sinks": 2, "recent": 9},
         "lm_infinite": {"local": 9, "global_tokens": 2}}
MORE = [("cca", {"group": 4, "window": 10, "per_query_head": True}),
        ("cca", {"group": 4, "window": 10, "sinks": 9}),
        ("h2o", {"heavy": 0.2, "recent": 0.1}),
        ("dga", {"group": 4, "gamma": 0.2, "choose": "blocks", "block": 11}),
        ("lococo", {"slots": 6, "segment": 8, "heavy": 2, "scores": "sum"})]


def after_reading(mechanism, length):
    """The state that has read a text."""
    state = CACHES[mechanism.name].state(mechanism)
    q, k, v = (torch.randn(1, of, length, 8) for of in (4, 2, 2))
    with torch.no_grad():
        state.step(q, k, v, scale=0.35, rotation=None)
    return state


def sizes(state):
    return [(tuple(tensor.shape), tensor.dtype) for tensor in state.tensors()]


def same_as_reading(mechanism, length):
    filled, read = filled_state(mechanism, length, **SHAPE), after_reading(mechanism, length)
    assert sizes(filled) == sizes(read), f"{mechanism} at {length}"
    numbers = {key: value for key, value in vars(read).items() if isinstance(value, int)}
    assert {key: getattr(filled, key) for key in numbers} == numbers
    for state in (filled, read):  # they go on where a text ended
        decode.read([state], [decode.new_token(SHAPE, seed) for seed in range(9)])
    assert sizes(filled) == sizes(read)


@pytest.mark.parametrize(("name", "options"), [*SMALL.items(), *MORE], ids=str)
def test_a_filled_cache_holds_what_reading_leaves(name, options):
    for length in (1, 7, 40, 61):
        same_as_reading(mechanism_of(name, options), length)


def test_every_cache_is_measured():
    sized = {name for name in CACHES if fits(name)}
    # the size of one with kept heads depends on the model
    assert set(decode.every_cache()) == sized == set(CACHES) - {"kept_heads"}


def test_a_mechanism_that_is_not_named_is_sized():
    assert with_sized({"cca": {"window": 3}}, 96, 512) == {"cca": {"window": 3}} | {
        name: MECHANISMS[name].sized(96, 512).options() for name in CACHES
        if name != "cca" and fits(name)}


def test_a_fill_that_keeps_too_few_tokens_is_caught(monkeypatch):
    monkeypatch.setattr(CCAState, "fill", mutants.window_without_the_open_group(CCAState.fill))
    with pytest.raises(AssertionError, match="cca, group 4, window 10 at 40"):
        same_as_reading(CCA(**SMALL["cca"]), 40)


@torch.no_grad()
@pytest.mark.parametrize("copies", [False, True])
def test_the_full_cache_attends_to_all_it_holds(copies):
    tokens = [decode.new_token(SHAPE, seed) for seed in range(3)]
    state = decode.FullBuffers(12, SHAPE, copies=copies)
    assert decode.held_bytes(state) == 2 * 12 * 2 * 8 * 4
    keys, values = (torch.cat([x, *new], dim=2) for x, new in (
        (state.key, [k for _, k, _ in tokens]), (state.value, [v for *_, v in tokens])))
    found = decode.read([state], tokens)
    keys, values = (x.repeat_interleave(2, dim=1) for x in (keys, values))
    weights = (tokens[-1][0] @ keys.mT * 8**-0.5).softmax(-1)
    assert torch.allclose(found, weights @ values, atol=1e-6)


@torch.no_grad()
def test_only_the_full_cache_that_copies_moves(monkeypatch):
    monkeypatch.setattr("cca_lab.mechanisms.caching.state.FEW", 0)  # so few are copied elsewhere
    for copies in (False, True):
        state = decode.FullBuffers(12, SHAPE, copies=copies)
        decode.read([state], [decode.new_token(SHAPE, 0)])
        place = state.key.data_ptr()
        decode.read([state], [decode.new_token(SHAPE, 1)])
        assert (state.key.data_ptr() == place) is not copies


def test_a_token_goes_through_layers_that_do_not_fit_into_the_processor_s_cache(monkeypatch):
    monkeypatch.setattr(decode, "SPREAD", 5 * 2 * 12 * 2 * 8 * 4 - 1)
    layers = decode.layers_of(lambda: decode.FullBuffers(12, SHAPE))
    assert len(layers) == 5 and len({layer.key.data_ptr() for layer in layers}) == 5
    assert len(decode.layers_of(lambda: decode.FullBuffers(1, SHAPE))) == decode.LAYERS
    decode.read(layers, [decode.new_token(SHAPE, 0)])
    assert {layer.key.shape[2] for layer in layers} == {13}


def test_a_run_writes_and_prints_what_it_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(decode, "OPTIONS", SMALL)
    monkeypatch.setattr(decode, "SHAPES", [SHAPE])
    file = tmp_path / "decode.json"
    Decode(length=(64, 32), cache=("cca", "streaming_llm"), rounds=1, out=file).run()
    result = json.loads(file.read_text())
    assert [(row["length"], row["cache"]) for row in result["rows"]] == [
        (length, name) for length in (32, 64)
        for name in ("full", "full, copied", "cca", "streaming_llm")]
    full, _, cca, streaming = result["rows"][4:]
    assert full["ratio"] == full["entry_ratio"] == 1.0 and full["bytes"] == 2 * 64 * 2 * 8 * 4
    assert cca["entries"] == 64 // 4 + 64 - 4 * (55 // 4) and streaming["entries"] == 11
    assert cca["entry_ratio"] == 64 / cca["entries"] and cca["seconds"] > 0
    assert decode.table(result) in capsys.readouterr().out
