"""`cca-lab experiments mqar`: what every mechanism recalls with how much memory, each trained from scratch."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cca_lab.files import check_file, new_result
from cca_lab.mechanisms import Full, Mechanism
from cca_lab.mechanisms.caching.base import CacheSizes
from cca_lab.models.checkpoints import quiet
from cca_lab.reporting import command_line, device_name, machine, training_progress, write_figure, write_json
from cca_lab.settings import check_sizes
from cca_lab.studies.mqar_points import figure_of, print_frontier
from cca_lab.studies.mqar_sizes import NAMES, largest_bytes, within
from cca_lab.studies.mqar_training import Recipe, learn, new_model
from cca_lab.studies.needles import versions
from cca_lab.studies.recover import label
from cca_lab.studies.trials import read_study
from cca_lab.tasks.mqar import MQAR

PUBLISHED = {"accuracy": 0.99,
             "source": "Arora et al., Zoology, ICLR 2024, Figure 2: attention solves every length at every width; its "
                       "training stops at an accuracy of 0.99"}
QUICK = ("cca", "streaming_llm")
SELECTING = ("dga", "h2o")  # they keep tokens by their scores, and no gradient flows through the choice
LEAST, MOST_SEEDS = 4, 100


@dataclass(frozen=True)
class Cell:
    """One point of the frontier: a mechanism at a budget, for one seed.

    Attributes:
        mechanism: with its sizes.
        entries: the budget in entries per KV head; None for full attention.
        state_bytes: of a decoder's cache at its largest, for one text in float32.
        seed: of the weights and the training texts.
    """

    mechanism: Mechanism
    entries: int | None
    state_bytes: int
    seed: int

    @property
    def name(self) -> str:
        """The cell's key in the file."""
        return f"{label(self.mechanism.name, self.mechanism.options())}, seed {self.seed}"


def shares(length: int) -> tuple[int, ...]:
    """Return the default budgets: a quarter, a half and three quarters of the tokens of a text."""
    return length // 4, length // 2, 3 * length // 4


def mqar(task: MQAR, recipe: Recipe, out: Path | None = None, *, names: Sequence[str] = (), entries: Sequence[int] = (),
         seeds: int = 1, quick: bool = False, figure: Path | None = None) -> dict[str, Any]:
    """Train full attention and every mechanism at every size, print the accuracies, and write JSON and figure.

    Full attention is trained first. A trial that the file holds already is not run again, so that an interrupted
    command continues, and more sizes or seeds can be added later.

    Args:
        task, recipe: the same for every trial; those of a file that is there must be the same.
        out: the JSON file; None for data/results/mqar-LENGTH-PAIRS.json.
        names: mechanisms to compare with full attention; by default `NAMES`.
        entries: budgets in entries per KV head; by default `shares`.
        seeds: training runs of each, with the seeds 0, 1, ...
        quick: by default only `QUICK`, at half of the tokens.
        figure: the PNG to write, or None.

    Returns:
        What is written.

    Raises:
        ValueError: for a number out of range, an unknown mechanism, or a file with another task or recipe.
    """
    quiet()
    check_sizes(seeds=(seeds, 1, MOST_SEEDS))
    names = tuple(dict.fromkeys(names or (QUICK if quick else NAMES)))
    entries = sorted(set(entries or shares(task.length)[slice(1, 2) if quick else slice(None)]))
    check_sizes(entries=(entries, LEAST, task.length))
    out = check_file(out or new_result(f"mqar-{task.length}-{task.pairs}.json"))
    if out == figure:
        raise ValueError(f"figure: got {figure}, which is the JSON file too; choose another name")
    cells, missing = planned(task, recipe, names, entries, seeds)
    result = started(out, task, recipe)
    result["too_small"] = sorted({*result["too_small"], *missing})
    todo = [cell for cell in cells if cell.name not in result["trials"]]
    if todo:
        train(result, todo, task, recipe, out)
    write_json(out, result)
    if figure is not None:
        write_figure(figure, figure_of(result))
    print_frontier(result)
    return result


def planned(task: MQAR, recipe: Recipe, names: Sequence[str], entries: Sequence[int], seeds: int,
            ) -> tuple[list[Cell], list[str]]:
    """Return the cells in the order in which they are trained, seed by seed, and the budgets that are too small."""
    config = new_model(task, recipe).config
    sizes = CacheSizes.of(config)

    def cell(mechanism: Mechanism, budget: int | None, seed: int) -> Cell:
        return Cell(mechanism, budget, largest_bytes(mechanism, task.length, sizes), seed)

    chosen = [(name, budget, within(config, name, budget, task.length)) for budget in entries for name in names]
    missing = [f"{name}, {budget} entries" for name, budget, found in chosen if not found]
    cells = [cell(mechanism, budget, seed) for seed in range(seeds) for mechanism, budget in
             [(Full(), None), *((one, budget) for _, budget, found in chosen for one in found)]]
    return list({cell.name: cell for cell in cells}.values()), missing  # two budgets may lead to the same choice


def started(out: Path, task: MQAR, recipe: Recipe) -> dict[str, Any]:
    """Return what a file holds, or a result without trials.

    Raises:
        ValueError: if the file holds something else, or trials of another task or recipe.
    """
    settings = json.loads(json.dumps({"experiment": "mqar", "task": asdict(task), "recipe": asdict(recipe)}))
    earlier = read_study(out)
    if earlier is None:
        return {**settings, "published": PUBLISHED, "too_small": [], "trials": {}}
    differing = [key for key, value in settings.items() if earlier.get(key) != value]
    if differing:
        raise ValueError(f"out: {out} holds trials with another {', '.join(differing)}; name another file, or remove "
                         "it")
    return earlier


def train(result: dict[str, Any], todo: Sequence[Cell], task: MQAR, recipe: Recipe, out: Path) -> None:
    """Train cells one after the other, add them to the result's trials, and write the file after each."""
    with training_progress(f"MQAR, {task.length} tokens", len(todo) * recipe.steps) as report:
        for done, cell in enumerate(todo):
            def measured(step: int, accuracy: float, before: int = done * recipe.steps, name: str = cell.name) -> None:
                report(before + step, f"{name}: {100 * accuracy:.0f} %")

            result["trials"][cell.name] = trial(cell, task, recipe, measured)
            write_json(out, result)
        report(len(todo) * recipe.steps, "")


def trial(cell: Cell, task: MQAR, recipe: Recipe, report: Callable[[int, float], None]) -> dict[str, Any]:
    """Train one cell and return its measurement as JSON values; "selecting" says what `SELECTING` says."""
    run = learn(task, cell.mechanism, recipe, cell.seed, report)
    return {"attention": cell.mechanism.name, "options": cell.mechanism.options(), "entries": cell.entries,
            "state_bytes": cell.state_bytes, "seed": cell.seed, "accuracy": run.accuracy,
            "solved": run.accuracy >= recipe.solved, "steps": run.curve[-1][0],
            "curve": [list(point) for point in run.curve], "seconds": run.seconds,
            "selecting": cell.mechanism.name in SELECTING, "command": command_line(), "device": device_name(),
            "machine": machine(), "versions": versions()}
