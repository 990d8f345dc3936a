"""What every mechanism recalls with how much memory: `cca-lab study mqar`.

Each mechanism is trained at the largest size within a budget of bytes: those of a decoder's cache
at its largest while it reads a text token by token, with all that it keeps besides keys and values.
  * CCA, mean pooling and random tokens are trained at two sizes: the smallest group that fits, and
    the group, about sqrt(L), that leaves the largest window.
  * DGA has the block with the most focal tokens over the text, in its causal form
    (choose="blocks"): in the paper's, later tokens help to choose, and so to answer.
"""

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cca_lab.files import new_result
from cca_lab.mechanisms import DGA, MECHANISMS, Full, Mechanism
from cca_lab.mechanisms.cca.mechanism import Grouped
from cca_lab.options import Count
from cca_lab.reporting import command_line, device_name, machine
from cca_lab.studies.mqar_training import RecallRecipe, learn, new_model
from cca_lab.studies.study import (
    Report,
    cell,
    continued,
    label,
    markdown,
    measure_missing,
    percent,
    versions,
    writing,
)
from cca_lab.tasks.mqar import MQAR

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from transformers import PreTrainedConfig

    from cca_lab.mechanisms.caching.base import CacheSizes

NAMES = ("cca", "dga", "lococo", "h2o", "streaming_llm", "lm_infinite", "mean_pooling",
         "random_tokens")
PUBLISHED = {
    "accuracy": 0.99,
    "source": "Arora et al., Zoology, ICLR 2024, Figure 2: attention solves every length at every "
              "width; its training stops at an accuracy of 0.99"}
QUICK = ("cca", "streaming_llm")
SELECTING = ("dga", "h2o")  # by scores, and no gradient flows through the choice


@dataclass(frozen=True)
class RecallCell:
    """One point of the frontier: a mechanism at a budget, for one seed."""

    mechanism: Mechanism
    entries: int | None  # the budget per KV head; None for full attention
    state_bytes: int  # of a decoder's cache at its largest, for one text in float32
    seed: int  # of the weights and the training texts

    @property
    def name(self) -> str:
        """The key of its trial in the file."""
        return f"{label(self.mechanism.name, self.mechanism.options())}, seed {self.seed}"


@dataclass(frozen=True, kw_only=True)
class Recall:
    """Train full attention, then every mechanism at every size, on multi-query associative recall.

    More sizes or seeds can be added to a file later.
    """

    length: Count = 64
    """Tokens per text."""
    pairs: Count = 4
    """Keys with a value in a text; each is asked once."""
    vocabulary: Count = 8192
    """Tokens of the vocabulary."""
    attention: tuple[str, ...] = ()
    """Mechanisms to compare with full attention; by default all that can be sized."""
    entries: tuple[Count, ...] = ()
    """Keys, and as many values, that a decoder may keep; by default a quarter, half and three
    quarters of the tokens."""
    seeds: Count = 1
    """Training runs of each, with seeds 0, 1, ..."""
    steps: Count = 3000
    """Optimizer steps at most per training run."""
    quick: bool = False
    """Only CCA and StreamingLLM, at half of the tokens."""
    out: Path | None = None
    """JSON file to write; by default in data/results. What it holds is not trained again."""

    @property
    def recipe(self) -> RecallRecipe:
        """The model and the training of every mechanism."""
        return RecallRecipe(steps=self.steps)

    @cached_property
    def task(self) -> MQAR:
        """The texts."""
        return MQAR(length=self.length, pairs=self.pairs, vocabulary=self.vocabulary)

    def run(self) -> dict[str, Any]:
        """Train the cells that are missing in the file; print the table."""
        out = self.out or new_result(f"mqar-{self.length}-{self.pairs}.json")
        settings = {"experiment": "mqar", "task": asdict(self.task), "recipe": asdict(self.recipe)}
        with writing(out):
            result = continued(out, settings) or {
                **settings, "published": PUBLISHED, "too_small": [], "trials": {}}
            cells, missing = self.planned()
            result["too_small"] = sorted({*result["too_small"], *missing})
            measure_missing(out, result, cells, self.row, "trials")
        print(table(result))
        return result

    def planned(self) -> tuple[dict[str, RecallCell], list[str]]:
        """Return what is trained, by name and seed by seed, and the budgets that are too small."""
        from cca_lab.mechanisms.caching.base import CacheSizes

        names = [name for name in dict.fromkeys(self.attention or (QUICK if self.quick else NAMES))
                 if name != "full"]  # which is always trained
        quarters = (2, ) if self.quick else (1, 2, 3)
        budgets = sorted(set(self.entries or (share * self.length // 4 for share in quarters)))
        config = new_model(self.task, self.recipe).config
        sizes = CacheSizes.of(config)
        chosen = [(name, budget, within(config, name, budget, self.length)) for budget in budgets
                  for name in names]
        missing = [f"{name}, {budget} entries" for name, budget, fitting in chosen if not fitting]
        for name in self.attention:
            if name != "full" and not any(fits for each, _, fits in chosen if each == name):
                raise ValueError(f"attention: got {name!r}, which fits into none of "
                                 f"{', '.join(map(str, budgets))} entries; give larger --entries")
        pairs = [(Full(), None),
                 *((each, budget) for _, budget, fitting in chosen for each in fitting)]
        cells = [RecallCell(mechanism, budget, largest_bytes(mechanism, self.length, sizes), seed)
                 for seed in range(self.seeds) for mechanism, budget in pairs]
        return {cell.name: cell for cell in cells}, missing  # two budgets may lead to one choice

    def row(self, name: str, cell: RecallCell, report: Report) -> dict[str, Any]:
        """Train one cell; "selecting" says what `SELECTING` says."""
        run = learn(self.task, cell.mechanism, self.recipe, cell.seed, lambda step, accuracy:
                    report(step / self.recipe.steps, percent(accuracy)))
        return {"attention": cell.mechanism.name, "options": cell.mechanism.options(),
                "entries": cell.entries, "state_bytes": cell.state_bytes, "seed": cell.seed,
                "accuracy": run.accuracy, "solved": run.accuracy >= self.recipe.solved,
                "steps": run.curve[-1][0], "curve": [list(point) for point in run.curve],
                "seconds": run.seconds, "selecting": cell.mechanism.name in SELECTING,
                "command": command_line(), "device": device_name(), "machine": machine(),
                "versions": versions()}


def largest_bytes(mechanism: Mechanism, length: int, sizes: "CacheSizes") -> int:
    """Return the bytes of a model's cache at its largest while it reads token by token."""
    if mechanism.name == "full":
        return sizes.layers * sizes.entries(length)
    from cca_lab.mechanisms.caches import CACHES

    cache = CACHES[mechanism.name]
    return sizes.layers * max(
        sizes.entries(mechanism.peak_entries(read)) + cache.extra_bytes(mechanism, read, sizes)
        for read in range(1, length + 1))


def within(config: "PreTrainedConfig", name: str, entries: int, length: int) -> list[Mechanism]:
    """Return the choices of a mechanism within a budget of entries; perhaps there is none."""
    if name not in NAMES:
        raise ValueError(f"attention: got {name!r}, wanted full or one of {', '.join(NAMES)}")
    from cca_lab.mechanisms.caching.base import CacheSizes

    sizes = CacheSizes.of(config)
    budget = sizes.layers * sizes.entries(entries)
    fitting = [choice for choice in choices(name, entries, length)
               if largest_bytes(choice, length, sizes) <= budget]
    if not fitting:
        return []
    if grouped := [choice for choice in fitting if isinstance(choice, Grouped)]:
        smallest = min(grouped, key=lambda choice: (choice.group, -choice.window))
        widest = max(grouped, key=lambda choice: (choice.window, -choice.group))
        return [smallest] if smallest.group == widest.group else [smallest, widest]
    if name == "dga":
        return [max(fitting, key=lambda choice: focal(choice, length))]
    return [max(fitting, key=lambda choice: largest_bytes(choice, length, sizes))]


def choices(name: str, entries: int, length: int) -> Iterator[Mechanism]:
    """Yield mechanisms of a name whose caches may use up a budget, many of which exceed it."""
    from cca_lab.mechanisms.caches import LEAST, sized

    if issubclass(MECHANISMS[name], Grouped):
        yield from (
            MECHANISMS[name](group=group, window=window)  # type: ignore[call-arg]  # of `Grouped`
            for group in powers_of_two(entries)
            for window in range(1, entries + 1))
    elif name == "dga":
        yield from (DGA(group=group, gamma=kept / block, choose="blocks", block=block)
                    for group in powers_of_two(entries) for kept in range(1, entries)
                    for block in range(group + kept, entries + 1, group))
    else:
        yield from (sized(name, count, length) for count in range(LEAST, entries + 1))


def powers_of_two(most: int) -> list[int]:
    """Return 2, 4, 8, ... up to `most`."""
    return [2**power for power in range(1, most.bit_length()) if 2**power <= most]


def focal(mechanism: Mechanism, length: int) -> tuple[int, int, int]:
    """Return what DGA's choices are compared by: focal tokens, tokens per group, block size."""
    assert isinstance(mechanism, DGA)
    return length // mechanism.block * mechanism.focal_count(
        mechanism.block), -mechanism.group, mechanism.block


@dataclass(frozen=True)
class Line:
    """The trials of one mechanism with the same options: their accuracy by seed."""

    attention: str
    entries: int | None
    state_bytes: int
    options: str
    accuracies: list[float]

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return statistics.fmean(self.accuracies)


def lines(result: Mapping[str, Any]) -> list[Line]:
    """Return the trials of a file, those of the same options together, in order."""
    by_options: dict[tuple[str, int | None], Line] = {}
    for row in result["trials"].values():
        words = label(row["attention"], row["options"])
        line = Line(row["attention"], row["entries"], row["state_bytes"], words, [])
        by_options.setdefault((words, row["entries"]), line).accuracies.append(row["accuracy"])
    return list(by_options.values())


def table(result: Mapping[str, Any]) -> str:
    """Return the table of the accuracies, a row for each mechanism and size."""
    return markdown(
        ["attention", "state, KiB", "answered", "lowest seed", "seeds"],
        [[line.options, cell(line.state_bytes, 1024), percent(line.mean),
          percent(min(line.accuracies)), len(line.accuracies)] for line in lines(result)],
        "MQAR, {pairs} pairs in {length} tokens.".format_map(result["task"]))


def points(result: Mapping[str, Any]) -> dict[str, dict[int, list[float]]]:
    """Return accuracies by attention and state bytes: of several choices the best mean."""
    best: dict[tuple[str, int | None], Line] = {}
    for line in lines(result):
        key = line.attention, line.entries
        best[key] = max(best.get(key, line), line, key=lambda each: each.mean)
    curves: dict[str, dict[int, list[float]]] = {}
    for line in sorted(best.values(), key=lambda each: each.state_bytes):
        curves.setdefault(line.attention, {})[line.state_bytes] = line.accuracies
    return {name: curves[name] for name in dict.fromkeys(line.attention for line in best.values())}


def figure_of(result: Mapping[str, Any]) -> "Figure":
    """Draw what `Recall` wrote."""
    from cca_lab.views.figures.recall import frontier

    curves, task = points(result), result["task"]
    titles = {name: MECHANISMS[name].title for name in curves}
    title = "MQAR, {pairs} pairs in {length} tokens, vocabulary {vocabulary}".format(**task)
    return frontier(curves, titles, published=result["published"]["accuracy"],
                    guess=1 / task["pairs"], title=title)
