"""The commands that re-enact the papers' tables and figures, and try for the lab's record."""

from pathlib import Path
from typing import Annotated

import typer

from cca_lab.cli.command import App
from cca_lab.cli.options import (
    FINETUNING,
    READING,
    Grow,
    Optimizer,
    Option,
    Rate,
    Rows,
    Steps,
    Strategy,
    TextShare,
    given,
    json_file,
    out_folder,
)
from cca_lab.models.recipe import FinetuneConfig
from cca_lab.tasks.reading import Reading

app = App()


@app.command()
def reproduce(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Such as cca-table7, or latency.",
                                                      show_default="all")] = None,
    seeds: Annotated[int, typer.Option(help="Training runs per setting, with seeds 0, 1, ...")] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="One seed and few steps, in minutes; needs --out.")] = False,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps per training; needs --out.",
                                              show_default="the recipe's")] = None,
    out: Annotated[Path | None, out_folder("Folder for the JSON files; what they hold is not measured again.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the tables and figures, and stop.")] = False,
) -> None:
    """Re-enact the papers' tables and figures at a small scale, and say what agrees."""
    from cca_lab.studies.reproduce import latency, run

    if listed:
        run.list_all()
    elif names == ["latency"]:
        latency.measure(out)
    else:
        run.reproduce(names or (), seeds=seeds, quick=quick, steps=steps, out=out)


@app.command()
def record(
    name: Annotated[str, typer.Argument(help="Name of the recipe, for the table.")],
    strategy: Strategy = FINETUNING.strategy,
    steps: Steps = FINETUNING.steps,
    learning_rate: Rate = FINETUNING.learning_rate,
    optimizer: Optimizer = FINETUNING.optimizer,
    grow: Grow = FINETUNING.grow,
    rows: Rows = READING.rows,
    text_share: TextShare = READING.text_share,
    option: Option = None,
    out: Annotated[Path | None, json_file("data/results/records.json")] = None,
) -> None:
    """Try a recipe for the lab's record: 98 % of the questions with groups of 16, in the fewest CPU seconds."""
    from cca_lab.studies.reproduce.record import record as run

    run(name, FinetuneConfig(steps, strategy, learning_rate, optimizer, grow=grow),
        Reading(rows=rows, text_share=text_share), given("cca", option), out)
