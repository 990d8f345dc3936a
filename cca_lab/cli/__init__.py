"""The `cca-lab` command. Each command imports what it needs when it runs, so `--help` is quick."""

import typer

from cca_lab.cli import course, lab, measure, models, packaged, page, reproduce, site, theory
from cca_lab.cli.command import Commands

app = typer.Typer(name="cca-lab", cls=Commands, no_args_is_help=True, pretty_exceptions_show_locals=False,
                  add_completion=False, help="Long-context attention, from loops to models.")
for commands in (lab.app, models.app, packaged.app, page.app, reproduce.app, site.app, theory.app):
    app.add_typer(commands)
for group in (course.course, measure.bench, measure.kernels, theory.experiments):
    app.add_typer(group)

__all__ = ["app"]
