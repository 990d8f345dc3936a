"""Recipes for finetuning, each tried on CCA and on full attention: `cca-lab study sweep`.

All read equally many tokens. A sweep ranks the recipes; `recover` measures the chosen one.
"""

from dataclasses import dataclass, replace

from cca_lab.mechanisms import mechanism_of
from cca_lab.models.recipe import FinetuneConfig, Optimizer
from cca_lab.options import Count, Natural
from cca_lab.studies.study import note_full
from cca_lab.studies.trials import Trial, Trials
from cca_lab.tasks.reading import Reading


@dataclass(frozen=True)
class SweepRecipe:
    """The hyperparameters that a sweep varies, named as in `FinetuneConfig` and `Reading`."""

    learning_rate: float = 1e-3
    steps: int = 100
    text_share: float = 0.75
    grow: float = 0.6
    optimizer: Optimizer = "adamw"
    rows: int = 8

    @property
    def control(self) -> str:
        """The recipe in a few words, as used for full attention, which has no groups."""
        return (f"{self.optimizer} {self.learning_rate:g}, {self.steps} x {self.rows}, text "
                f"{self.text_share:.0%}")

    @property
    def name(self) -> str:
        """The recipe in a few words."""
        return f"{self.control}, groups {'grow' if self.grow else 'fixed'}"

    def trial(self, attention: str, options: dict[str, int], seed: int) -> Trial:
        """Return the trial that trains an attention by this recipe."""
        config = FinetuneConfig(self.steps, "full", self.learning_rate, self.optimizer,
                                grow=self.grow)
        reading = Reading(rows=self.rows, text_share=self.text_share, seed=seed)
        return Trial(attention, options, config, reading)


# Tried with every seed; the others with one.
CLOSE = SweepRecipe(), SweepRecipe(learning_rate=3e-3), SweepRecipe(grow=0.0)
RECIPES = (*CLOSE, SweepRecipe(learning_rate=3e-4),
           SweepRecipe(learning_rate=3e-3, optimizer="muon"), SweepRecipe(text_share=0.5),
           SweepRecipe(text_share=0.9), SweepRecipe(steps=50, rows=16))


@dataclass(frozen=True, kw_only=True)
class Sweep(Trials):
    """Try recipes for finetuning on CCA, and on full attention as the control."""

    group: Count = 8
    """Tokens per group."""
    window: Count = 64
    """Local window, in tokens."""
    seeds: Count = 3
    """Seeds for the three closest recipes; the others have one."""
    questions: Natural = 16  # one at each offset
    """Questions for each place of the answer and kind."""

    def trials(self) -> dict[str, Trial]:
        """Return the base, swapped CCA, and each recipe for both."""
        options = {"group": self.group, "window": self.window}
        note_full(mechanism_of("cca", options), self.evaluation.length)
        trials = {"full": Trial("full"), "cca": Trial("cca", options)}
        for seed in range(self.seeds):
            for recipe in RECIPES if seed == 0 else CLOSE:
                trials[f"cca, {recipe.name}, seed {seed}"] = recipe.trial("cca", options, seed)
                trials[f"full, {recipe.control}, seed {seed}"] = replace(recipe, grow=0.0).trial(
                    "full", {}, seed)
        return trials
