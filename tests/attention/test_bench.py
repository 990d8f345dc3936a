"""`cca-lab bench attention`: what it times and counts, and how its results are written."""

import json
import os
import stat
from functools import partial

import pytest
from rich.console import Console

from cca_lab.bench import attention, memory, report

MIB = 2**20


def test_a_run_writes_what_it_measured(tmp_path, capsys):
    file = tmp_path / "results" / "attention.json"
    result = attention.run((40, 64), (16, 32), rounds=2, out=file, memory=False)
    assert json.loads(file.read_text()) == result
    rows = result["rows"]
    assert len(rows) == 2 * 2 * 2  # lengths, windows, passes
    assert {"cpu", "threads", "torch", "python"} <= set(result["machine"])
    for row in rows:
        low, high = row["ratio_range"]
        assert 0 < low <= row["ratio"] <= high and row["share"] == row["ratio"] / row["pair_ratio"]
    shown = capsys.readouterr().out
    assert all(f"{row['pair_ratio']:.2f}" in shown for row in rows) and "forward+backward" in shown


def test_pair_ratio_by_counting():
    """L = 40, g = 16, s = 16: rows 31 .. 39 read core 0 and their raw tokens from 16 on."""
    assert attention.pair_ratio(40, 16) == 820 / (820 - 9 * 15)
    assert attention.pair_ratio(40, 64) == 1.0


def test_contenders_agree_where_cca_is_full_attention():
    full, cca = (attention.prepare(48, name, "forward+backward")() for name in ("full", 48))
    for got, wanted in zip(cca, full, strict=True):
        assert (got - wanted).abs().max() < 1e-5


def test_rounds_rotate_and_the_first_is_not_counted():
    order = []
    calls = {name: partial(order.append, name) for name in "abc"}
    seconds = attention.interleave(calls, rounds=3)
    assert "".join(order) == "cab" + "abc" + "bca" + "cab"
    assert {name: len(times) for name, times in seconds.items()} == {"a": 3, "b": 3, "c": 3}


@pytest.mark.parametrize(("arguments", "message"), [
    ({"lengths": ()}, "lengths"), ({"windows": (16, 0)}, "windows"), ({"rounds": 0}, "rounds"),
])
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message + ": got"):
        attention.run(**arguments)


def allocate(size: int):
    """Prepare by making and dropping `size` bytes, which must not count; the call keeps a quarter of it."""
    del [b"x" * size][:]
    return lambda: b"x" * (size // 4)


def test_peak_memory_counts_the_call_alone():
    peak = memory.measure_peak(allocate, 256 * MIB)
    assert 60 * MIB < peak < 80 * MIB or not memory._CLEAR.exists()


def test_peak_memory_in_a_process_of_its_own():
    assert memory.peak_of(partial, int) < 16 * MIB  # partial(int) is prepared, int() is the call


def test_json_is_written_aside_and_renamed(tmp_path):
    file = tmp_path / "x.json"
    report.write_json(file, {"a": 1})
    with pytest.raises(ValueError):
        report.write_json(file, {"a": float("nan")})
    assert json.loads(file.read_text()) == {"a": 1} and os.listdir(tmp_path) == ["x.json"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_tables_show_their_rows():
    console = Console(record=True, width=60, file=open(os.devnull, "w"))
    report.print_table("Title", ("L", "share"), [(8, "50%")], console)
    text = console.export_text()
    assert all(word in text for word in ("Title", "L", "share", "8", "50%"))
