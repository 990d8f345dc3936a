"""Speed as ratios of one run, with wide margins: what must never be lost, on any machine and beside other work."""

import pytest

from cca_lab.studies.benchmarks import attention, decode

LENGTH, WINDOW, CONTEXT = 4096, 256, 32768
SHAPE = {"heads": 8, "kv_heads": 8, "head_dim": 64}


@pytest.fixture(scope="module")
def found():
    """The ratio full over CCA for each implementation; the dense matrix is the mutant that saves nothing."""
    names = [attention.FULL, *((name, WINDOW) for name in (*attention.usable_implementations(), "dense"))]
    rows = attention.measure(LENGTH, names, "forward", rounds=3)
    return {row["implementation"]: row["ratio"] for row in rows}


def saves_time(ratio):
    """A quarter of the saving in pairs, which is 5.6."""
    return ratio > attention.pair_ratio(LENGTH, WINDOW) / 4


def test_cca_turns_pairs_into_time(found):
    assert saves_time(max(found["blocked"], found.get("native", 0))), found
    assert not saves_time(found["dense"])


def test_a_decoded_token_gains_from_fewer_entries(monkeypatch):
    """At 32K tokens CCA keeps 10.7 times fewer entries, and a full cache that copies itself gains nothing."""
    monkeypatch.setattr(decode, "LAYERS", 2)
    rows = {row["cache"]: row for row in decode.measure(["cca", "streaming_llm"], CONTEXT, SHAPE, rounds=3)}
    for name in ("cca", "streaming_llm"):
        assert rows[name]["ratio"] > rows[name]["entry_ratio"] / 4, rows[name]
    assert rows[decode.COPIED]["ratio"] < 1
