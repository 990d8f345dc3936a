"""The commands that write pages for a browser: the site, and the page that holds a model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cca_lab.cli.command import App, checked_path, out_folder

if TYPE_CHECKING:
    from cca_lab.views.site import Extra

app = App()
SHIPPED = ["data/models/gpt2-mini", "data/models/gpt2-mini-cca"]
Page = Annotated[Path, typer.Option(help="HTML file to write.", callback=checked_path("file"))]
Models = Annotated[list[str] | None,
                   typer.Option("--model", show_default=", ".join(SHIPPED),
                                help="Folder of a GPT-2 of the lab; repeatable, a finetuned model "
                                     "after that which it began as.")]
Attention = Annotated[str | None,
                      typer.Option(help="Mechanism that is chosen at first, such as cca or dga.",
                                   show_default="the one that a model was saved with")]
Group = Annotated[int | None, typer.Option(help="Tokens per group.",
                                           show_default="the mechanism's default")]
Window = Annotated[int | None, typer.Option(help="Local window, in tokens.",
                                            show_default="the mechanism's default")]
Option = Annotated[list[str] | None,
                   typer.Option("--option", metavar="NAME=VALUE", show_default="none",
                                help="Option of the mechanism, such as gamma=0.2; repeatable.")]
Site = Annotated[Path, out_folder("Folder to write to: a new one, or that of an earlier site.")]
WithModels = Annotated[bool, typer.Option("--models/--no-models",
                                          help="Write the pages that need the shipped models too: "
                                               "the model in a page, and the explorer.")]
Repository = Annotated[str | None, typer.Option(metavar="OWNER/NAME", show_default="none",
                                                help="The clone on GitHub: notebooks get buttons "
                                                     "that open them on Binder and Colab.")]
Branch = Annotated[str, typer.Option(help="Branch of the repository.")]


@app.command()
def page(out: Page = Path("cca-lab-page.html"), models: Models = None, attention: Attention = None,
         group: Group = None, window: Window = None, option: Option = None) -> None:
    """Write one HTML file that holds models and answers questions in a browser, offline."""
    from cca_lab.files import check_apart
    from cca_lab.models.checkpoints import quiet
    from cca_lab.studies.study import given
    from cca_lab.views.page.write import write_page

    sources = models or SHIPPED
    for source in sources:
        check_apart(out, source)
    options = given(attention, option or (), group=group, window=window)
    quiet()
    written = write_page(out, sources, attention, options)
    typer.echo(f"written: {out}, {written['bytes'] / 1e6:.1f} MB; open it in a browser")
    for model in written["models"]:
        error = f"within {model['error']:.0e}" if model["error"] else "exact"
        typer.echo(f"{model['name']}: weights {error}")


@app.command()
def site(out: Site = Path("build/site"), models: WithModels = True, repository: Repository = None,
         branch: Branch = "main") -> None:
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
