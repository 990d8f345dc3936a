"""`cca-lab study wire` at toy size: errors, bytes against the counter, the plan, the tables."""

import pytest

from cca_lab.studies import tables as readme
from cca_lab.studies.benchmarks import wire


def test_what_is_measured_is_what_is_planned(tmp_path, monkeypatch):
    found = wire.Wire(processes=(2, ), length=600, group=4, window=8, out=tmp_path / "wire.json",
                      tokens=4096, ranks=(4, ), rate=(100.0, ), rounds=1).run()
    for row in found["measured"]:
        assert row["error"] < 2e-5
        # 150 or 300 cores, and a halo of at most 10 tokens for each cut, both ways
        assert row["bytes"] == 2 * sum(row["entries"]) * wire.MEASURED.entry < row["ring_bytes"] / 3
        assert row["wire"] is None or row["bytes"] <= row[
            "wire"] < row["bytes"] + 100_000  # headers and barriers
    forward, both = found["hidden"]
    assert both["cores"] == 2 * forward["cores"] > 2 * wire.LATENCY
    assert forward["waiting"] > forward["cores"] + wire.LATENCY  # of the halo
    cca, ring = found["planned"]
    assert ring["bytes"] == 3 * 1024 * wire.PLANNED.entry > cca["bytes"]
    monkeypatch.setattr(readme, "results_folder", lambda: tmp_path)
    assert readme.wire().count("\n| 2 |") == 2 and "| full, ring |" in readme.wire_plan()
    assert "| forward+backward | 100 |" in readme.wire_hidden()


@pytest.mark.parametrize("arguments, words",
                         [(dict(processes=(0,)), "processes: got 0"),
                          (dict(length=0), "length: got 0"), (dict(window=0), "window: got 0"),
                          (dict(rate=(0.0,)), "rate: got 0.0"), (dict(link=0.0), "link: got 0.0")])
def test_wrong_sizes_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        wire.Wire(**arguments).run()
