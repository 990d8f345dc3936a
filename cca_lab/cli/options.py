"""What several commands share: options, and the door that turns bad input into one line."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from cca_lab.outputs import check_file, check_folder
from cca_lab.recipe import Diverged, FinetuneConfig, Reading

NO_MEMORY = ("allocate memory", "not enough memory", "out of memory", "Storage size calculation overflowed")
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
    """Turn what was wrong with the input or the machine into one line and exit status 2; Diverged into 3.

    A ValueError says what was wrong with the input, an OSError which file could not be read or written.
    """
    try:
        yield
    except (ValueError, OSError, MemoryError) as error:
        typer.echo(f"error: {_line(error)}", err=True)
        raise typer.Exit(2) from error
    except Diverged as error:
        typer.echo(f"diverged: {error}", err=True)
        raise typer.Exit(3) from error
    except RuntimeError as error:
        if not any(words in str(error) for words in NO_MEMORY):
            raise
        typer.echo(f"error: not enough memory for these sizes; ask for less ({_line(error)})", err=True)
        raise typer.Exit(2) from error


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def check_option(param: typer.CallbackParam, value: Path | None) -> Path | None:
    """Check the file that an option names, if it was given."""
    with door():
        return value if value is None else check_file(value, param.name)


def _folder(param: typer.CallbackParam, value: Path) -> Path:
    with door():
        return check_folder(value, param.name)


def out_folder(words: str) -> typer.models.OptionInfo:
    """Return the option that names a folder to write to."""
    return typer.Option(help=words, callback=_folder)


def json_file(default: str = "none") -> typer.models.OptionInfo:
    """Return the option that names a JSON file to write."""
    return typer.Option(help="JSON file to write.", show_default=default, callback=check_option)


def given(attention: str | None, options: list[str] | None = None, **named: object) -> dict:
    """Return the options of a mechanism that were given; values are JSON, or text where they are not.

    Raises:
        ValueError: for one without "=", one given twice, or one that the mechanism does not take.
    """
    from cca_lab.models.choice import written_choice

    found = {name: value for name, value in named.items() if value is not None}
    for option in options or ():
        name, equals, value = option.partition("=")
        if not equals:
            raise ValueError(f"option: got {option!r}, wanted NAME=VALUE, such as gamma=0.2")
        if name in found:
            raise ValueError(f"{name}: given twice, wanted once; leave one out")
        try:
            found[name] = json.loads(value)
        except ValueError:  # no JSON, or a number of thousands of digits
            found[name] = value
    if attention is None and found:
        raise ValueError(f"{next(iter(found))}: given without --attention; name the mechanism too")
    return found if attention is None else written_choice(attention, found)


ResultFile = Annotated[Path | None, json_file()]
TrialsFile = Annotated[Path, typer.Option(help="JSON file to write; a stopped command goes on where it stood.",
                                          callback=check_option)]
