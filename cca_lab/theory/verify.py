"""`cca-lab verify`: check the claims of the ledger and the printed numbers."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from cca_lab.extras import install, missing
from cca_lab.reporting import training_progress
from cca_lab.theory import ledger, numbers
from cca_lab.theory.claim import Verdict

COLOURS = {Verdict.HOLDS: "green", Verdict.INCONSISTENT: "red", Verdict.FALSE: "red"}
WIDTH = 100  # columns, where a terminal is not narrower


def verify(ids: Sequence[str] = (), *, explain: bool = False) -> list[str]:
    """Check claims, all and the printed numbers for no ids, and print the findings.

    Returns the ids whose findings contradict the published verdict, and the places of numbers.
    """
    claims = ledger.select(ids)
    console = Console()
    if not console.is_terminal or console.width > WIDTH:
        console = Console(width=WIDTH)
    without = missing("proofs") if any(claim.machine for claim in claims) else []
    if without:
        console.print(f"{' and '.join(without)} are not installed, so what they prove was not "
                      f"proved again; {install('proofs')}", highlight=False, markup=False)
    with training_progress("claims", len(claims)) as report:
        records = ledger.run(claims, report, prove=not without)
    if explain:
        for record in records:
            console.print(explained(record), soft_wrap=True)
    else:
        console.print(table(records))
    verdicts = [record["verdict"] for record in records]
    counts = ", ".join(f"{verdicts.count(kind)} {kind}" for kind in Verdict if kind in verdicts)
    console.print(f"{len(verdicts)} claims: {counts}.", highlight=False)
    failed = ledger.failures(records)
    if not ids:
        rows = list(numbers.rows())
        failed += [f"{row.paper}, {row.place}" for row in rows if not row.agrees]
        console.print(f"{len(rows)} rows of printed numbers: "
                      f"{sum(not row.instead for row in rows)} agree, "
                      f"{sum(bool(row.instead) for row in rows)} do not.", highlight=False)
    for name in failed:
        console.print(f"the check disagrees: {name}", style="bold red", highlight=False,
                      markup=False)
    return failed


def table(records: Sequence[Mapping[str, Any]]) -> Text:
    """Return the findings, two lines a claim: its verdict and place, and how it is read."""
    shown = Text()
    for record in records:
        verdict = record["verdict"]
        line = textwrap.shorten(record["place"], WIDTH - 47, placeholder=" ...")
        read = textwrap.shorten(record["reading"], WIDTH - 4, placeholder=" ...")
        shown.append(f"{record['id']:<15} ", style="bold")
        shown.append(f"{verdict:<30} ", style=COLOURS[Verdict(verdict)])
        shown.append(f"{line}\n    {read}\n")
    return shown


def explained(record: Mapping[str, Any]) -> Text:
    """Return a claim in full: words, reading, verdict, repair, what was found, its article."""
    facts = {"printed": " … ".join(record["quote"]), "read as": record["reading"],
             "what holds": record["repair"], **record["findings"],
             "article": f"docs/claims/{record['paper'].lower()}.md"}
    text = Text(f"{record['id']}  {record['paper']}, {record['place']}: ", style="bold")
    text.append(record["verdict"], style=COLOURS[Verdict(record["verdict"])])
    text.append("  (the check disagrees)" if record["contradictions"] else "", style="bold red")
    for title, words in facts.items():
        if words:
            body = textwrap.fill(f"{title}: {words}", WIDTH, initial_indent="  ",
                                 subsequent_indent="      ")
            text.append(f"\n{body}", style="default")
    return text.append("\n")
