"""The figures of README and docs/, drawn by the mechanisms and from the committed results."""

import json
from pathlib import Path

import torch

from cca_lab import CCA, DGA, Full, LoCoCo, StreamingLLM
from cca_lab.files import repository, results_folder
from cca_lab.mechanisms.reading import held
from cca_lab.reporting import write_figure
from cca_lab.studies.summary import swept
from cca_lab.views.figures.caches import holdings
from cca_lab.views.figures.training import comparison, recipes

COMPARISON, RECIPES = "docs/results/comparison.png", "docs/results/recipes.png"
READS, LENGTH, HEAD_DIM = "docs/reads.png", 48, 16
READERS = {
    "full attention: every token": Full(), "CCA: cores and a window": CCA(group=4, window=8),
    "DGA: focal tokens and groups": DGA(group=4, gamma=0.1), "LoCoCo: a memory of 8 slots": LoCoCo(slots=8, segment=8),
    "StreamingLLM: the nearest": StreamingLLM(sinks=2, recent=10)}


def _read(name: str) -> dict:
    return json.loads((results_folder() / name).read_text(encoding="utf-8"))


def reads():
    """Return the README's picture: what each query reads of 48 tokens; queries and keys are drawn at random."""
    q, k = torch.randn(2, 1, 1, LENGTH, HEAD_DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return holdings({title: held(mechanism, q, k)[0] for title, mechanism in READERS.items()})


def write() -> Path:
    """Draw every figure again; return the folder."""
    write_figure(repository() / READS, reads())
    write_figure(repository() / COMPARISON, comparison(_read("compare-gpt2-mini.json")["rows"]))
    write_figure(repository() / RECIPES, recipes(*swept(_read("sweep-gpt2-mini.json")["trials"])))
    return repository() / "docs"
