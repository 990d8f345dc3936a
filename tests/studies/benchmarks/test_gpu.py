"""`cca-lab study gpu`: the judge of correctness, and what is drawn and refused without a GPU."""

import json

import pytest
import torch

from cca_lab.attention import interval_attention
from cca_lab.files import results_folder
from cca_lab.studies.benchmarks import gpu, gpu_correctness
from cca_lab.studies.benchmarks.results import Section
from tests.mutants import bench as mutants


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


@pytest.fixture
def judged(monkeypatch):
    """Judge an attention that stands for the kernel: the reference in the kernel's dtype."""
    def judge(bend=lambda out: out, dtype=torch.float32):
        def attend(q, k, v, table, *, backend, return_lse):
            out, lse = interval_attention(q, k, v, table, backend="dense", return_lse=True)
            return (bend(out) if backend == "triton" else out), lse

        monkeypatch.setattr(gpu_correctness, "interval_attention", attend)
        section = Section(lambda: None)
        gpu_correctness.check_attention(section, "cca", dtype, 16, length=37, sizes=(8, 8))
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
