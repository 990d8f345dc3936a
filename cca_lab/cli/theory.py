"""Commands that check the papers' claims."""

from pathlib import Path

import tyro


def verify(ids: tyro.conf.Positional[tuple[str, ...]] = (), *, explain: bool = False,
           papers: Path | None = None, restate: tuple[str, ...] = ()) -> int:
    """Verify the papers' theorems and numbers, and write the ledger of claims.

    Args:
        ids: Claims to verify, such as T1; by default all.
        explain: Print each claim in full, with its proof.
        papers: Folder with the papers' texts (cca.txt, cca-poster.txt, dga.txt, lococo.txt), to
            look each quotation up.
        restate: Claims whose statement was changed on purpose.
    """
    from cca_lab.theory.verify import verify as run

    return 1 if run(ids, explain=explain, papers=papers, restate=restate) else 0


def prove() -> int:
    """Prove index statements for all integers with z3, from the functions that the lab runs."""
    from cca_lab.theory.prove import prove as run

    return 1 if run() else 0
