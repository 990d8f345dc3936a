"""The command that builds the site."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cca_lab.cli.command import App
from cca_lab.cli.options import out_folder
from cca_lab.cli.page import SHIPPED

if TYPE_CHECKING:
    from cca_lab.views.site import Extra

app = App()


@app.command()
def site(out: Annotated[Path, out_folder("Folder to write to: a new one, or that of an earlier "
                                         "site.")] = Path("build/site"),
         models: Annotated[bool,
                           typer.Option("--models/--no-models",
                                        help=("Write the pages that need the shipped models too: "
                                              "the model in a page, and the explorer."))] = True,
         repository: Annotated[str | None,
                               typer.Option(metavar="OWNER/NAME", show_default="none",
                                            help="The clone on GitHub: notebooks get buttons that "
                                                 "open them on Binder and Colab.")] = None,
         branch: Annotated[str, typer.Option(help="Branch of the repository.")] = "main") -> None:
    """Write notebooks, claims, course and documents as a site that opens offline."""
    from cca_lab.files import repository as clone
    from cca_lab.views.site import build

    warnings = build(clone(), out, extras=_of_models() if models else {}, repository=repository,
                     branch=branch)
    typer.echo(warnings, err=True, nl=False)
    typer.echo(f"{out / 'index.html'}: {len(list(out.rglob('*.html')))} pages")
    if warnings:
        raise typer.Exit(1)


def _of_models() -> dict[str, "Extra"]:
    """Return the page of `cca-lab page`, and the explorer, with what they are."""
    from cca_lab.models.checkpoints import quiet
    from cca_lab.views.explorer import explore
    from cca_lab.views.page.write import write_page

    quiet()
    return {"model.html": ("Two small models that answer questions and show what they read",
                           lambda path: write_page(path, SHIPPED)),
            "explorer.html": ("The explorer: what one head of a model reads",
                              lambda path: explore("gpt2-mini").save(path))}
