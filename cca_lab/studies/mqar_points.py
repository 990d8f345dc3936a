"""The frontier that `cca-lab experiments mqar` measured, as lines, a table and a figure."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from cca_lab.mechanisms import MECHANISMS
from cca_lab.reporting import print_table
from cca_lab.studies.recover import label
from cca_lab.views.figures.recall import frontier


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
    """Return the trials of a file, those of the same options together, in the order in which they were trained."""
    found: dict[tuple[str, int | None], Line] = {}
    for row in result["trials"].values():
        words = label(row["attention"], row["options"])
        line = Line(row["attention"], row["entries"], row["state_bytes"], words, [])
        found.setdefault((words, row["entries"]), line).accuracies.append(row["accuracy"])
    return list(found.values())


def points(result: Mapping[str, Any]) -> dict[str, dict[int, list[float]]]:
    """Return the accuracies by attention and state bytes; of several choices for one budget, the best mean."""
    best: dict[tuple[str, int | None], Line] = {}
    for line in lines(result):
        key = line.attention, line.entries
        best[key] = max(best.get(key, line), line, key=lambda one: one.mean)
    found: dict[str, dict[int, list[float]]] = {}
    for line in best.values():
        found.setdefault(line.attention, {})[line.state_bytes] = line.accuracies
    return {attention: dict(sorted(by_size.items())) for attention, by_size in found.items()}


def figure_of(result: Mapping[str, Any]) -> Figure:
    """Draw what `mqar` wrote."""
    found, task = points(result), result["task"]
    titles = {name: MECHANISMS[name].title for name in found}
    return frontier(found, titles, published=result["published"]["accuracy"], guess=1 / task["pairs"],
                    title=f"MQAR, {task['pairs']} pairs in {task['length']} tokens, vocabulary {task['vocabulary']}")


def print_frontier(result: Mapping[str, Any]) -> None:
    """Print the accuracies as a table, a row for each mechanism and size."""
    rows = [[line.options, f"{line.state_bytes / 1024:.1f}", *(f"{100 * share:.1f}" for share in (
        line.mean, min(line.accuracies), max(line.accuracies))), len(line.accuracies)] for line in lines(result)]
    print_table(f"MQAR, {result['task']['pairs']} pairs in {result['task']['length']} tokens: queries answered, %",
                ["attention", "state, KiB", "mean", "lowest seed", "highest seed", "seeds"], rows)
