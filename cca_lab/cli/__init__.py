"""The `cca-lab` command. Each command imports what it needs when it runs, so `--help` is quick."""

import typer

from cca_lab.cli import lab, measure, models, theory

app = typer.Typer(name="cca-lab", no_args_is_help=True, pretty_exceptions_show_locals=False,
                  add_completion=False, help="Long-context attention, from loops to models.")
for part in (lab.app, models.app, theory.app):
    app.add_typer(part)
for group in (measure.bench, measure.kernels, theory.experiments):
    app.add_typer(group)

__all__ = ["app"]
