"""Options that several commands share."""

import json
from pathlib import Path
from typing import Annotated

import typer

from cca_lab.cli.command import checked_path
from cca_lab.models.recipe import FinetuneConfig
from cca_lab.tasks.reading import Reading

FINETUNING, READING = FinetuneConfig(), Reading()  # the help shows their defaults

Start = Annotated[str | None, typer.Option("--from", help="First notebook to run, by its number, such as 05.",
                                                show_default="the first")]
Only = Annotated[str | None, typer.Option("--only", help="The only notebook to run, such as 01.", show_default="all")]
Folder = Annotated[Path | None, typer.Option("--folder", help="Folder that holds the notebooks.",
                                             show_default="notebooks/ of the clone")]
Model = Annotated[str, typer.Option(help="Folder of a model, or its name on the Hugging Face hub.")]
Group = Annotated[int | None, typer.Option(help="Tokens per group.", show_default="the mechanism's default")]
Window = Annotated[int | None, typer.Option(help="Local window, in tokens.", show_default="the mechanism's default")]
Option = Annotated[list[str] | None, typer.Option("--option", metavar="NAME=VALUE", show_default="none",
                                                  help="Option of the mechanism, such as gamma=0.2; repeatable.")]
Length = Annotated[int | None, typer.Option(help="Tokens per sequence.",
                                            show_default="the model's context, at most 1024")]
Task = Annotated[list[str] | None, typer.Option("--task", metavar="NAME|FILE", show_default="none", help=(
    "Prompts to answer: niah_single, niah_multikey, niah_multivalue, variable_tracking, common_words, frequent_words, "
    "key_values, or a file of your own questions in JSON lines; repeatable."))]
Difficulty = Annotated[list[str] | None, typer.Option("--difficulty", metavar="N|NAME=VALUE", show_default="the task's",
                                                      help="Difficulty of the tasks, such as 8 or chains=2; "
                                                           "repeatable.")]
Text = Annotated[str | None, typer.Option(help="Text to read: a file, a folder, or hub:NAME for a data set.",
                                          show_default="Python's standard library")]
Strategy = Annotated[str, typer.Option(help="Weights to train: full, qkv (W^Q, W^K, W^V), compressor "
                                           "(LoCoCo's module) or none.")]
Steps = Annotated[int, typer.Option(help="Optimizer steps per finetuning run.")]
Rate = Annotated[float, typer.Option(help="Learning rate after warm-up; falls linearly to a tenth.")]
Optimizer = Annotated[str, typer.Option(help="adamw; or muon for the matrices of the blocks, AdamW for the rest.")]
Grow = Annotated[float, typer.Option(help="Share of the steps (0 to 1) in which groups grow from 2 tokens.")]
Precision = Annotated[str, typer.Option(help="float32, bf16, or auto (bf16 where it is faster).")]
Rows = Annotated[int, typer.Option(help="Sequences per step, over all processes.")]
TextShare = Annotated[float, typer.Option(help="Share of sequences (0 to 1) that are text; the rest are questions.")]


def out_folder(words: str) -> typer.models.OptionInfo:
    """Return the option for a folder to write to; `words` is its help text."""
    return typer.Option(help=words, callback=checked_path("folder"))


def json_file(default: str = "none") -> typer.models.OptionInfo:
    """Return the option for a JSON file to write; `default` is what its help shows."""
    return typer.Option(help="JSON file to write.", show_default=default, callback=checked_path("file"))


def given(attention: str | None, options: list[str] | None = None, **named: object) -> dict:
    """Return the options given for a mechanism; a value is parsed as JSON, or else kept as text.

    Raises:
        ValueError: for an option without "=", given twice, or not taken by the mechanism.
    """
    from cca_lab.models.plugin import written_choice

    found = {name: value for name, value in named.items() if value is not None}
    for option in options or ():
        name, equals, value = option.partition("=")
        if not equals:
            raise ValueError(f"option: got {option!r}, wanted NAME=VALUE, such as gamma=0.2")
        if name in found:
            raise ValueError(f"{name}: given twice, wanted once; leave one out")
        try:
            found[name] = json.loads(value)
        except ValueError:  # not JSON, or a number of thousands of digits
            found[name] = value
    if attention is None and found:
        raise ValueError(f"{next(iter(found))}: given without --attention; name the mechanism too")
    return found if attention is None else written_choice(attention, found)


ResultFile = Annotated[Path | None, json_file()]
TrialsFile = Annotated[Path, typer.Option(help="JSON file to write; what it holds already is not measured again.",
                                          callback=checked_path("file"))]
