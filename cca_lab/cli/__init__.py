"""The `cca-lab` command. Each command imports what it needs when it runs, so `--help` is quick."""

import typer

from cca_lab.cli import course, lab, site, studies, theory

app = typer.Typer(name="cca-lab", cls=studies.Lab, no_args_is_help=True,
                  pretty_exceptions_show_locals=False, add_completion=False,
                  help="Long-context attention, from loops to models.")
for commands in (lab.app, site.app, theory.app):
    app.add_typer(commands)
for group in (course.course, studies.study):
    app.add_typer(group)

__all__ = ["app"]
