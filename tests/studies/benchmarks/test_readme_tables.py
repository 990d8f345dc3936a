"""The README's tables of measurements hold what the commands write."""

import json

import pytest

from cca_lab.mechanisms.base import EVERY_ROW
from cca_lab.studies import model_tables as readme


@pytest.fixture
def results(tmp_path, monkeypatch):
    """An empty folder in the place of the committed results."""
    monkeypatch.setattr(readme, "results_folder", lambda: tmp_path)
    return tmp_path


def cells(text):
    return [[cell.strip() for cell in line.strip("|\n").split("|")] for line in text.splitlines()
            if line[:1] == "|"]


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
