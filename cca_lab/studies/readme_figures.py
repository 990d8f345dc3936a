"""The README's figures, drawn from the committed results."""

import json
from pathlib import Path

from cca_lab.files import repository, results_folder
from cca_lab.reporting import write_figure
from cca_lab.studies.summary import swept
from cca_lab.views.figures.comparison import comparison
from cca_lab.views.figures.training import recipes

COMPARISON, RECIPES = "docs/results/comparison.png", "docs/results/recipes.png"


def _read(name: str) -> dict:
    return json.loads((results_folder() / name).read_text(encoding="utf-8"))


def write() -> Path:
    """Draw every figure again; return the folder."""
    write_figure(repository() / COMPARISON, comparison(_read("compare-gpt2-mini.json")["rows"]))
    write_figure(repository() / RECIPES, recipes(*swept(_read("sweep-gpt2-mini.json")["trials"])))
    return repository() / "docs" / "results"
