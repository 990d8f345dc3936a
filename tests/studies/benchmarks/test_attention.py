"""`cca-lab study attention`: what it times and counts, and how its results are written."""

import json
import multiprocessing
import os
import stat
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from cca_lab import reporting as report
from cca_lab.attention import native
from cca_lab.files import results_folder
from cca_lab.freed_memory import keep_freed_memory
from cca_lab.studies.benchmarks import attention, timing
from cca_lab.studies.benchmarks.attention import AttentionBench

MIB = 2**20


@pytest.fixture(autouse=True)
def small_roof(monkeypatch):
    monkeypatch.setattr(attention, "PRODUCT_SIZE", 64)
    monkeypatch.setattr(attention, "COPY_BYTES", 1 << 16)


@pytest.mark.parametrize("path", sorted(results_folder().glob("attention-*.json")),
                         ids=lambda path: path.stem)
def test_forward_points_stand_under_the_roof(path):
    """Mutant: the roof is the product that was timed apart, on one machine below the points."""
    result = json.loads(path.read_text())
    fastest = max(point.flops / point.seconds for curve in attention.points(result).values()
                  for point in curve)
    assert fastest < attention.fastest_product(result)
    assert (fastest > result["roof"]["flops"]) is (path.stem == "attention-cpu")
    row = next(row for row in result["rows"] if row["length"] == 16384)
    assert attention.rates_of(row, result["shape"])[0] == pytest.approx(
        4 * 64 * 8 * 16384 * 16385 / 2 / row["full_seconds"])


def test_a_run_writes_what_it_measured(tmp_path, capsys):
    file, png = tmp_path / "results" / "attention.json", tmp_path / "roofline.png"
    result = AttentionBench(length=(40, 64), window=(16, 32), rounds=2, out=file, memory=False,
                            native=False, figure=png).run()
    assert json.loads(file.read_text()) == result
    rows = result["rows"]
    assert len(rows) == 2 * 2 * 2  # lengths, windows, passes
    assert {"cpu", "threads", "torch", "python"} <= set(result["machine"])
    assert result["roof"]["flops"] > 0 and result["roof"]["bandwidth"] > 0
    for row in rows:
        low, high = row["ratio_range"]
        assert 0 < low <= row["ratio"] <= high and row["share"] == row["ratio"] / row["pair_ratio"]
        assert row["implementation"] == "blocked" and row["cca_of_peak"] > 0 and row[
            "full_of_peak"] > 0
    shown = capsys.readouterr().out
    assert all(f"{row['pair_ratio']:.2f}" in shown for row in rows) and "forward+backward" in shown
    assert 5_000 < png.stat().st_size < 150_000


def test_of_peak_is_useful_operations_a_second_over_the_product_s(monkeypatch):
    """Ten seconds for full attention, five for CCA, one for a product of 2 * 64^3 operations."""
    times = {attention.PRODUCT: [1.0], attention.FULL: [10.0], ("blocked", 16): [5.0]}
    monkeypatch.setattr(attention, "interleave",
                        lambda calls, rounds: {name: times[name] for name in calls})
    (row,) = attention.measure(40, [attention.FULL, ("blocked", 16)], "forward+backward", 1)
    full_flops, cca_flops = (14 * 64 * 8 * pairs for pairs in (820, 820 - 9 * 15))
    assert row["full_of_peak"] == pytest.approx(full_flops / 10 / (2 * 64**3))
    assert row["cca_of_peak"] == pytest.approx(cca_flops / 5 / (2 * 64**3))
    assert row["ratio"] == 2.0 and row["share"] == pytest.approx(2 * (820 - 9 * 15) / 820)


@pytest.mark.parametrize(("asked", "can", "wanted"),
                         [(None, True, ["blocked", "native"]), (None, False, ["blocked"]),
                          (False, True, ["blocked"]), (True, True, ["blocked", "native"])])
def test_the_native_operator_takes_part_where_it_can(monkeypatch, asked, can, wanted):
    monkeypatch.setattr(native, "available", lambda: can)
    assert attention.usable_implementations(asked) == wanted


def test_a_native_operator_that_cannot_be_built_is_refused(monkeypatch):
    monkeypatch.setattr(native, "available", lambda: False)
    with pytest.raises(ValueError, match="native: got --native"):
        AttentionBench(native=True).run()


def test_pair_ratio_by_counting():
    """L = 40, g = 16, s = 16: rows 31 .. 39 read core 0 and their raw tokens from 16 on."""
    assert attention.pair_ratio(40, 16) == 820 / (820 - 9 * 15)
    assert attention.pair_ratio(40, 64) == 1.0


@pytest.mark.parametrize("implementation", attention.usable_implementations())
def test_contenders_agree_where_cca_is_full_attention(implementation):
    full, cca = (attention.prepare(48, name, "forward+backward")()
                 for name in ("full", (implementation, 48)))
    for got, wanted in zip(cca, full, strict=True):
        assert (got - wanted).abs().max() < 1e-5


@pytest.mark.parametrize(("arguments", "message"), [
    ({"length": ()}, "length"), ({"window": (16, 0)}, "window"), ({"rounds": 0}, "rounds"),
])
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message + ": got"):
        AttentionBench(**arguments).run()


def test_memory_is_measured_once_a_contender_and_written_into_its_rows(monkeypatch):
    asked = []
    monkeypatch.setattr(attention, "peak_of",
                        lambda prepare, *case: asked.append(case) or len(asked))
    rows = [{"length": 64, "window": window, "implementation": "blocked", "pass": "forward"}
            for window in (16, 32)]
    attention.add_memory(rows)
    cases = "full", ("blocked", 16), ("blocked", 32)
    assert asked == [(64, name, "forward", "float32") for name in cases]
    assert [(row["full_peak"], row["cca_peak"]) for row in rows] == [(1, 2), (1, 3)]


def test_the_memory_of_a_contender_in_a_process_of_its_own():
    assert 0 <= timing.peak_of(attention.prepare_warm, 64, ("blocked", 16), "forward") < 64 * MIB


def allocate(size: int):
    """Prepare by making and dropping `size` bytes, which must not count.

    The call keeps a quarter of it.
    """
    del [b"x" * size][:]
    return lambda: b"x" * (size // 4)


def measured(size: int, *, keep: bool) -> int:
    if keep:
        keep_freed_memory()
    return timing.measure_peak(allocate, size)


@pytest.mark.skipif(not timing._CLEAR.exists(), reason="only Linux resets the peak of a process")
@pytest.mark.parametrize("keep", [False, True])
def test_peak_memory_counts_the_call_alone(keep):
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        peak = pool.submit(partial(measured, 256 * MIB, keep=keep)).result()
    assert 60 * MIB < peak < 80 * MIB


def test_peak_memory_in_a_process_of_its_own():
    assert timing.peak_of(partial, int) < 16 * MIB  # partial(int) is prepared, int() is the call


def test_json_is_written_aside_and_renamed(tmp_path):
    file = tmp_path / "x.json"
    report.write_json(file, {"a": 1})
    with pytest.raises(ValueError):
        report.write_json(file, {"a": float("nan")})
    assert json.loads(file.read_text()) == {"a": 1} and list(tmp_path.iterdir()) == [file]
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_a_figure_is_written_aside_and_renamed(tmp_path):
    class Broken:
        def savefig(self, *args, **kwargs):
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        report.write_figure(tmp_path / "x.png", Broken())
    assert not (tmp_path / "x.png").exists()


def test_tables_show_their_rows():
    console = Console(record=True, width=60, file=Path(os.devnull).open("w"))
    report.print_table("Title", ("L", "share"), [(8, "50%")], console)
    text = console.export_text()
    assert all(word in text for word in ("Title", "L", "share", "8", "50%"))
