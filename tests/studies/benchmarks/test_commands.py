"""The commands `cca-lab study ...`: options reach the measurements, and bad input is one line."""

import json

import pytest
import torch
from typer.testing import CliRunner

from cca_lab.cli import app
from cca_lab.studies.benchmarks import attention


def call(*words):
    return CliRunner().invoke(app, ["study", *words], env={"COLUMNS": "200", "TERM": "dumb"})


def test_attention(tmp_path, monkeypatch):
    monkeypatch.setattr(attention, "PRODUCT_SIZE", 64)
    monkeypatch.setattr(attention, "COPY_BYTES", 1 << 16)
    out, figure = tmp_path / "a.json", tmp_path / "a.png"
    done = call("attention", "--out", str(out), "--length", "40", "--window", "16", "--rounds", "1",
                "--no-memory", "--no-native", "--figure", str(figure))
    assert done.exit_code == 0, done.output
    assert len(json.loads(out.read_text())["rows"]) == 2 and figure.exists()


def test_decode(tmp_path):
    out = tmp_path / "d.json"
    done = call("decode", "--out", str(out), "--length", "64", "--cache", "lococo", "--rounds", "1")
    assert done.exit_code == 0, done.output
    assert [row["cache"] for row in json.loads(out.read_text())["rows"]
            ] == ["full", "full, copied", "lococo"] * 2


def test_model(tmp_path):
    out = tmp_path / "m.json"
    done = call("model", "--out", str(out), "--layers", "1", "--width", "16", "--heads", "2",
                "--prompt", "20", "--attention", "cca", "--rounds", "1")
    assert done.exit_code == 0, done.output
    assert [row["attention"] for row in json.loads(out.read_text())["training"]] == ["full", "cca"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_gpu_without_a_gpu(tmp_path):
    done = call("gpu", "--out", str(tmp_path / "gpu"))
    assert done.exit_code == 2 and done.output.startswith("error: gpu: got none")


@pytest.mark.parametrize("words", [("attention", "--rounds", "0"),
                                   ("decode", "--cache", "minference"), ("model", "--heads", "3")])
def test_bad_input_is_one_line(words):
    done = call(*words)
    assert done.exit_code == 2 and done.output.startswith("error: ") and done.output.count(
        "\n") == 1
