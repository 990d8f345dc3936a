"""Commands that check the papers' claims."""

import tyro


def verify(ids: tyro.conf.Positional[tuple[str, ...]] = (), *, explain: bool = False) -> int:
    """Verify the claims of the ledger and the printed numbers.

    Args:
        ids: Claims to verify, such as T1; by default all.
        explain: Print each claim in full.
    """
    from cca_lab.theory.verify import verify as run

    return 1 if run(ids, explain=explain) else 0


def prove() -> int:
    """Prove index statements for all integers with z3, from the functions that the lab runs."""
    from cca_lab.theory.prove import prove as run

    return 1 if run() else 0
