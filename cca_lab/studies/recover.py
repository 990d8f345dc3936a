"""`cca-lab study recover`: what a swap costs a model, and what finetuning recovers."""

from dataclasses import dataclass, replace
from typing import Any

from cca_lab.mechanisms import CCA, MECHANISMS, class_of, mechanism_of
from cca_lab.mechanisms.caches import fits, fitted
from cca_lab.models.recipe import FinetuneConfig
from cca_lab.settings import LARGEST_WRITTEN, nested, option
from cca_lab.studies.study import MOST_SEEDS, given, label, note_full
from cca_lab.studies.trials import Trial, Trials
from cca_lab.tasks.reading import Reading

# The lab's first recipe: documents of one length at constant places, groups of constant size.
ALIGNED: dict[str, Any] = {"shift": 0, "varied": False}
RUN = ("warmup", "accumulation", "weight_decay", "clip", "save_every", "precision")  # not asked for


@dataclass(frozen=True, kw_only=True)
class Recover(Trials):
    """Measure a model before the swap to CCA, after it, and after finetuning.

    The control is the base model finetuned with full attention for as many steps, since training by
    itself changes the numbers. Other mechanisms keep as many keys and values as CCA does.
    """

    group: tuple[int, ...] = option((8, 4, 16), "Tokens per group; repeatable.", least=1,
                                    most=LARGEST_WRITTEN)
    window: tuple[int, ...] = option((64, ), "Local window, in tokens; repeatable.", least=1,
                                     most=LARGEST_WRITTEN)
    mechanism: tuple[str, ...] = option((), "Another mechanism to finetune beside CCA; repeatable.")
    aligned: bool = option(False, "Also finetune on documents at fixed positions.")
    seeds: int = option(3, "Finetuning runs per setting, with seeds 0, 1, ...", least=1,
                        most=MOST_SEEDS)
    questions: int = 48  # per place and kind: three at each of sixteen offsets
    config: FinetuneConfig = nested(FinetuneConfig, without=RUN)
    reading: Reading = nested(Reading, without=("seed", "shift", "varied"))
    option: tuple[str, ...] = option((), "Another option of CCA; repeatable.", metavar="NAME=VALUE")

    @property
    def tokens(self) -> int | None:
        """Tokens per context: those of a training sequence."""
        return self.reading.length

    def trials(self) -> dict[str, Trial]:
        """Return the base, the swapped models, and every training of each seed."""
        config = self.config
        check_trains(config)
        options = given("cca", self.option)
        for key in ("group", "window"):
            if key in options:
                raise ValueError(f"option: got {key}={options[key]}; give it as --{key}")
        for name in self.mechanism:
            class_of(name, "mechanism")
        settings = [("cca", {"group": group, "window": window, **options})
                    for group in self.group for window in self.window]
        settings += [(name, self._as_large(name, settings[0][1])) for name in self.mechanism]
        for name, chosen in settings:
            note_full(mechanism_of(name, chosen), self.evaluation.length)
        trials = {"full": Trial("full")} | {label(name, chosen): Trial(name, chosen)
                                            for name, chosen in settings}
        for seed in range(self.seeds):
            reading = replace(self.reading, seed=seed)
            for name, chosen in [("full", {}), *settings]:
                strategy = "full" if name == "full" else config.strategy
                trials[f"{label(name, chosen)}, {strategy}, seed {seed}"] = Trial(
                    name, chosen, replace(config, strategy=strategy), reading)
            if self.aligned:
                trials[f"{label(*settings[0])}, aligned, seed {seed}"] = Trial(
                    *settings[0], replace(config, grow=0.0), replace(reading, **ALIGNED))
        return trials

    def _as_large(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        """Return the options with which a mechanism keeps as many entries as CCA with `options`."""
        length = self.evaluation.length
        kept = CCA(**options).cache_entries(length)
        base = self.loaded[0].config
        return (fitted(base, name, kept, length) if fits(name) else MECHANISMS[name]()).options()


def check_trains(config: FinetuneConfig) -> None:
    """Raise ValueError for a recipe that trains nothing of CCA."""
    if config.steps < 1 or config.strategy not in ("full", "qkv"):
        raise ValueError(
            f"steps, strategy: got {config.steps} and {config.strategy!r}, wanted a training of "
            "CCA, which adds no weights; `cca-lab evaluate` measures without one")
