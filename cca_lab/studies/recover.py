"""`cca-lab study recover`: what a swap costs a model, and what finetuning recovers."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from cca_lab.mechanisms import CCA, MECHANISMS, class_of, mechanism_of
from cca_lab.models.recipe import FinetuneConfig
from cca_lab.options import Count, Natural
from cca_lab.studies.study import given, label, note_full
from cca_lab.studies.trials import Trial, Trials
from cca_lab.tasks.reading import Reading

# The lab's first recipe: documents of one length at constant places, groups of constant size.
ALIGNED: dict[str, Any] = {"shift": 0, "varied": False}


@dataclass(frozen=True, kw_only=True)
class Recover(Trials):
    """Measure a model before the swap to CCA, after it, and after finetuning.

    The control is the base model finetuned with full attention for as many steps, since training by
    itself changes the numbers. Other mechanisms keep as many keys and values as CCA does.
    """

    group: tuple[Count, ...] = (8, 4, 16)
    """Tokens per group."""
    window: tuple[Count, ...] = (64,)
    """Local windows, in tokens."""
    option: tuple[str, ...] = ()
    """Other options of CCA, NAME=VALUE."""
    mechanism: tuple[str, ...] = ()
    """Other mechanisms to finetune beside CCA."""
    aligned: bool = False
    """Also finetune on documents at fixed positions."""
    seeds: Count = 3
    """Finetuning runs per setting, with seeds 0, 1, ..."""
    questions: Natural = 48  # three at each of sixteen offsets
    """Questions for each place of the answer and kind."""
    steps: Count = 300
    """Optimizer steps of a finetuning."""
    strategy: Literal["full", "qkv"] = "full"
    """Weights to train: full, or qkv (W^Q, W^K, W^V only, the paper's partial finetuning)."""
    rows: Count = 8
    """Sequences per step."""

    def trials(self) -> dict[str, Trial]:
        """Return the base, the swapped models, and every training of each seed."""
        config = FinetuneConfig(self.steps, self.strategy)
        every = Reading(self.length, self.rows)
        for name in self.mechanism:
            class_of(name, "mechanism")
        settings = [("cca", given("cca", self.option, group=group, window=window))
                    for group in self.group for window in self.window]
        settings += [(name, self._as_large(name, settings[0][1])) for name in self.mechanism]
        for name, chosen in settings:
            note_full(mechanism_of(name, chosen), self.evaluation.length)
        trials = {"full": Trial("full")} | {label(name, chosen): Trial(name, chosen)
                                            for name, chosen in settings}
        for seed in range(self.seeds):
            reading = replace(every, seed=seed)
            for name, chosen in [("full", {}), *settings]:
                strategy = "full" if name == "full" else self.strategy
                trials[f"{label(name, chosen)}, {strategy}, seed {seed}"] = Trial(
                    name, chosen, replace(config, strategy=strategy), reading)
            if self.aligned:
                trials[f"{label(*settings[0])}, aligned, seed {seed}"] = Trial(
                    *settings[0], replace(config, grow=0.0), replace(reading, **ALIGNED))
        return trials

    def _as_large(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        """Return the options with which a mechanism keeps as many entries as CCA with `options`."""
        from cca_lab.mechanisms.caches import fits, fitted

        length = self.evaluation.length
        kept = CCA(**options).cache_entries(length)
        base = self.loaded[0].config
        return (fitted(base, name, kept, length) if fits(name) else MECHANISMS[name]()).options()
