"""`cca-lab sweep`: recipes for finetuning, each tried on CCA and, as its control, on full attention.

All recipes read the same number of tokens, a third of a run with the defaults. A sweep ranks the recipes;
`cca-lab recover` measures the chosen one.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from cca_lab.mechanisms import mechanism_of
from cca_lab.models.recipe import FinetuneConfig
from cca_lab.settings import LARGEST_WRITTEN, check_sizes
from cca_lab.studies.evaluate import note_full
from cca_lab.studies.recover import MOST_SEEDS, print_recovery
from cca_lab.studies.trials import Study, Trial
from cca_lab.tasks.reading import Reading

QUESTIONS = 16  # per position and kind: one at each offset


@dataclass(frozen=True)
class Recipe:
    """The hyperparameters that a sweep varies; the attributes are those of `FinetuneConfig` and `Reading`."""

    learning_rate: float = 1e-3
    steps: int = 100
    text_share: float = 0.75
    grow: float = 0.6
    optimizer: str = "adamw"
    rows: int = 8

    @property
    def control(self) -> str:
        """The recipe in a few words, as used for full attention, which has no groups."""
        return f"{self.optimizer} {self.learning_rate:g}, {self.steps} x {self.rows}, text {self.text_share:.0%}"

    @property
    def name(self) -> str:
        """The recipe in a few words."""
        return f"{self.control}, groups {'grow' if self.grow else 'fixed'}"

    def trial(self, attention: str, options: dict, seed: int) -> Trial:
        """Return the trial that trains an attention by this recipe."""
        config = FinetuneConfig(self.steps, "full", self.learning_rate, self.optimizer, grow=self.grow)
        return Trial(attention, options, config, Reading(rows=self.rows, text_share=self.text_share, seed=seed))


CLOSE = (Recipe(), Recipe(learning_rate=3e-3), Recipe(grow=0.0))  # tried with every seed
RECIPES = (*CLOSE, Recipe(learning_rate=3e-4), Recipe(learning_rate=3e-3, optimizer="muon"), Recipe(text_share=0.5),
           Recipe(text_share=0.9), Recipe(steps=50, rows=16))


def sweep(model_name: str, out: Path, *, group: int = 8, window: int = 64, seeds: int = 3,
          text: str | None = None) -> dict[str, dict]:
    """Train CCA and the control by every recipe; print the table, and store it in a file that a later call continues.

    Args:
        model_name: a folder or a hub name.
        out: the JSON file.
        group, window: tokens per group and local window of CCA.
        seeds: number of seeds for the recipes in `CLOSE`; the others have one.
        text: as in `load_corpus`.

    Raises:
        ValueError: for a number out of range, or a file with other settings.
    """
    check_sizes(seeds=(seeds, 1, MOST_SEEDS), group=(group, 1, LARGEST_WRITTEN), window=(window, 1, LARGEST_WRITTEN))
    study = Study(model_name, out, questions=QUESTIONS, text=text)
    options = {"group": group, "window": window}
    note_full(mechanism_of("cca", options), study.evaluation.length)
    trials = {"full": Trial("full"), "cca": Trial("cca", options)}
    for seed in range(seeds):
        for recipe in RECIPES if seed == 0 else CLOSE:
            trials[f"cca, {recipe.name}, seed {seed}"] = recipe.trial("cca", options, seed)
            trials[f"full, {recipe.control}, seed {seed}"] = replace(recipe, grow=0.0).trial("full", {}, seed)
    rows = study.run(trials)
    print_recovery(rows, f"{study.result['model']}, recipes")
    return rows
