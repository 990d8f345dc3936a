"""`cca-lab study gpu`: the whole command interpreted at tiny sizes; its judge.

What it does when things go wrong.
"""

import json
import os
import subprocess
import sys
import time

import pytest
import torch

from cca_lab.attention import interval_attention
from cca_lab.attention.fused import installed
from cca_lab.attention.kernels.configs import KERNELS
from cca_lab.files import repository
from cca_lab.studies.benchmarks.gpu import correctness as gpu_correctness
from cca_lab.studies.benchmarks.gpu import model as gpu_model
from cca_lab.studies.benchmarks.gpu import run as gpu
from cca_lab.studies.benchmarks.gpu import section as gpu_section
from cca_lab.studies.benchmarks.gpu import tables as gpu_tables
from cca_lab.studies.benchmarks.gpu.section import REAL, TOY
from cca_lab.studies.benchmarks.model import TOKENS
from tests.mutants import bench as mutants

needs_triton = pytest.mark.skipif(not installed(), reason="triton exists for Linux only")


# The whole command


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder after the command, in a process of its own: Triton reads its switch at import."""
    folder = tmp_path_factory.mktemp("gpu")
    return folder, interpreted("--out", str(folder))


def interpreted(*options: str) -> str:
    """What the command prints under the interpreter."""
    run = subprocess.run([sys.executable, "-m", "cca_lab", "study", "gpu", *options],
                         cwd=repository(), env=os.environ | {"TRITON_INTERPRET": "1"},
                         capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    return run.stdout


@needs_triton
def test_tiles_are_searched_by_name_alone(tmp_path):
    """All tiles of a kernel are timed, those of the table among them; nothing else runs."""
    shown = interpreted("--section", "tiles", "--out", str(tmp_path))
    (tiles,) = json.loads((tmp_path / "gpu.json").read_text())["sections"].values()
    assert [(row["kernel"], row["of_table"]) for row in tiles["rows"]] == [
        (kernel, of_table) for kernel in KERNELS for of_table in (True, False, False)]
    assert all(row["seconds"] > 0 for row in tiles["rows"]) and "tiles of the kernels" in shown
    assert not (tmp_path / "speed.json").exists() and "right?" not in shown


def test_sections_by_name_do_not_replace_those_of_another_run(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    (tmp_path / "gpu.json").write_text("{}")
    with pytest.raises(ValueError, match="out: .* has a gpu.json, whose other sections would be"):
        gpu.GpuBench(out=tmp_path, section=("decode",)).run()
    assert (tmp_path / "gpu.json").read_text() == "{}"


@needs_triton
def test_every_section_ends_without_an_error(ran):
    found = json.loads((ran[0] / "gpu.json").read_text())
    assert found["sizes"] == "toy"
    assert list(found["sections"]) == [name for name in gpu.LIMITS if name not in gpu.ASKED_FOR]
    for name, section in found["sections"].items():
        assert section["error"] is None and section["rows"], f"{name}: {section['error']}"
        errors = [row for row in section["rows"] if "error" in row]
        assert all("does not support backward on CPU" in row["error"] for row in errors), errors
        assert section["left_out"] == []


@needs_triton
def test_the_kernels_are_right(ran):
    rows = json.loads((ran[0] / "correctness.json").read_text())["rows"]
    assert [row["right"] for row in rows] == [True] * (len(TOY.cases) + 9), rows


@needs_triton
def test_every_contender_is_timed_at_every_length(ran):
    found = json.loads((ran[0] / "gpu.json").read_text())["sections"]
    speed = {(row["length"], row["pass"], row["contender"]): row for row in found["speed"]["rows"]
             if "error" not in row}
    everywhere = ["flash", "sdpa", "full, kernel", "pooling",
                  *(f"CCA, {kind}s = {s}" for _, s in TOY.settings for kind in ("", "kernel, "))]
    wanted = {(n, kind, name) for n in TOY.lengths for kind in ("forward", "backward")
              for name in everywhere}
    assert wanted | {(48, "forward", "CCA, flex")} == set(speed)
    assert {(row["length"], row["kv_heads"], row["contender"])
            for row in found["decode"]["rows"]} == {
                (n, of, f"{kind}, {what}") for n in TOY.lengths for of in TOY.kv_heads
                for kind in ("sdpa", "kernel") for what in ("full", "CCA")}
    assert {(row["prompt"], row["attention"]) for row in found["model"]["rows"]} == {
        (n - TOKENS, name) for n in TOY.lengths for name in ("full", "cca")}
    row = speed[48, "backward", "CCA, s = 16"]
    assert row["rate"] == pytest.approx(row["flops"] / row["seconds"])
    assert row["of_peak"] == pytest.approx(row["rate"] / found["speed"]["peak"])
    assert row["of_flash"] == pytest.approx(row["speedup"] * row["pairs"] / (48 * 49 / 2))


@needs_triton
def test_figures_are_drawn_small_and_tables_printed(ran):
    folder, shown = ran
    for name in ("speed.png", "roofline.png"):
        assert 5_000 < (folder / name).stat().st_size < 150_000
    assert all(words in shown for words in ("toy sizes", "useful operations", "targets"))


# Without a GPU, and within ten minutes


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_gpu_and_interpreter_it_refuses_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ValueError, match="gpu: got none .* TRITON_INTERPRET=1"):
        gpu.GpuBench(out=tmp_path / "out").run()
    assert not (tmp_path / "out").exists()


def test_the_limits_together_stay_under_ten_minutes():
    assert sum(limit + gpu.GRACE for name, limit in gpu.LIMITS.items()
               if name not in gpu.ASKED_FOR) <= 580


def test_a_section_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match="section: got 'sped', wanted one of correctness, speed"):
        gpu.GpuBench(out=tmp_path / "out", section=("sped",)).run()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("free", "layers"), [(20e9, 1), (80e9, 16), (150e9, 32)])
def test_as_many_layers_as_fit(free, layers):
    """LLaMA2-7B at 128K: 0.4 GB of weights and 2.1 GB of cache a layer, 30 GB of activations."""
    assert gpu_model.layers_that_fit(REAL, free) == layers


# What goes wrong ends a case or a section, and nothing else


SECTION = """
import json, os, sys, time
name, out = sys.argv[1:3]
os.makedirs(out, exist_ok=True)
with open(os.path.join(out, name + ".json"), "w") as file:
    json.dump({"rows": [{"number": 1}], "left_out": []}, file)
if name == "dies":
    os._exit(11)
if name == "hangs":
    time.sleep(60)
"""


@pytest.fixture
def three_sections(monkeypatch, tmp_path):
    """Sections that write a row, and then end well, die or hang."""
    runner = tmp_path / "runner.py"
    runner.write_text(SECTION)
    right = subprocess.run

    def run(command, **options):
        assert command[1:3] == ["-m", "cca_lab.studies.benchmarks.gpu.run"]
        return right([command[0], str(runner), *command[3:]], **options)

    monkeypatch.setattr(gpu.subprocess, "run", run)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(gpu, "LIMITS", dict.fromkeys(("fine", "dies", "hangs"), 1.0))
    monkeypatch.setattr(gpu, "GRACE", 3.0)
    for name in ("show", "draw"):
        monkeypatch.setattr(gpu_tables, name, lambda *args: None)


def test_a_section_that_dies_or_hangs_keeps_what_it_had_and_the_others_run(
        three_sections, tmp_path):
    found = gpu.GpuBench(out=tmp_path / "out").run()["sections"]
    assert {name: section["error"] for name, section in found.items()} == {
        "fine": None, "dies": "exit status 11", "hangs": "ended after 4 s"}
    assert all(section["rows"] == [{"number": 1}] for section in found.values())
    assert json.loads((tmp_path / "out" / "gpu.json").read_text())["sections"] == found


def test_a_case_that_fails_is_told_and_the_next_one_runs(tmp_path):
    section = gpu_section.Section(tmp_path / "x.json", 10.0)

    def fail():
        raise RuntimeError("out of memory")

    section.attempt("first", fail)
    section.attempt("second", lambda: section.add(number=float("nan")))
    section.limit = 0.0
    section.attempt("third", fail)
    found = json.loads((tmp_path / "x.json").read_text())
    assert found["rows"] == [{"case": "first", "error": "RuntimeError: out of memory"},
                             {"number": None}]
    assert found["left_out"] == ["third: no time left"]


def test_a_contender_that_fails_does_not_take_the_others_along():
    found, errors = gpu_section.timed({"bad": lambda: 1 / 0, "good": lambda: time.sleep(1e-3)}, 2,
                                      0.0)
    assert list(found) == ["good"] and len(found["good"]) == 2
    assert errors == {"bad": "ZeroDivisionError: division by zero"}


# The judge of correctness


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """Judge an attention that stands for the kernel.

    The reference in the kernel's dtype, bent by a mutant.
    """
    def judge(bend=lambda out: out, dtype=torch.float32):
        def attend(q, k, v, table, *, backend, return_lse):
            out, lse = interval_attention(q, k, v, table, backend="dense", return_lse=True)
            return (bend(out) if backend == "triton" else out), lse

        monkeypatch.setattr(gpu_correctness, "interval_attention", attend)
        section = gpu_section.Section(tmp_path / "x.json", 10.0)
        gpu_correctness.check_attention(TOY, section, "cca", dtype, 16)
        return section.found["rows"][0]

    return judge


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_rounding_is_no_mistake(judged, dtype):
    row = judged(dtype=dtype)
    assert row["right"] and 0 < max(row["errors_in_eps"].values()) < row["tolerance_in_eps"]


@pytest.mark.parametrize("mutant", mutants.KERNELS, ids=lambda mutant: mutant.__name__)
def test_wrong_outputs_and_gradients_are_noticed(judged, mutant):
    assert not judged(mutant)["right"]


def test_memory_is_poisoned_and_no_longer_afterwards():
    with gpu_correctness.poisoned():
        assert torch.empty(1000).isnan().all()
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_reference_in_chunks_is_that_of_the_whole(monkeypatch):
    monkeypatch.setattr(gpu_correctness, "ROWS", 10)
    table, columns = gpu_correctness.table_of("cca", 37, 8, 8)
    q, grad = torch.randn(2, 1, 4, 37, 8)
    k, v = torch.randn(2, 1, 2, columns, 8)
    grad_lse = torch.randn(1, 4, 37)
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    out, lse = interval_attention(*leaves, table, backend="dense", return_lse=True)
    wanted = out, lse, *torch.autograd.grad((out, lse), leaves, (grad.double(), grad_lse.double()))
    found = gpu_correctness.reference(q, k, v, table, grad, grad_lse)
    assert all(torch.allclose(a, b, rtol=0, atol=1e-12) for a, b in zip(found, wanted, strict=True))


# Targets


def speed_row(name, kind, length, **numbers):
    return {"contender": name, "pass": kind, "length": length, "setting": [16, 1024], **numbers}


def test_targets_are_judged_at_the_longest_length():
    rows = [speed_row("CCA, kernel, s = 1024", "forward", n, of_flash=of)
            for n, of in ((4096, 0.5), (131072, 0.93))]
    rows += [speed_row("CCA, kernel, s = 1024", "backward", 131072, of_flash=0.7),
             speed_row("CCA, kernel, s = 4096", "forward", 262144, of_flash=0.1) | {
                 "setting": [16, 4096]},
             {"contender": "CCA, flex", "length": 131072, "error": "no"}]
    right = {"rows": [{"right": True}, {"right": False}]}
    judged = gpu_tables.targets({"speed": {"rows": rows}, "correctness": right})
    assert [(row["got"], row["met"]) for row in judged] == [(1, False), (0.93, True), (0.7, False)]


def test_times_are_compared_with_sdpa_at_the_same_length_and_pass():
    rows = [speed_row("sdpa", "forward", 64, seconds=2.0, pairs=9),
            speed_row("sdpa", "forward", 128, seconds=8.0, pairs=9),
            speed_row("CCA, s = 8", "forward", 64, seconds=1.0, pairs=4),
            speed_row("CCA, s = 8", "forward", 128, error="no"),
            speed_row("pooling", "forward", 64, seconds=1.0, pairs=0),
            speed_row("sdpa", "backward", 64, seconds=3.0, pairs=9)]
    columns, cells = gpu_tables.speed_table({"speed": {"rows": rows}})
    assert columns == ["pass", "contender", "64", "128"]
    assert cells == [["forward", "sdpa", "2000.00 (1.00)", "8000.00 (1.00)"],
                     ["forward", "CCA, s = 8", "1000.00 (2.00)", "-"],
                     ["forward", "pooling", "1000.00", "-"],
                     ["backward", "sdpa", "3000.00 (1.00)", "-"]]


def test_without_a_number_a_target_is_neither_met_nor_missed():
    assert {row["met"] for row in gpu_tables.targets({})} == {None}


def test_figures_show_full_attention_and_the_first_setting():
    rows = [{"contender": name, "pass": "forward", "length": 64, "pairs": 1, "setting": setting}
            for name, setting in (("flash", None), ("sdpa", None), ("full, kernel", None),
                                  ("CCA, s = 8", [4, 8]), ("CCA, kernel, s = 8",
                                                           [4, 8]), ("CCA, flex", [4, 8]),
                                  ("CCA, s = 16", [4, 16]), ("CCA, kernel, s = 16", [4, 16]))]
    rows.append(
        {"contender": "pooling", "pass": "forward", "length": 64, "pairs": 0, "setting": [4, 8]})
    assert list(gpu_tables.drawn(rows)) == ["flash", "sdpa", "full, kernel", "CCA, flex",
                                            "CCA, s = 8", "CCA, kernel, s = 8"]
