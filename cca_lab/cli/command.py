"""The command class: every option is checked before any import (given once, not empty, numbers finite)."""

import math
from typing import Any

import typer
from typer.core import TyperCommand

from cca_lab.cli.options import door
from cca_lab.files import check_apart
from cca_lab.settings import LARGEST_WRITTEN


class Command(TyperCommand):
    """A command that validates its options while it parses them."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:
        """Parse the options; an invalid one ends the program with one line and exit status 2."""
        given, _, order = self.make_parser(ctx).parse_args(args=list(args))
        with door():
            check_given(given, [param.name for param in order if not param.multiple])
        rest = super().parse_args(ctx, args)
        with door():
            check_values(ctx.params)
        return rest


class App(typer.Typer):
    """A Typer application whose commands are of class `Command`."""

    def command(self, *args: Any, **options: Any):
        """Register a command, as `typer.Typer.command` does."""
        return super().command(*args, **{"cls": Command, **options})


def check_given(given: dict[str, Any], single: list[str]) -> None:
    """Raise ValueError for an option with an empty value, or a single-valued one given twice.

    Args:
        given: values as written, by option.
        single: the options that take one value; each appears as often as it was given.
    """
    for name, value in given.items():
        if "" in (value if isinstance(value, list | tuple) else (value,)):
            raise ValueError(f"{_option(name)}: got an empty text; give a value, or leave the option out")
    for name in single:
        if single.count(name) > 1:
            raise ValueError(f"{_option(name)}: given {single.count(name)} times, wanted one; leave the others out")


def check_values(values: dict[str, Any]) -> None:
    """Raise ValueError for a number that is not finite or is too large, or an output that would overwrite an input."""
    for name, value in values.items():
        for number in value if isinstance(value, list) else (value,):
            if isinstance(number, float) and not math.isfinite(number):
                raise ValueError(f"{_option(name)}: got {number}, wanted a finite number")
            if isinstance(number, int) and abs(number) > LARGEST_WRITTEN:
                raise ValueError(f"{_option(name)}: got {number}, wanted at most {LARGEST_WRITTEN}")
    if values.get("out") is not None and values.get("model") is not None:
        check_apart(values["out"], values["model"], values.get("text"))


def _option(name: str) -> str:
    return name.replace("_", "-")
