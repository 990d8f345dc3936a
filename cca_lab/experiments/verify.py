"""`cca-lab verify`: check every claim of the papers, and write the ledger."""

import textwrap
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cca_lab.paths import in_clone
from cca_lab.reporting.progress import training_progress
from cca_lab.theory import ledger
from cca_lab.theory.claim import Claim, Verdict
from cca_lab.theory.pages import strength

COLOURS = {Verdict.HOLDS: "green", Verdict.HOLDS_IF: "yellow", Verdict.DEPENDS: "yellow", Verdict.FALSE: "red"}
NARROWEST = 160  # columns; in less, the table of eight facts per claim is not readable


def verify(ids: Sequence[str] = (), *, explain: bool = False) -> list[str]:
    """Check claims, print the findings, and write the clone's ledger if all claims were checked and agree.

    Args:
        ids: ids of the claims to check; empty for all.
        explain: print each claim in full, with its proof.

    Returns:
        The ids whose findings contradict the published verdict.

    Raises:
        ValueError: for an unknown id.
    """
    claims = ledger.select(ids)
    with training_progress("claims", len(claims)) as report:
        records = ledger.run(claims, report)
    console = _console(explain)
    if explain:
        for claim, found in zip(claims, records, strict=True):
            console.print(explained(claim, found), soft_wrap=True)
    else:
        console.print(table(records))
    console.print(summary(records), highlight=False)
    failed = ledger.failures(records)
    if not ids and not failed and in_clone():
        for path in ledger.write(records):
            console.print(f"written: {path.name}", highlight=False)
    return failed


def table(records: list[dict[str, Any]]) -> Table:
    """Return the findings as a table, one row per claim."""
    shown = Table(show_lines=True, expand=True)
    shown.add_column("id", no_wrap=True)
    for title, ratio in {"paper, place": 2, "claim": 4, "verdict": 2, "seen": 5, "corrected": 4, "check": 2}.items():
        shown.add_column(title, ratio=ratio)
    for found in records:
        verdict = Text(found["verdict"], style=COLOURS[Verdict(found["verdict"])])
        if not found["agrees"]:
            verdict.append("\nthe check disagrees", style="bold red")
        shown.add_row(found["id"], Text(f"{found['paper']}, {found['place']}"), Text(found["statement"]), verdict,
                      Text(found["evidence"]), Text(found["repair"] or "-"), strength(found))
    return shown


def explained(claim: Claim, found: dict[str, Any]) -> Text:
    """Return one claim in full: statement, verdict, evidence, repair, proof, and the function that checks it."""
    name = getattr(claim.check, "func", claim.check)  # a partial's function
    facts = [("claim", found["statement"]), ("seen", found["evidence"]), ("corrected", found["repair"] or "-"),
             ("corrected, seen", found["corrected"] or "-"), ("proof", found["proof"]),
             ("numbers", ", ".join(f"{key} = {value}" for key, value in found["numbers"].items()) or "-"),
             ("check", f"{strength(found)}; {name.__module__}.{name.__qualname__}")]
    text = Text(f"{found['id']}  {found['paper']}, {found['place']}: ", style="bold")
    text.append(found["verdict"], style=COLOURS[Verdict(found["verdict"])])
    text.append("" if found["agrees"] else "  (the check disagrees)", style="bold red")
    for title, words in facts:
        body = textwrap.fill(" ".join(words.split()), 100, initial_indent=f"  {title:<16}", subsequent_indent=" " * 18)
        text.append(f"\n{body}", style="default")
    return text.append("\n")


def summary(records: list[dict[str, Any]]) -> str:
    """Return how many claims have each verdict, and the claims whose findings contradict the verdict."""
    tally = ", ".join(f"{number} {verdict}" for verdict, number in ledger.counts(records).items() if number)
    failed = ledger.failures(records)
    disagree = f"; the checks disagree on {', '.join(failed)}, so nothing was written" if failed else ""
    return f"{len(records)} claims: {tally}{disagree}"


def _console(explain: bool) -> Console:
    """Return a console that is wide enough for the table even without a terminal."""
    console = Console()
    return console if explain or console.is_terminal else Console(width=max(console.width, NARROWEST))
