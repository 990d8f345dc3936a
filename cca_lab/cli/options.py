"""What several commands share: options, and the door that turns bad input into one line."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from cca_lab.recipe import Diverged, FinetuneConfig, Reading

FINETUNING, READING = FinetuneConfig(), Reading()  # whose defaults the options show

Start = Annotated[str | None, typer.Option("--from", help="First notebook to run, such as 05.")]
Only = Annotated[str | None, typer.Option("--only", help="The one notebook to run, such as 01.")]
Folder = Annotated[Path | None, typer.Option("--folder", help="Folder of the notebooks.",
                                             show_default="notebooks/ of the clone")]
Model = Annotated[str, typer.Option(help="A model's folder, or its name on the hub.")]
Group = Annotated[int | None, typer.Option(help="Tokens a group.", show_default="the mechanism's")]
Window = Annotated[int | None, typer.Option(help="Local window.", show_default="the mechanism's")]
Option = Annotated[list[str] | None, typer.Option("--option", metavar="NAME=VALUE", show_default="none",
                                                  help="Another option of the mechanism, such as gamma=0.2.")]
Length = Annotated[int | None, typer.Option(help="Tokens of a sequence.",
                                            show_default="the model's context, at most 1024")]
Text = Annotated[str | None, typer.Option(help="A text file, a folder, or hub:NAME.",
                                          show_default="the standard library")]
Strategy = Annotated[str, typer.Option(help="full, qkv (W^Q, W^K, W^V only), compressor (LoCoCo's) or none.")]
Steps = Annotated[int, typer.Option(help="Optimizer steps of a finetuning.")]
Rate = Annotated[float, typer.Option(help="After warm-up.")]
Optimizer = Annotated[str, typer.Option(help="adamw, or muon for the blocks' matrices.")]
Grow = Annotated[float, typer.Option(help="Share of the steps over which groups grow from 2 tokens to their size.")]
Precision = Annotated[str, typer.Option(help="float32, bf16, or auto: bf16 where it is faster.")]
Rows = Annotated[int, typer.Option(help="Sequences a step, over all processes.")]
TextShare = Annotated[float, typer.Option(help="Share of sequences that are text, the rest are questions.")]


@contextmanager
def door() -> Iterator[None]:
    """Turn a ValueError, which says what was wrong with the input, into one line and exit status 2; Diverged into 3."""
    try:
        yield
    except ValueError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from error
    except Diverged as error:
        typer.echo(f"diverged: {error}", err=True)
        raise typer.Exit(3) from error


def given(options: list[str] | None = None, **named: object) -> dict:
    """Return the options of a mechanism that were given; values are JSON, or text where they are not.

    Raises:
        ValueError: for one without "=".
    """
    found = {name: value for name, value in named.items() if value is not None}
    for option in options or ():
        name, equals, value = option.partition("=")
        if not equals:
            raise ValueError(f"option: got {option!r}, wanted NAME=VALUE, such as gamma=0.2")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found
