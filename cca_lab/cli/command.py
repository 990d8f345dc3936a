"""The commands: errors become one line in one place, and options are made from settings.

Exit statuses: 2 for an error of the input or the machine, 3 for a training that diverged.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, is_dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from typer.core import DEFAULT_MARKUP_MODE, TyperCommand, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

from cca_lab.extras import advice
from cca_lab.files import check_apart, check_file, check_folder
from cca_lab.freed_memory import keep_freed_memory
from cca_lab.models.recipe import Diverged
from cca_lab.options import parsed
from cca_lab.settings import LARGEST_WRITTEN, item_type, options_of

HOME = re.compile(r"~[\w.-]*(/|$)")
WRITTEN = {"out", "figure", "student"}  # the names of options for what a command writes
NO_MEMORY = ("allocate memory", "failed to map segment", "not enough memory", "out of memory",
             "Storage size calculation overflowed")


class Command(TyperCommand):
    """A command that validates its options while parsing; its function returns its status."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options; ValueError for one given twice, empty, or no number in range."""
        args = [expanded(each) for each in args]
        flags = {param.name: param.opts[0].lstrip("-") for param in self.params}
        given, _, order = self.make_parser(ctx).parse_args(args=list(args))
        check_given({flags.get(name, name): value for name, value in given.items()},
                    [flags.get(param.name, param.name) for param in order if not param.multiple])
        rest = super().parse_args(ctx, args)
        check_values({flags.get(name, name): value for name, value in ctx.params.items()})
        return rest

    def invoke(self, ctx: Any) -> None:
        """Run the command, and exit with the status that it returns."""
        raise typer.Exit(int(super().invoke(ctx) or 0))


class Group(TyperGroup):
    """Commands, those whose module is imported only when they run, and the old names of some."""

    # for each name, "module:Class" of settings that have `run`, and one sentence
    lazy: ClassVar[Mapping[str, tuple[str, str]]] = {}
    moved: ClassVar[Mapping[str, str]] = {}  # for old names of one word or two, what to type now

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, without the old ones."""
        return [*super().list_commands(ctx), *self.lazy]

    def get_command(self, ctx: Any, name: str) -> Any:
        """Return the command of this name, as the group's help shows it; an old name's refuses."""
        if name in self.lazy:
            return TyperCommand(name, help=self.lazy[name][1])
        old = {words: new for words, new in self.moved.items() if words.partition(" ")[0] == name}
        return super().get_command(ctx, name) or (_answer(name, old) if old else None)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name, the command and its arguments, as it runs."""
        name, command, rest = super().resolve_command(ctx, args)
        if name and name in self.lazy:
            command = later(name, *self.lazy[name])
        return name, command, rest


class Commands(Group):
    """All commands; what goes wrong in one ends here as one line on stderr."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        keep_freed_memory()
        try:
            return super().invoke(ctx)
        except Diverged as error:
            raise _ended(f"diverged: {error}", status=3) from error
        except ModuleNotFoundError as error:
            if not (todo := advice(error.name)):
                raise
            raise _ended(f"error: {error.name}: is not installed; {todo}") from error
        except (ValueError, OSError, MemoryError) as error:
            raise _ended(f"error: {_line(error)}") from error
        except (RuntimeError, ImportError) as error:  # a library that cannot be loaded, too
            if str(error).startswith("Symlink loop"):  # of `Path.resolve`
                raise _ended(f"error: {_line(error)}; choose another path") from error
            if not any(words in str(error) for words in NO_MEMORY):
                raise
            raise _ended("error: not enough memory for these sizes; ask for less "
                         f"({_line(error)})") from error


class App(typer.Typer):
    """A Typer application whose commands are of class `Command`."""

    def command(self, *args: Any, **options: Any) -> Any:
        """Register a command, as `typer.Typer.command` does."""
        return super().command(*args, **{"cls": Command, **options})


def later(name: str, address: str, help: str) -> Any:
    """Return the command of settings that have `run`, "module:Class", imported only now."""
    module, _, kind = address.partition(":")
    settings = getattr(import_module(module), kind)
    if not any(options_of(settings)):  # its options are read by tyro
        def read(ctx: typer.Context) -> None:
            parsed(settings, ctx.args, ctx.command_path).run()

        return _made(name=name, callback=read, help=help, context_settings={
            "ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []})
    parameters = list(_parameters(settings))

    def command(**values: Any) -> None:
        settings(**_filled(settings, values)).run()

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return _made(name=name, cls=Command, callback=command, help=help)


def _made(**info: Any) -> Any:
    return get_command_from_info(CommandInfo(**info), pretty_exceptions_short=True,
                                 rich_markup_mode=DEFAULT_MARKUP_MODE)


def check_given(given: dict[str, Any], single: list[str | None]) -> None:
    """Raise ValueError for an empty value, or one of the `single` options that is given twice."""
    for name, value in given.items():
        if "" in (value if isinstance(value, list | tuple) else (value,)):
            raise ValueError(
                f"{_dashed(name)}: got an empty text; give a value, or leave the option out")
    for name in filter(None, single):
        if single.count(name) > 1:
            raise ValueError(f"{_dashed(name)}: given {single.count(name)} times, wanted one; "
                             "leave the others out")


def expanded(argument: str) -> str:
    """Return an argument or an option's value with its home folder written out.

    A shell does so for `--out ~/r`, but not for `--out=~/r` or '~/r'.
    """
    named = argument.startswith("--") and "=" in argument
    option, equals, value = argument.partition("=") if named else ("", "", argument)
    if not HOME.match(value):
        return argument
    try:
        return f"{option}{equals}{Path(value).expanduser()}"
    except RuntimeError as error:
        raise ValueError(f"{option.lstrip('-') or 'path'}: {value} is in nobody's home folder; "
                         "write the path out") from error


def check_values(values: dict[str, Any]) -> None:
    """Raise ValueError for a number that is not finite or too large, or an output over an input."""
    paths = {name: value.resolve() for name, value in values.items() if isinstance(value, Path)}
    for name in sorted(WRITTEN & paths.keys()):
        for other in paths.keys() - {name}:
            if paths[name] == paths[other]:
                raise ValueError(f"{_dashed(name)}: {values[name]} is also {_dashed(other)}, which "
                                 "it would replace; choose another name")
    for name, value in values.items():
        for number in value if isinstance(value, list) else (value,):
            if isinstance(number, float) and not math.isfinite(number):
                raise ValueError(f"{_dashed(name)}: got {number}, wanted a finite number")
            if isinstance(number, int) and abs(number) > LARGEST_WRITTEN:
                raise ValueError(f"{_dashed(name)}: got {number}, wanted at most {LARGEST_WRITTEN}")
    for source in ("model", "adapter") if values.get("out") is not None else ():
        if values.get(source) and isinstance(values[source], str):
            check_apart(values["out"], values[source], values.get("text"))


def checked_path(kind: str) -> Callable[[typer.CallbackParam, Path | None], Path | None]:
    """Return the callback that checks a "file" or a "folder" to write before anything is done."""
    checking = check_folder if kind == "folder" else check_file

    def callback(param: typer.CallbackParam, value: Path | None) -> Path | None:
        return value if value is None else checking(value, param.name)

    return callback


def out_folder(words: str) -> typer.models.OptionInfo:
    """Return the option for a folder to write to; `words` is its help text."""
    return typer.Option(help=words, callback=checked_path("folder"))


def _parameters(settings: Any) -> Iterator[inspect.Parameter]:
    """Yield the parameters for the options of a dataclass, or an instance that holds defaults."""
    for each, kind, about in options_of(settings):
        item, _, repeated = item_type(kind)
        if is_dataclass(item):
            yield from (inner for inner in _parameters(_inner(each))
                        if inner.name not in about.without)
            continue
        default: Any = each.default if isinstance(settings, type) else getattr(settings, each.name)
        required, shown = default is MISSING, about.shown
        if repeated and not required:
            shown = shown or ", ".join(map(str, default)) or "none"
            default = None
        flags = [about.flag] if about.flag else [f"--{_dashed(each.name)}"] if item is bool else []
        kind_of_option: Any = typer.Argument if about.argument else typer.Option
        information = kind_of_option(*([] if about.argument else flags), help=about.help,
                                     metavar=about.metavar,
                                     callback=checked_path(about.output) if about.output else None,
                                     **({"show_default": shown} if shown else {}))
        wanted: Any = list[item] if repeated else item  # type: ignore[valid-type]
        if default is None:
            wanted |= None
        yield inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY,
                                annotation=Annotated[wanted, information],
                                default=inspect.Parameter.empty if required else default)


def _inner(holding: Field[Any]) -> Any:
    """Return the default settings of a field made by `cca_lab.settings.nested`."""
    make: Any = holding.default_factory
    return make()


def _filled(settings: type, values: dict[str, Any]) -> dict[str, Any]:
    """Return settings' fields for a command line's values; lists not given keep their default."""
    filled: dict[str, Any] = {}
    for each, kind, about in options_of(settings):
        item, _, repeated = item_type(kind)
        if is_dataclass(item):
            inner = {name: value for name, value in values.items() if name not in about.without}
            filled[each.name] = replace(_inner(each), **_filled(item, inner))
        elif each.name in values and not (repeated and values[each.name] in (None, [])):
            filled[each.name] = tuple(values[each.name]) if repeated else values[each.name]
    return filled


def _answer(old: str, moved: Mapping[str, str]) -> Any:
    """Return the command of an old name: it refuses, and names the new one."""
    def answer(words: Annotated[list[str] | None, typer.Argument()] = None) -> None:
        name = old if old in moved else " ".join([old, *(words or [])[:1]])
        if name not in moved:
            raise ValueError(f"{name}: is not a command; these moved: {', '.join(moved)}")
        raise ValueError(f"{name} is now: cca-lab {moved[name]}")

    settings = {"ignore_unknown_options": True, "help_option_names": []}
    return _made(name=old, callback=answer, hidden=True, context_settings=settings)


def _ended(line: str, status: int = 2) -> typer.Exit:
    typer.echo(line, err=True)
    return typer.Exit(status)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _dashed(name: str) -> str:
    return name.replace("_", "-")
