"""The README's tables of measurements hold what the commands write."""

import json

import pytest

from cca_lab.mechanisms.base import EVERY_ROW
from cca_lab.studies import tables as readme
from cca_lab.studies.benchmarks import attention, decode, model, peers


@pytest.fixture
def results(tmp_path, monkeypatch):
    """An empty folder in the place of the committed results."""
    monkeypatch.setattr(readme, "results_folder", lambda: tmp_path)
    return tmp_path


def cells(text):
    return [[cell.strip() for cell in line.strip("|\n").split("|")] for line in text.splitlines()
            if line[:1] == "|"]


def test_attention(results, monkeypatch):
    monkeypatch.setattr(attention, "PRODUCT_SIZE", 64)
    monkeypatch.setattr(attention, "COPY_BYTES", 1 << 16)
    found = attention.AttentionBench(length=(40, ), window=(16, ), rounds=1,
                                     out=results / "attention-cpu.json", memory=False,
                                     native=False).run()
    header, _, *rows = cells(readme.attention())
    assert [row[:4] for row in rows] == [[kind, "40", "16", "blocked"] for kind in attention.PASSES]
    assert all(len(row) == len(header) for row in rows)
    assert rows[0][header.index("CCA, of peak")] == f"{100 * found['rows'][0]['cca_of_peak']:.0f} %"


def test_decode(results):
    found = decode.Decode(length=(1024, 2048), cache=("lococo", ), rounds=1,
                          out=results / "decode-cpu.json").run()
    header, _, *rows = cells(readme.decode())
    assert [row[:2] for row in rows] == [[shape, name] for shape in ("8 / 8 x 64", "32 / 8 x 128")
                                         for name in ("full", "full, copied", "lococo")]
    assert header[-2:] == ["full / its time, 1K", "full / its time, 2K"]
    assert rows[2][3] == "4.0" and rows[2][4] == f"{found['rows'][2]['ratio']:.1f}"


def test_model(results):
    found = model.ModelBench(layers=1, width=16, heads=2, prompt=(20, 40), attention=("cca", ),
                             rounds=1, step=(1, 24), out=results / "model-cpu.json").run()
    header, _, *rows = cells(readme.model())
    assert [row[0] for row in rows] == ["full", "cca"] and all(
        len(row) == len(header) == 6 for row in rows)
    assert rows[1][1] == f"{1e3 * found['writing'][1]['first_seconds']:.0f}"
    assert rows[1][-1] == f"{found['training'][1]['tokens_a_second']:.0f}"


def test_peers(results, monkeypatch):
    """A form that was not measured has dashes, and its reason stands below the table."""
    monkeypatch.setattr(peers, "FORMS", (peers.FORMS[0], peers.FORMS[4]))
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    found = peers.Peers(length=(64, 128), dtype=("float32",), rounds=1,
                        out=results / "peers-cpu.json").run()
    text = readme.peers()
    header, _, full, masked = cells(text)
    assert len(header) == len(full) == 3 + 2 * 3 and masked[3:] == ["-"] * 6
    assert full[4] == f"{found['rows'][0]['rate'] / 1e9:.0f}" and full[5] == "1.00"
    assert "at 64, 128 tokens: float32, openvino" in text and "not installed" in text


def test_adapters_trained_alike_are_compared_seed_by_seed(results):
    """Each with the control of its own seed; needles of all seeds are added up."""
    def row(*values, scope=EVERY_ROW):
        return {"perplexity": [{"value": value} for value in values], "causal_scope": scope,
                "options": {"others": {"name": "streaming_llm", "sinks": 4, "recent": 8}}}

    rows = {"full": row(9, 9), "full-0": row(2, 4), "full-1": row(10, 20),
            "window-0": row(3, 4), "window-1": row(15, 22), "dga-0": row(3, 4, scope="prompt")}
    lengths = {"rows": rows, "buckets": [0, 64, 128], "windows": 4, "length": 128}
    (results / "lengths-alike-smollm2.json").write_text(json.dumps(lengths))
    lengths |= {"rows": {"full-0": row(1, 4), "window-0": row(1, 5)}, "windows": 8}
    (results / "lengths-4608-alike-smollm2.json").write_text(json.dumps(lengths))
    for seed, found in enumerate((0.5, 1.0)):
        found_at = [{"length": 64, "depth": depth, "exact": {"value": share, "samples": 4}}
                    for depth, share in ((0, found), (0.5, 1.0), (1.0, 0.25))]
        (results / f"alike-window-{seed}.json").write_text(json.dumps(
            {"model": f"smollm2-window-{seed}", "task": "niah_multikey", "lengths": [64],
             "precision": "bf16", "cells": found_at}))
    _, _, full, window, dga = cells(readme.alike())
    assert full[1:] == ["1.000 [1.000, 1.000]"] * 3 + ["-"]
    assert window == ["StreamingLLM sinks=4 recent=8", "1.500 [1.500, 1.500]",
                      "1.050 [1.000, 1.100]", "1.250 [1.250, 1.250]", "14 of 16"]
    assert dga[0].endswith("*") and dga[3:] == ["-", "-"]  # it reads ahead


def test_the_table_of_lengths_marks_what_reads_ahead():
    """Mutant: the scope is looked for in a sentence that both kinds have, and nothing is marked."""
    marked = {name.removesuffix(" *") for name, *_ in cells(readme.lengths()) if "*" in name}
    assert marked == {"Dynamic Group Attention, swapped"}
