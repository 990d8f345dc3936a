"""`cca-lab study gpu`: what is drawn and refused without a GPU."""

import json

import pytest
import torch

from cca_lab.files import results_folder
from cca_lab.studies.benchmarks import gpu


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_refuses_and_writes_nothing(tmp_path):
    with pytest.raises(ValueError, match="gpu: there is none"):
        gpu.GpuBench(out=tmp_path / "gpu.json").run()
    assert not list(tmp_path.iterdir())


def test_a_contender_that_fails_does_not_take_the_others_along():
    found, errors = gpu.timed({"bad": lambda: 1 / 0, "good": lambda: int})
    assert list(found) == ["good"] and len(found["good"]) == gpu.ROUNDS
    assert errors == {"bad": "ZeroDivisionError: division by zero"}


def test_the_committed_figure_shows_full_attention_and_the_first_setting():
    result = json.loads((results_folder() / "gpu-h100.json").read_text())
    words = set(gpu.draw(result).axes[0].get_legend_handles_labels()[1])
    assert {"flash", "sdpa", "full, kernel", "CCA, s = 1024", "CCA, kernel, s = 1024"} <= words
    assert not {"CCA, s = 4096", "CCA, flex", "pooling"} & words
