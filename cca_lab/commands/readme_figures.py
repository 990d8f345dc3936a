"""The README's figures, drawn from the committed results."""

import json
from pathlib import Path

from cca_lab.figures.comparison import comparison
from cca_lab.paths import repository, results_folder

COMPARISON = "docs/comparison.png"
DPI = 110


def write() -> Path:
    """Draw every figure anew; return the folder."""
    found = json.loads((results_folder() / "compare-gpt2-mini.json").read_text(encoding="utf-8"))
    path = repository() / COMPARISON
    aside = path.with_suffix(".part")
    comparison(found["rows"]).savefig(aside, format="png", dpi=DPI, metadata={"Software": None})
    aside.replace(path)
    return path.parent
