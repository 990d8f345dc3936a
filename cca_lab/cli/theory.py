"""Commands that check the papers' claims."""

from pathlib import Path
from typing import Annotated

import typer

from cca_lab.cli.command import App

app = App()
Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", show_default="all",
                                                 help="Claims to verify, such as T1.")]
Explain = Annotated[bool, typer.Option("--explain",
                                       help="Print each claim in full, with its proof.")]
Papers = Annotated[Path | None,
                   typer.Option(show_default="quotations are not looked up",
                                help="Folder with the papers' texts (cca.txt, cca-poster.txt, "
                                     "dga.txt, lococo.txt), to look each quotation up.")]


Restate = Annotated[list[str] | None,
                    typer.Option(metavar="ID", show_default="none",
                                 help="Claim whose statement was changed on purpose; repeatable.")]


@app.command()
def verify(ids: Ids = None, explain: Explain = False, papers: Papers = None,
           restate: Restate = None) -> int:
    """Verify the papers' theorems and numbers, and write the ledger of claims."""
    from cca_lab.theory.verify import verify as run

    failed = run(ids or (), explain=explain, papers=papers, restate=restate or ())
    return 1 if failed else 0


@app.command()
def prove() -> int:
    """Prove index statements for all integers with z3, from the functions that the lab runs."""
    from cca_lab.theory.prove import prove as run

    failed = run()
    return 1 if failed else 0
