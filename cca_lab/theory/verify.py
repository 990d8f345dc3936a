"""`cca-lab verify`: check every claim of the papers and their printed numbers."""

import textwrap
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cca_lab.extras import install, missing
from cca_lab.files import in_clone, replacing, repository
from cca_lab.reporting import training_progress
from cca_lab.theory import ledger, numbers, pages
from cca_lab.theory.claim import Claim, Verdict

COLOURS = {Verdict.HOLDS: "green", Verdict.HOLDS_IF: "yellow", Verdict.DEPENDS: "yellow",
           Verdict.INCONSISTENT: "red", Verdict.FALSE: "red"}
WIDTH = 100  # columns, where a terminal is not narrower


def verify(ids: Sequence[str] = (), *, explain: bool = False, write: bool = False) -> list[str]:
    """Check claims, all and the printed numbers for no ids, and print the findings.

    With `write`, all claims and a clone, it writes docs/claims/errata.md if all is as labelled.
    Returns the ids whose findings contradict the published verdict, and the places of numbers.
    """
    if write and (ids or not in_clone()):
        raise ValueError("write: the page has all claims; leave the ids out, in a clone")
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
        for claim, record in zip(claims, records, strict=True):
            console.print(explained(claim, record), soft_wrap=True)
    else:
        console.print(table(records))
    console.print(pages.tally(records), highlight=False)
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
    if write and not failed and not without:
        path = repository() / "docs" / "claims" / "errata.md"
        with replacing(path) as temporary:
            temporary.write_text(pages.errata_page(records), encoding="utf-8", newline="\n")
        console.print("written: docs/claims/errata.md", highlight=False)
    return failed


def table(records: Sequence[dict[str, Any]]) -> Table:
    """Return the findings as a table, one row per claim."""
    shown = Table(expand=True)
    shown.add_column("id", no_wrap=True)
    for title, ratio in {"place": 3, "claim, as we read it": 7, "verdict": 2}.items():
        shown.add_column(title, ratio=ratio)
    for record in records:
        shown.add_row(record["id"], Text(record["place"]),
                      Text(textwrap.shorten(record["reading"], 120, placeholder=" ...")),
                      Text(record["verdict"], style=COLOURS[Verdict(record["verdict"])]))
    return shown


def explained(claim: Claim, record: dict[str, Any]) -> Text:
    """Return a claim in full: words, reading, verdict, evidence, repair, proof, its check."""
    name = getattr(claim.check, "func", claim.check)  # a partial's function
    hypothesis = f"{record['hypothesis']}: {record['inside']}" if record["hypothesis"] else ""
    models = "; ".join(f"{model}: {'accepted' if seen['accepted'] else 'refuted'}, "
                       f"{seen['evidence']}" for model, seen in record["models"].items())
    facts = {"printed": " … ".join(record["quote"]), "read as": record["reading"],
             "seen": record["evidence"], "holds if": hypothesis, "models": models,
             "each alone": "; ".join(f"{side}: {words}" for side, words in record["sides"].items()),
             "what holds": record["repair"], "seen of that": record["corrected"] or "",
             "proved": record["machine"] or "", "proof": record["proof"],
             "check": f"{name.__module__}.{name.__qualname__}",
             "but": "; ".join(record["contradictions"])}
    text = Text(f"{record['id']}  {record['paper']}, {record['place']}: ", style="bold")
    text.append(record["verdict"], style=COLOURS[Verdict(record["verdict"])])
    text.append("  (the check disagrees)" if record["contradictions"] else "", style="bold red")
    for title, words in facts.items():
        if words:
            body = textwrap.fill(" ".join(words.split()), WIDTH, initial_indent=f"  {title:<14}",
                                 subsequent_indent=" " * 16)
            text.append(f"\n{body}", style="default")
    return text.append("\n")
