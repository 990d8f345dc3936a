"""The `cca-lab` command. Each command imports what it needs when it runs, so `--help` is quick."""

from typing import Any

import typer
from typer.core import TyperGroup

from cca_lab.cli import course, lab, measure, models, packaged, page, reproduce, site, theory
from cca_lab.extras import advice
from cca_lab.freed_memory import keep_freed_memory


class Commands(TyperGroup):
    """The commands; if one needs an extra that is not installed, one line says so, with exit status 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        keep_freed_memory()
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if not (todo := advice(error.name)):
                raise
            typer.echo(f"error: {error.name}: is not installed; {todo}", err=True)
            raise typer.Exit(2) from error


app = typer.Typer(name="cca-lab", cls=Commands, no_args_is_help=True, pretty_exceptions_show_locals=False,
                  add_completion=False, help="Long-context attention, from loops to models.")
for part in (lab.app, models.app, packaged.app, page.app, reproduce.app, site.app, theory.app):
    app.add_typer(part)
for group in (course.course, measure.bench, measure.kernels, theory.experiments):
    app.add_typer(group)

__all__ = ["app"]
