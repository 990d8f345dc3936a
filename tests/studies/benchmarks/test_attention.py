"""`cca-lab study attention`: what it times and counts, and how its results are written."""

import json

import pytest

from cca_lab.files import results_folder
from cca_lab.studies.benchmarks import attention


@pytest.mark.parametrize("name", ["attention-cpu", "attention-epyc-bfloat16",
                                  "attention-xeon-bfloat16", "attention-xeon-float32"])
def test_forward_points_stand_under_the_roof(name):
    """Mutant: the roof is the product that was timed apart, on one machine below the points."""
    result = json.loads((results_folder() / f"{name}.json").read_text())
    fastest = max(point.flops / point.seconds for curve in attention.points(result).values()
                  for point in curve)
    assert fastest < attention.fastest_product(result)
    assert (fastest > result["roof"]["flops"]) is (name == "attention-cpu")
    row = next(row for row in result["rows"] if row["length"] == 16384)
    assert attention.rates_of(row, result["shape"])[0] == pytest.approx(
        4 * 64 * 8 * 16384 * 16385 / 2 / row["full_seconds"])


def test_a_run_writes_and_prints_what_it_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(attention, "PRODUCT_SIZE", 64)
    monkeypatch.setattr(attention, "COPY_BYTES", 1 << 16)
    monkeypatch.setattr(attention, "peak_of", lambda prepare, length, name, *_: 2**20 * len(name))
    out = tmp_path / "attention.json"
    monkeypatch.setattr(attention, "backends", lambda dtype: ["blocked"])
    attention.AttentionBench(length=(40,), window=(16,), rounds=2, out=out).run()
    result = json.loads(out.read_text())
    assert [(row["pass"], row["implementation"]) for row in result["rows"]] == [
        (kind, "blocked") for kind in attention.PASSES]
    for row in result["rows"]:
        low, high = row["ratio_range"]
        assert 0 < low <= row["ratio"] <= high and row["share"] == pytest.approx(
            row["ratio"] / row["pair_ratio"])
        assert row["full_of_peak"] > 0 and row["cca_of_peak"] > 0
        assert (row["full_peak"], row["cca_peak"]) == (4 * 2**20, 2 * 2**20)
    assert result["roof"]["flops"] > 0 and result["roof"]["bandwidth"] > 0
    shown = capsys.readouterr().out
    assert attention.table(result) in shown and len(attention.draw(result).axes) == 2


def test_of_peak_is_useful_operations_a_second_over_the_product_s(monkeypatch):
    """Ten seconds for full attention, five for CCA, one for a product of 2 * 64^3 operations."""
    times = {attention.PRODUCT: [1.0], attention.FULL: [10.0], ("blocked", 16): [5.0]}
    monkeypatch.setattr(attention, "PRODUCT_SIZE", 64)
    monkeypatch.setattr(attention, "interleave",
                        lambda calls, rounds: {name: times[name] for name in calls})
    (row,) = attention.measure(40, [attention.FULL, ("blocked", 16)], "forward+backward", 1)
    # L = 40, g = 16, s = 16: rows 31 .. 39 read core 0 and their raw tokens from 16 on
    full_flops, cca_flops = (14 * 64 * 8 * pairs for pairs in (820, 820 - 9 * 15))
    assert row["full_of_peak"] == pytest.approx(full_flops / 10 / (2 * 64**3))
    assert row["cca_of_peak"] == pytest.approx(cca_flops / 5 / (2 * 64**3))
    assert row["ratio"] == 2.0 and row["share"] == pytest.approx(2 * (820 - 9 * 15) / 820)


def test_contenders_agree_where_cca_is_full_attention():
    full, *others = (attention.prepare(48, name, "forward+backward")()
                     for name in ("full", *((each, 48) for each in attention.backends())))
    for gradients in others:
        for got, wanted in zip(gradients, full, strict=True):
            assert (got - wanted).abs().max() < 1e-5
