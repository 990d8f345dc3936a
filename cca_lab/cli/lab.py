"""Commands that check the installation, run the notebooks and maintain the shipped data."""

from pathlib import Path
from typing import Annotated

import typer

from cca_lab.cli.command import App
from cca_lab.cli.options import Folder, Only, Start, out_folder

app = App()


@app.command()
def doctor() -> int:
    """Check the installation, and say what to do about each problem."""
    from cca_lab.cli.doctor import run

    return run()


@app.command()
def native() -> None:
    """Build the C++ op that makes attention on the CPU faster, and say where it is."""
    from cca_lab.attention import native, native_build

    library = native_build.library()
    if not library.is_file() and not native_build.missing():
        typer.echo("compiling, about half a minute", err=True)
    native.load()
    typer.echo(f"native op: {library}\n" + (
        f'backend "auto" does not take it, because {native_build.SWITCH}=0' if native_build.
        switched_off() else
        f'backend "auto" takes it on the CPU from now on; {native_build.SWITCH}=0 turns that off'))


@app.command()
def walkthrough(start: Start = None, only: Only = None, out: Annotated[Path, out_folder(
    "Folder for the notebooks, pages and summary.")] = Path("build/walkthrough"),
                html: Annotated[bool, typer.Option("--html/--no-html",
                                                   help="Write HTML pages too.")] = True,
                folder: Folder = None) -> int:
    """Run the notebooks in order, and write pages and a summary."""
    from cca_lab.files import notebooks_folder
    from cca_lab.views.walkthrough import walkthrough as run

    _build_native()
    return run(folder or notebooks_folder(), out, start=start, only=only, with_pages=html)


@app.command()
def notebooks(start: Start = None, only: Only = None, folder: Folder = None,
              student: Annotated[Path | None,
                                 out_folder("Write the notebooks to work in to this folder: "
                                            "without outputs, hints and solutions folded. Files "
                                            "that are there stay.")] = None) -> int:
    """Write the notebooks to work in (`--student`).

    Without it, run the committed ones in place (for maintainers).
    """
    from cca_lab.course.release import build
    from cca_lab.files import notebooks_folder
    from cca_lab.views.walkthrough import refresh

    if student is not None:
        new, left = build(folder or notebooks_folder(), student)
        typer.echo(f"{student}: {len(new)} notebooks written"
                   + (f", {len(left)} left as they are; delete one to get it anew" if left else ""))
        return 0
    _build_native()
    return refresh(folder or notebooks_folder(), start=start, only=only)


def _build_native() -> None:
    """Build the native op before a notebook does, in whose output the line about it would stand."""
    from cca_lab.attention import native_build

    if not native_build.switched_off():
        native_build.build_for_auto()


@app.command(hidden=True)
def checksums(write: Annotated[bool, typer.Option("--write", help="Write them again "
                                                                  "instead.")] = False) -> int:
    """Verify the checksums of the shipped data (for maintainers: write them)."""
    from cca_lab.files import checksum_problems, data_folder, write_checksums

    if write:
        typer.echo(f"written: {write_checksums(data_folder())}")
        return 0
    problems = checksum_problems(data_folder())
    typer.echo("\n".join(problems) or "all files are as shipped")
    return 1 if problems else 0


@app.command(hidden=True)
def readme() -> None:
    """Write the tables, pages and figures of README and docs/ from data/ (for maintainers)."""
    from cca_lab.studies import record, tables
    from cca_lab.studies.reproduce import page

    written = [*tables.write(), tables.draw(), page.write(), record.write()]
    typer.echo(f"written: {', '.join(map(str, written))}")
