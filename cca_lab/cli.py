"""The `cca-lab` command. Each command imports what it needs when it runs, so `--help` is quick."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(name="cca-lab", no_args_is_help=True, pretty_exceptions_show_locals=False,
                  add_completion=False,
                  help="Long-context attention, from loops to models.")
bench = typer.Typer(name="bench", no_args_is_help=True, help="Measure on this machine.")
app.add_typer(bench)

Start = Annotated[str | None, typer.Option("--from", help="First notebook to run, such as 05.")]
Only = Annotated[str | None, typer.Option("--only", help="The one notebook to run, such as 01.")]
Folder = Annotated[Path | None, typer.Option("--folder", help="Folder of the notebooks.",
                                             show_default="notebooks/ of the clone")]


@contextmanager
def door() -> Iterator[None]:
    """Turn a ValueError, which says what was wrong with the input, into one line and exit status 2."""
    try:
        yield
    except ValueError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from error


@app.command()
def doctor() -> None:
    """Check the installation, and say what to do about each problem."""
    from cca_lab.doctor import run

    raise typer.Exit(run())


@app.command()
def walkthrough(
    start: Start = None,
    only: Only = None,
    out: Annotated[Path, typer.Option(help="Where notebooks, pages and summary go.")]
    = Path("build/walkthrough"),
    html: Annotated[bool, typer.Option("--html/--no-html", help="Write HTML pages.")] = True,
    folder: Folder = None,
) -> None:
    """Run the notebooks in order, and write pages and a summary."""
    from cca_lab.paths import notebooks_folder
    from cca_lab.walkthrough.run import walkthrough as run

    with door():
        status = run(folder or notebooks_folder(), out, start=start, only=only, with_pages=html)
    raise typer.Exit(status)


@app.command(hidden=True)
def notebooks(start: Start = None, only: Only = None, folder: Folder = None) -> None:
    """Run the notebooks in place, to commit their outputs (for maintainers)."""
    from cca_lab.paths import notebooks_folder
    from cca_lab.walkthrough.refresh import refresh

    with door():
        status = refresh(folder or notebooks_folder(), start=start, only=only)
    raise typer.Exit(status)


@app.command(hidden=True)
def checksums(write: Annotated[bool, typer.Option("--write", help="Write them anew.")] = False) -> None:
    """Verify the checksums of the shipped data (for maintainers: write them)."""
    from cca_lab import checksums as sums
    from cca_lab.paths import data_folder

    with door():
        if write:
            typer.echo(f"written: {sums.write(data_folder())}")
            return
        problems = sums.problems(data_folder())
    typer.echo("\n".join(problems) or "all files are as shipped")
    raise typer.Exit(1 if problems else 0)
