"""The command that writes pages for a browser: the site."""

import os
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cca_lab.cli.command import App, out_folder

if TYPE_CHECKING:
    from cca_lab.views.site import Extra

app = App()
SiteFolder = Annotated[Path, out_folder("Folder to write to: a new one, or that of an earlier site.")]
WithModels = Annotated[bool, typer.Option("--models/--no-models",
                                          help="Write the explorer of a shipped model too.")]
Repository = Annotated[str | None, typer.Option(metavar="OWNER/NAME", show_default="none",
                                                help="The clone on GitHub: notebooks get buttons "
                                                     "that open them on Binder and Colab.")]
Branch = Annotated[str, typer.Option(help="Branch of the repository.")]


@app.command()
def site(out: SiteFolder = Path("build/site"), models: WithModels = True, repository: Repository = None,
         branch: Branch = "main") -> None:
    """Write notebooks, claims, course and documents as a site that opens offline."""
    from cca_lab.files import repository as clone
    from cca_lab.views.site import Site

    with Site(clone(), out, extras=of_models() if models else {}, repository=repository,
              branch=branch) as made:
        warnings = made.build()
    typer.echo(warnings, err=True, nl=False)
    typer.echo(f"{out / 'index.html'}: {len(list(out.rglob('*.html')))} pages")
    if warnings:
        raise typer.Exit(1)


def first_page(out: Path, *, show: bool) -> None:
    """Say where the first page of a site is, and open it where there is a screen."""
    page = (out / "index.html").resolve()
    typer.echo(f"The site: {page.as_uri()}")
    screen = os.name == "nt" or sys.platform == "darwin" or {"DISPLAY",
                                                             "WAYLAND_DISPLAY"} & {*os.environ}
    if show and screen:
        webbrowser.open(page.as_uri())


def of_models() -> dict[str, "Extra"]:
    """Return the explorer, and what it is."""
    from cca_lab.models.checkpoints import quiet
    from cca_lab.views.explorer import explore

    quiet()
    return {"explorer.html": ("The explorer: what one head of a model reads",
                              lambda path: explore("gpt2-mini").save(path))}
