"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from cca_lab.cli.command import checked_path

Start = Annotated[str | None, typer.Option("--from", help="First notebook to run, by its number, "
                                                          "such as 05.", show_default="the first")]
Only = Annotated[str | None, typer.Option("--only", help="The only notebook to run, such as 01.",
                                          show_default="all")]
Folder = Annotated[Path | None, typer.Option("--folder", help="Folder that holds the notebooks.",
                                             show_default="notebooks/ of the clone")]
Group = Annotated[int | None, typer.Option(help="Tokens per group.",
                                           show_default="the mechanism's default")]
Window = Annotated[int | None, typer.Option(help="Local window, in tokens.",
                                            show_default="the mechanism's default")]
Option = Annotated[list[str] | None,
                   typer.Option("--option", metavar="NAME=VALUE", show_default="none",
                                help="Option of the mechanism, such as gamma=0.2; repeatable.")]


def out_folder(words: str) -> typer.models.OptionInfo:
    """Return the option for a folder to write to; `words` is its help text."""
    return typer.Option(help=words, callback=checked_path("folder"))
