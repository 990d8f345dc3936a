"""A paper's table or figure, re-enacted: its claim as an order of settings, and its test."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cca_lab.models.recipe import FinetuneConfig, Strategy
from cca_lab.studies.evaluate import KINDS
from cca_lab.studies.study import label
from cca_lab.studies.trials import Trial
from cca_lab.tasks.reading import Reading

AGREES, DISAGREES, UNSEEN, ONE_SEED = "agrees", "disagrees", "not seen here", "one seed"
VERDICTS = (AGREES, DISAGREES, UNSEEN, ONE_SEED)
RECIPES = {"short": 100, "long": 300, "plain": 300}  # optimizer steps
STUDIES = {"short": "reproduce", "long": "recovery", "plain": "reproduce-plain"}
QUICK_STEPS = 30
CONFIDENCE = 0.95
ROWS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("artefacts.toml").read_text(encoding="utf-8"))


def study_file(recipe: str, model: str) -> str:
    """Return the file name of a study; that of the long recipe is `cca-lab study recover`'s."""
    return f"{STUDIES[recipe]}-{model}.json"


@dataclass(frozen=True)
class Arm:
    """One setting of a comparison."""

    attention: str  # a mechanism, or one of `variants`
    options: Mapping[str, object] = field(default_factory=dict)
    strategy: Strategy = "full"  # the weights that are trained; "none" measures the swapped model
    plain: bool = False  # text alone, groups of the full size from the first step, as the papers

    def trial(self, steps: int, seed: int) -> Trial:
        """Return the training run with a seed; without training, the seed has no effect."""
        if self.strategy == "none":
            return Trial(self.attention, dict(self.options))
        config, reading = FinetuneConfig(steps, self.strategy), Reading(seed=seed)
        if self.plain:
            config, reading = replace(config, grow=0.0), replace(reading, text_share=1.0)
        return Trial(self.attention, dict(self.options), config, reading)

    def name(self, seed: int) -> str:
        """Return the name of the trial in a study; the same as in `cca-lab study recover`."""
        setting = label(self.attention, dict(self.options))
        return setting if self.strategy == "none" else f"{setting}, {self.strategy}, seed {seed}"


@dataclass(frozen=True)
class Found:
    """What came out."""

    numbers: Mapping[str, str]  # the measurement of each setting, in words
    verdict: str  # one of `VERDICTS`
    seeds: int  # training runs per setting; 0 where nothing was trained
    device: str  # the machine


@dataclass(frozen=True)
class Artefact:
    """One artefact whose settings are finetuned from a shipped base."""

    name: str  # on the command line
    paper: str
    place: str
    claim: str  # as an order or a slope
    printed: Mapping[str, float]  # the printed number of each setting
    arms: Mapping[str, Arm]  # the settings, by label
    order: Sequence[str]  # the labels from the best to the worst, as claimed
    unit: str  # of the printed numbers
    metric: str = "perplexity"  # or "answers", see `values`
    recipe: str = "short"  # of `RECIPES`: the steps, and the file
    model: str = "gpt2-mini"  # the base, of the shipped ones
    verdict: str = ""  # of the committed results; empty while nothing can be concluded
    why: str = ""  # for the reader

    @property
    def file(self) -> str:
        """The file of its study."""
        return study_file(self.recipe, self.model)

    def trials(self, seed: int, steps: int | None = None) -> dict[str, Trial]:
        """Return the trials of one seed by name; `steps` in place of the recipe's."""
        steps = RECIPES[self.recipe] if steps is None else steps
        return {arm.name(seed): arm.trial(steps, seed) for arm in self.arms.values()}

    def rows(self, trials: Mapping[str, dict]) -> dict[str, list[dict]]:
        """Return the measurements of each setting in a study, one for each seed, by label."""
        by_label = {}
        for key, arm in self.arms.items():
            names = [arm.name(seed) for seed in range(100 if arm.strategy != "none" else 1)]
            if rows := [trials[name] for name in names if name in trials]:
                by_label[key] = rows
        return by_label

    def found(self, study: Mapping) -> Found | None:
        """Return what the file of a study says; None before anything was measured."""
        rows = self.rows(study["trials"])
        if not rows:
            return None
        seeds = min((len(rows.get(key, [])) for key in self.order
                     if self.arms[key].strategy != "none"), default=0)
        trained = any(arm.strategy != "none" for arm in self.arms.values())
        verdict = ONE_SEED if trained and seeds < 2 else ordering(rows, self.order, self.metric)
        devices = sorted({row.get("machine", study["machine"])["cpu"] for arm in rows.values()
                          for row in arm})
        numbers = {key: written(arm) for key, arm in rows.items()}
        return Found(numbers, verdict, seeds, ", ".join(devices))


def written(rows: Sequence[dict]) -> str:
    """Return perplexity over the base's and questions answered, averaged over seeds."""
    ratio = float(np.exp(values(rows, "perplexity").mean()))
    return f"{ratio:.3f}, {100 * (1 - values(rows, 'answers').mean()):.0f} %"


@dataclass(frozen=True)
class Difference:
    """A paired difference: mean over seeds and half-width of its 95 % interval (Student's t)."""

    value: float
    error: float

    @property
    def verdict(self) -> str:
        """Return "lower", "higher" or, if the interval contains 0, "no difference seen"."""
        if abs(self.value) <= self.error:
            return "no difference seen"
        return "lower" if self.value < 0 else "higher"


def paired(arm: np.ndarray, reference: np.ndarray) -> Difference:
    """Compare two conditions, losses (seeds,) each, paired by seed; ValueError below two seeds."""
    from scipy import stats

    differences = np.asarray(arm) - np.asarray(reference)
    if len(differences) < 2:
        raise ValueError(
            f"seeds: got {len(differences)}, wanted 2 or more; one run shows no spread")
    spread = float(differences.std(ddof=1)) / len(differences) ** 0.5
    return Difference(float(differences.mean()),
                      float(stats.t.ppf((1 + CONFIDENCE) / 2, len(differences) - 1)) * spread)


def difference(rows: Sequence[dict], others: Sequence[dict], metric: str) -> Difference | None:
    """Return the mean difference of two settings with its 95 % interval; None without a spread.

    Trained settings are paired by seed (Student's t over the seeds). Settings with one row each are
    paired by window of text or by question (bootstrap): nothing about another training run.
    """
    if min(len(rows), len(others)) >= 2:
        count = min(len(rows), len(others))
        return paired(values(rows, metric)[:count], values(others, metric)[:count])
    from cca_lab.models.evaluate import bootstrap_mean

    first, second = (_samples(row[0], metric) for row in (rows, others))
    if first is None or second is None:
        return None
    mean = bootstrap_mean(first - second)
    return Difference(mean.value, (mean.high - mean.low) / 2)


def _samples(row: dict, metric: str) -> np.ndarray | None:
    """Return each window's loss, or 1 for each wrong answer; None if the row lacks them."""
    if metric == "perplexity":
        return np.array(row["losses"]) if "losses" in row else None
    kinds = [row[kind] for kind in KINDS]
    if not all("hits" in kind for kind in kinds):
        return None
    bits = [np.unpackbits(np.frombuffer(bytes.fromhex(kind["hits"]), dtype=np.uint8))
            for kind in kinds]
    return 1.0 - np.concatenate([right[:kind["all"]["samples"]]
                                 for right, kind in zip(bits, kinds, strict=True)])


def values(rows: Sequence[dict], metric: str) -> np.ndarray:
    """Return a number for each row, smaller is better.

    "perplexity" is the logarithm of the ratio to the base's; "answers" the share of questions of
    both kinds that is not answered.
    """
    if metric == "perplexity":
        return np.log([row["perplexity_ratio"]["value"] for row in rows])
    return 1 - np.mean([[row[kind]["all"]["value"] for kind in KINDS] for row in rows], axis=1)


def ordering(arms: Mapping[str, Sequence[dict]], order: Sequence[str], metric: str) -> str:
    """Return the verdict on a claimed order, the best first; settings without rows are left out.

    DISAGREES if two neighbours, or the two ends, differ the other way round with 95 % confidence;
    AGREES if otherwise the ends differ as claimed; UNSEEN if no difference is large enough to tell.
    """
    there = [name for name in order if arms.get(name)]
    if len(there) < 2:
        return UNSEEN
    ends = difference(arms[there[0]], arms[there[-1]], metric)
    pairs = [difference(arms[left], arms[right], metric) for left, right in pairwise(there)]
    if any(pair is not None and pair.verdict == "higher" for pair in (ends, *pairs)):
        return DISAGREES
    return AGREES if ends is not None and ends.verdict == "lower" else UNSEEN
