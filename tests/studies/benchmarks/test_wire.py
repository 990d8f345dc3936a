"""`cca-lab study wire` at toy size.

Errors, bytes against the counter, the plan, and the tables made of it.
"""

import pytest

from cca_lab.mechanisms.cca.parallel import Shape, ulysses_bytes
from cca_lab.studies import tables as readme
from cca_lab.studies.benchmarks import wire


def test_what_is_measured_is_what_is_planned(tmp_path, monkeypatch):
    found = wire.Wire(processes=(2, ), length=600, group=4, window=8, out=tmp_path / "wire.json",
                      tokens=4096, gpus=4).run()
    for row in found["measured"]:
        assert row["error"] < 2e-5
        # 150 or 300 cores, and a halo of at most 10 tokens for each cut, both ways
        assert row["bytes"] == 2 * sum(row["entries"]) * wire.MEASURED.entry < row["ring_bytes"] / 3
        assert row["wire"] is None or row["bytes"] <= row[
            "wire"] < row["bytes"] + 100_000  # headers and barriers
    methods = [row["method"] for row in found["planned"]]
    assert methods[-1] == "full, Ulysses" and len(methods) == 9
    by_name = {row["method"]: row for row in found["planned"]}
    ring, zigzag = by_name["full, ring, zigzag"], by_name["CCA, g 16, s 1024, zigzag"]
    assert ring["bytes"] == 3 * 1024 * wire.PLANNED.entry > zigzag["bytes"]
    assert by_name["CCA, g 16, s 1024, contiguous"]["balance"] > zigzag["balance"]
    monkeypatch.setattr(readme, "results_folder", lambda: tmp_path)
    assert readme.wire().count("\n| 2 |") == 2 and "| full, Ulysses |" in readme.wire_plan()


def test_ulysses_by_hand():
    """Two processes, four heads on two, two tokens.

    Each gets one token's q, k, v for its heads, and one's outputs.
    """
    shape = Shape(heads=4, kv_heads=2, head_dim=3, number=1)
    arrive = 3 * (
        2 + 1 + 1 + 2
    )  # two query heads, a key and a value head; two output heads of the other process
    assert ulysses_bytes(2, 2, shape) == arrive
    replicated = Shape(heads=4, kv_heads=1, head_dim=3, number=1)  # the one KV head goes to both
    assert ulysses_bytes(2, 2, replicated) == arrive


@pytest.mark.parametrize("arguments, words",
                         [(dict(processes=(0,)), "processes: got 0"),
                          (dict(length=0), "length: got 0"), (dict(window=0), "window: got 0")])
def test_wrong_sizes_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        wire.Wire(**arguments).run()
