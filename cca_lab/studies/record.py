"""The record, by the `RULES` that are printed on docs/results/records.md."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from cca_lab.files import SHIPPED, repository, results_folder
from cca_lab.models.recipe import FinetuneConfig
from cca_lab.reporting import print_table
from cca_lab.settings import REQUIRED, nested, option
from cca_lab.studies.evaluate import KINDS
from cca_lab.studies.recover import RUN, check_trains
from cca_lab.studies.study import continued, given
from cca_lab.studies.summary import SEED
from cca_lab.studies.trials import Trial, TrialRow, Trials
from cca_lab.tasks.reading import Reading

BASE, GROUP, WINDOW, SEEDS = "gpt2-mini", 16, 64, 3
ANSWERS, PERPLEXITY = 0.98, 1.25
WINDOWS, QUESTIONS = 64, 48
FILE, PAGE = "records.json", "docs/results/records.md"
COLUMNS = ("recipe", "CPU seconds", "questions answered", "worst seed",
           "worst seed's perplexity over the base's", "counts", "machine")
RULES = f"""# The record: {ANSWERS:.0%} of the questions with groups of {GROUP}

From `data/models/{BASE}` to a model that reads with CCA, g = {GROUP} and s = {WINDOW}, and answers
{ANSWERS:.0%} of the questions in the fewest CPU seconds. `cca-lab study recover` with its defaults
leaves it at about two thirds.

* The base is the shipped one, unchanged. What is trained, on what and how is free:
  `cca-lab study record NAME` has the options of `cca-lab finetune`; for anything else, change the
  code and show the change.
* The score is the lab's: documents of 8 and of 5 to 20 tokens, {QUESTIONS} questions for each of
  five places and both kinds, at sixteen offsets; questions of the evaluation (seed 1) may not be
  trained on.
* Each of the seeds 0, 1 and 2 answers {ANSWERS:.0%}, and no perplexity on the held-out text is
  more than {PERPLEXITY:g} times the base's.
* The time is CPU seconds of all threads, from reading the data to the last step, the mean of the
  seeds. Machines differ: say which, and run the last record's command on yours, so that both
  numbers stand side by side.
* To enter one: run its command, commit `data/results/{FILE}` and this page (`cca-lab readme`).

"""


class RecordRow(TrialRow):
    """A training run of a recipe."""

    cpu_seconds: float
    command: str


@dataclass(frozen=True, kw_only=True)
class Record(Trials):
    """Try a recipe for the lab's record."""

    row: ClassVar[Any] = RecordRow
    recipe: str = option(REQUIRED, "Name of the recipe, for the table.", argument=True,
                         metavar="NAME")
    config: FinetuneConfig = nested(FinetuneConfig, without=RUN)
    reading: Reading = nested(Reading, without=("length", "seed", "shift", "varied"))
    out: Path | None = option(None, "JSON file to write.", output="file",
                              shown=f"data/results/{FILE}")
    model: str = str(SHIPPED / BASE)
    text: None = None
    windows: int = WINDOWS
    questions: int = QUESTIONS
    seeds: int = SEEDS
    option: tuple[str, ...] = option((), "Another option of CCA; repeatable.", metavar="NAME=VALUE")
    default_file = FILE

    def trials(self) -> dict[str, Trial]:
        """Return a training run for each seed."""
        check_trains(self.config)
        options = given("cca", self.option)
        fixed = {"group": GROUP, "window": WINDOW}
        for key in fixed:
            if key in options:
                raise ValueError(f"{key}: is {fixed[key]} by the rules; leave it out")
        return {f"{self.recipe}, seed {seed}": Trial("cca", fixed | options, self.config,
                                                     replace(self.reading, seed=seed))
                for seed in range(self.seeds)}

    def show(self, result: Mapping[str, Any]) -> None:
        """Print all records."""
        print_table("records", COLUMNS, table(result))


def table(study: Mapping) -> list[list[str]]:
    """Return a line for each recipe, those that keep the rules first, the fastest first."""
    recipes: dict[str, list[dict]] = {}
    for name, row in study["trials"].items():
        recipes.setdefault(SEED.sub("", name), []).append(row)
    lines = []
    for name, rows in recipes.items():
        answers = [float(np.mean([row[kind]["all"]["value"] for kind in KINDS])) for row in rows]
        ratios = [row["perplexity_ratio"]["value"] for row in rows]
        seconds = float(np.mean([row["cpu_seconds"] for row in rows]))
        counts = len(rows) >= SEEDS and min(answers) >= ANSWERS and max(ratios) <= PERPLEXITY
        cells = [name, f"{seconds:.0f}", f"{np.mean(answers):.1%}", f"{min(answers):.1%}",
                 f"{max(ratios):.3f}", "yes" if counts else "no",
                 f"{rows[0]['machine']['cpu']}, {rows[0]['machine']['threads']} thread(s)"]
        lines.append((not counts, seconds if counts else -min(answers), cells))
    return [cells for _, _, cells in sorted(lines)]


def page(folder: Path) -> str:
    """Return the page of the records of a folder of results."""
    study = continued(folder / FILE, {}, row=RecordRow)
    if study is None:
        return RULES + "No record yet.\n"
    lines = [COLUMNS, ["---"] * len(COLUMNS), *table(study)]
    written = [row["command"] for row in study["trials"].values()]
    commands = dict.fromkeys(each.replace("cca-lab record", "cca-lab study record", 1)
                             for each in written)
    return (
        RULES + "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\nThe commands:\n\n```\n"
        + "".join(f"{shlex.join(shlex.split(command))}\n" for command in commands) + "```\n")


def write() -> Path:
    """Write the page again; return its path."""
    path = repository() / PAGE
    path.write_text(page(results_folder()), encoding="utf-8")
    return path
