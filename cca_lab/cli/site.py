"""The commands that build the site, and the article."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cca_lab.cli.command import App
from cca_lab.cli.options import door, out_folder
from cca_lab.cli.page import SHIPPED

if TYPE_CHECKING:
    from cca_lab.site.build import Extra

app = App()


@app.command()
def site(
    out: Annotated[Path, out_folder("Folder to write to: a new one, or that of an earlier site.")] = Path("build/site"),
    models: Annotated[bool, typer.Option("--models/--no-models", help=(
        "Write the pages that need the shipped models too: the model in a page, and the explorer."))] = True,
    repository: Annotated[str | None, typer.Option(
        metavar="OWNER/NAME", show_default="none",
        help="The clone on GitHub: notebooks get links that open them on Binder and Colab.")] = None,
    branch: Annotated[str, typer.Option(help="Branch of the repository.")] = "main",
) -> None:
    """Write notebooks, ledger, course and documents as a site that opens offline and lies on any static host."""
    import time

    from cca_lab.files import repository as clone
    from cca_lab.site.build import build
    from cca_lab.site.links import problems

    began = time.monotonic()
    with door():
        built = build(clone(), out, extras=_of_models() if models else (), repository=repository, branch=branch)
    typer.echo(f"{out / 'index.html'}: {built.pages} pages, {built.bytes / 1e6:.1f} MB, of which "
               f"{built.index_bytes / 1e6:.2f} MB to search in, in {time.monotonic() - began:.0f} s")
    if wrong := problems(out):
        typer.echo("\n".join(wrong), err=True)
        raise typer.Exit(1)


@app.command()
def article(
    out: Annotated[Path, typer.Option(help="PDF to write.")] = Path("build/article.pdf"),
    source: Annotated[Path | None, typer.Option(help="Markdown file to print.",
                                                show_default="docs/article.md of the clone")] = None,
) -> None:
    """Print the short article on the ledger of claims as a PDF."""
    from cca_lab.cli import doctor
    from cca_lab.files import repository as clone
    from cca_lab.site.article import write_pdf

    with door():
        typer.echo(f"written: {write_pdf(source or clone() / 'docs' / 'article.md', out, doctor.chromium())}")


def _of_models() -> list["Extra"]:
    """Return the page of `cca-lab page`, and the explorer where it can write one."""
    from importlib.util import find_spec

    from cca_lab.models.loading import quiet
    from cca_lab.site.build import Extra
    from cca_lab.views.page.write import write_page

    quiet()
    pages = [Extra("model.html", "The model in a page", "Two small models in the browser: ask them questions, choose "
                   "their attention, and see what it reads.", lambda path: write_page(path, SHIPPED))]
    if find_spec("cca_lab.views.explorer.standalone"):
        from cca_lab.views.explorer import explore

        pages.append(Extra("explorer.html", "The explorer", "What one head of a model reads: point at a token, and see "
                           "its tokens, cores and weights.", lambda path: explore("gpt2-mini").save(path)))
    return pages
