"""Trials averaged over their seeds, and their names in words."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cca_lab.mechanisms import MECHANISMS
from cca_lab.studies.study import markdown

COLUMNS = ("seeds", "perplexity", "over the base's", "8 tokens a document", "its worst offset",
           "5-20 tokens a document")
TRAINED = {"": "swapped", "full": "finetuned", "qkv": "finetuned, W^Q W^K W^V only",
           "compressor": "finetuned, its own weights only",
           "aligned": "finetuned on aligned documents"}
SEED = re.compile(r", seed \d+$")


@dataclass(frozen=True)
class Spread:
    """A mean with its range over the seeds; for a single measurement, with its 95 % interval."""

    value: float
    low: float
    high: float

    def percent(self) -> str:
        """Write a share as a percentage with its range."""
        return f"{100 * self.value:.0f} % [{100 * self.low:.0f}, {100 * self.high:.0f}]"

    def number(self, digits: int) -> str:
        """Write a number with its range."""
        return f"{self.value:.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


@dataclass(frozen=True)
class Summary:
    """The trials of one setting, a row of measurements for each seed."""

    rows: list[dict[str, Any]]

    def _spread(self, estimates: list[dict[str, Any]]) -> Spread:
        if len(estimates) == 1:
            return Spread(*(estimates[0][key] for key in ("value", "low", "high")))
        values = [estimate["value"] for estimate in estimates]
        return Spread(float(np.mean(values)), min(values), max(values))

    @property
    def perplexity(self) -> Spread:
        """The perplexity on the held-out text."""
        return self._spread([row["perplexity"] for row in self.rows])

    @property
    def ratio(self) -> Spread:
        """The perplexity over the base model's, paired window by window."""
        return self._spread([row["perplexity_ratio"] for row in self.rows])

    @property
    def read_in_full(self) -> Spread | None:
        """The trained weights' ratio under full attention; None if nothing was trained."""
        found = [row["read_in_full"] for row in self.rows if "read_in_full" in row]
        return self._spread(found) if found else None

    @property
    def fixed(self) -> Spread:
        """Exact match over documents of one length, at every offset."""
        return self._spread([row["exact_match"]["all"] for row in self.rows])

    @property
    def varied(self) -> Spread:
        """Exact match over documents of 5 to 20 tokens."""
        return self._spread([row["varied_match"]["all"] for row in self.rows])

    def cells(self) -> list[str]:
        """Return the cells of a table row, in the order of `COLUMNS`."""
        return [str(len(self.rows)), self.perplexity.number(1), self.ratio.number(3),
                self.fixed.percent(), self.worst, self.varied.percent()]

    @property
    def worst(self) -> str:
        """Exact match at the worst offset of each seed, in words: their mean and range."""
        worst = [min(offset["value"] for offset in row["exact_match"]["by_offset"])
                 for row in self.rows]
        if len(worst) == 1:
            return f"{100 * worst[0]:.0f} %"
        return Spread(float(np.mean(worst)), min(worst), max(worst)).percent()


def summaries(trials: Mapping[str, dict[str, Any]]) -> dict[str, Summary]:
    """Group trials that differ only in their seed, in order of first appearance, by attention."""
    gathered: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for name, row in trials.items():
        setting = SEED.sub("", name)
        gathered.setdefault(setting.partition(", ")[0], {}).setdefault(setting, []).append(row)
    return {name: Summary(rows) for settings in gathered.values()
            for name, rows in settings.items()}


def swept(trials: Mapping[str, dict[str, Any]]) -> tuple[
        dict[str, tuple[float, float]], dict[str, float], tuple[float, float]]:
    """Return what `cca-lab study sweep` wrote: perplexity over the base's, and exact match.

    CCA's two numbers by recipe, the control's perplexity by the same recipes, untrained CCA's two.
    """
    found = summaries(trials)
    points = {name.removeprefix("cca, "): (mean.ratio.value, mean.varied.value)
              for name, mean in found.items() if name.startswith("cca, ")}
    controls = {recipe: found[f"full, {recipe.rpartition(',')[0]}"].ratio.value
                for recipe in points}
    return points, controls, (found["cca"].ratio.value, found["cca"].varied.value)


def spoken(name: str) -> str:
    """Return a trial's name, without its seed, in words."""
    attention, _, trained = name.partition(", ")
    mechanism, *options = attention.split(" ")
    title = {"full": "full attention", "cca": "CCA"}.get(mechanism) or MECHANISMS[mechanism].title
    short = {"group": "g", "window": "s"}
    shown = ", ".join(f"{short.get(key, key)} {value}" for key, value in (option.split("=", 1)
                                                                          for option in options))
    how = ("", "finetuned, the control")[bool(trained)] if mechanism == "full" else TRAINED[trained]
    return ", ".join(filter(None, (f"{title} {shown}".strip(), how)))


def table(rows: Mapping[str, dict[str, Any]], title: str) -> str:
    """Return the table of trials, averaged over seeds."""
    return markdown(
        ["attention", *COLUMNS], [[name, *mean.cells()] for name, mean in summaries(rows).items()],
        f"{title}; exact match over every offset; [lowest, highest seed], or 95 % of one.")
