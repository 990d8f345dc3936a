"""`cca-lab recover`: what the swap to a mechanism costs a model, and what finetuning recovers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from cca_lab.mechanisms import MECHANISMS, class_of, mechanism_of
from cca_lab.mechanisms.caches import fits, fitted
from cca_lab.mechanisms.cca.groups import cache_tokens
from cca_lab.models.recipe import FinetuneConfig
from cca_lab.reporting import print_table
from cca_lab.settings import LARGEST_WRITTEN, check_sizes
from cca_lab.studies.evaluate import note_full
from cca_lab.studies.summary import COLUMNS, summaries
from cca_lab.studies.trials import Study, Trial
from cca_lab.tasks.reading import Reading

# The lab's first recipe: documents of one length, always at the same places, and groups of constant size.
ALIGNED = {"shift": 0, "varied": False}
TRAINED = {"": "swapped", "full": "finetuned", "qkv": "finetuned, W^Q W^K W^V only",
           "compressor": "finetuned, its own weights only", "aligned": "finetuned on aligned documents"}
MOST_SEEDS = 100
QUESTIONS = 48  # per position and kind: three at each of sixteen offsets


def recover(model_name: str, out: Path, *, config: FinetuneConfig, reading: Reading, groups: Sequence[int],
            windows: Sequence[int], options: Mapping = MappingProxyType({}), seeds: int = 3,
            mechanisms: Sequence[str] = (), aligned: bool = False, text: str | None = None) -> dict[str, dict]:
    """Measure a model with full attention, swapped, and finetuned, for each setting and seed.

    The control is the base model finetuned with full attention for as many steps: training by itself
    changes the numbers, so every recovery is compared with that. Other mechanisms keep as many keys
    and values at the end of a context as CCA with the first group and window.

    Args:
        model_name: a folder or a hub name.
        out: the JSON file; what it holds already is not measured again, so an interrupted command continues.
        config: hyperparameters of every finetuning.
        reading: the training data, except for the seed; the same for every attention.
        groups, windows: tokens per group and local windows of CCA; every combination is measured.
        options: other options of CCA.
        seeds: number of finetuning runs per setting, with the seeds 0, 1, ...
        mechanisms: other mechanisms to finetune.
        aligned: also finetune CCA's first setting on documents that always begin at the same places.
        text: as in `load_corpus`.

    Returns:
        One measurement per trial, as in `Study.run`.

    Raises:
        ValueError: for zero steps, a number out of range, or a file with other settings.
    """
    if config.steps < 1 or config.strategy == "none":
        raise ValueError(f"steps, strategy: got {config.steps} and {config.strategy!r}, wanted a training; `cca-lab "
                         "evaluate` measures without one")
    check_sizes(seeds=(seeds, 1, MOST_SEEDS), group=(groups, 1, LARGEST_WRITTEN), window=(windows, 1, LARGEST_WRITTEN))
    for name in mechanisms:
        class_of(name, "mechanism")
    study = Study(model_name, out, questions=QUESTIONS, length=reading.length, text=text)
    settings = [("cca", {"group": group, "window": window, **options}) for group in groups for window in windows]
    settings += [(name, _as_large(study, name, groups[0], windows[0])) for name in mechanisms]
    for name, own in settings:
        note_full(mechanism_of(name, own), study.evaluation.length)
    trials = {"full": Trial("full")}
    trials |= {label(name, own): Trial(name, own) for name, own in settings}
    for seed in range(seeds):
        drawn = replace(reading, seed=seed)
        for name, own in [("full", {}), *settings]:
            strategy = "full" if name == "full" else config.strategy
            trial = Trial(name, own, replace(config, strategy=strategy), drawn)
            trials[f"{label(name, own)}, {strategy}, seed {seed}"] = trial
        if aligned:
            trials[f"{label(*settings[0])}, aligned, seed {seed}"] = Trial(
                *settings[0], replace(config, grow=0.0), replace(drawn, **ALIGNED))
    rows = study.run(trials)
    print_recovery(rows, f"{study.result['model']}, {study.evaluation.length} tokens")
    return rows


def label(name: str, options: dict) -> str:
    """Return a short name of an attention and its options; an option holds no space."""
    def written(value: object) -> str:
        if isinstance(value, str):
            return value
        return f"{value:.3g}" if isinstance(value, float) else json.dumps(value, separators=(",", ":"))

    return " ".join([name, *(f"{key}={written(value)}" for key, value in options.items())])


def spoken(name: str) -> str:
    """Return a trial's name, without its seed, in words."""
    attention, _, trained = name.partition(", ")
    mechanism, *options = attention.split(" ")
    title = {"full": "full attention", "cca": "CCA"}.get(mechanism) or MECHANISMS[mechanism].title
    short = {"group": "g", "window": "s"}
    shown = ", ".join(f"{short.get(key, key)} {value}" for key, value in (option.split("=", 1) for option in options))
    how = ("", "finetuned, the control")[bool(trained)] if mechanism == "full" else TRAINED[trained]
    return ", ".join(filter(None, (f"{title} {shown}".strip(), how)))


def _as_large(study: Study, name: str, group: int, window: int) -> dict:
    """Return the options with which a mechanism keeps as many entries of a whole context as CCA does."""
    length = study.evaluation.length
    kept = cache_tokens(length, group, window)
    return (fitted(study.base.config, name, kept, length) if fits(name) else MECHANISMS[name]()).options()


def print_recovery(rows: dict[str, dict], title: str) -> None:
    """Print the trials, averaged over seeds, as a table."""
    print_table(f"{title}: exact match over every offset; [lowest, highest seed], or 95 % of one",
                ["attention", *COLUMNS], [[name, *mean.cells()] for name, mean in summaries(rows).items()])
