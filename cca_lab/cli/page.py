"""The command that writes the page which holds a model."""

from pathlib import Path
from typing import Annotated

import typer

from cca_lab.cli.command import App, checked_path
from cca_lab.cli.options import Group, Option, Window

app = App()
SHIPPED = ["data/models/gpt2-mini", "data/models/gpt2-mini-cca"]


@app.command()
def page(out: Annotated[Path,
                        typer.Option(help="HTML file to write.",
                                     callback=checked_path("file"))] = Path("cca-lab-page.html"),
         models: Annotated[list[str] | None, typer.Option(
        "--model", help="Folder of a GPT-2 of the lab; repeatable, a finetuned model after that "
                        "which it began as.", show_default=", ".join(SHIPPED))] = None,
         attention: Annotated[
        str | None, typer.Option(help="Mechanism that is chosen at first, such as cca or dga.",
                                 show_default="the one that a model was saved with")] = None,
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
