"""`cca-lab verify`: check every claim of the papers, and write the ledger."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cca_lab.extras import install, missing
from cca_lab.files import in_clone
from cca_lab.reporting import training_progress
from cca_lab.theory import ledger, quotes
from cca_lab.theory.claim import Claim, Verdict
from cca_lab.theory.pages import strength, tally
from cca_lab.theory.published.printed import TABLES

COLOURS = {Verdict.HOLDS: "green", Verdict.HOLDS_IF: "yellow", Verdict.DEPENDS: "yellow",
           Verdict.INCONSISTENT: "red", Verdict.FALSE: "red"}
NARROWEST = 160  # columns; in less, the table of eight facts per claim is not readable


def verify(ids: Sequence[str] = (), *, explain: bool = False, papers: Path | None = None,
           restate: Sequence[str] = ()) -> list[str]:
    """Check claims, all for no ids, print the findings, write the ledger if all claims agree.

    Quotations and tables are looked up in `papers`, the folder of the papers' texts. A claim that
    is stated otherwise than in the ledger is not written unless its id is in `restate`. Returns the
    ids whose findings contradict the published verdict, and all other problems.
    """
    claims = ledger.select(ids)
    known = {claim.id for claim in (*claims, *ledger.collect())} | ledger.retired().keys()
    if unknown := set(restate) - known:
        raise ValueError(f"restate: got {min(unknown)!r}, which is no claim, wanted ids such as T1")
    console = Console()
    if not explain and not console.is_terminal:  # wide enough for the table
        console = Console(width=max(console.width, NARROWEST))
    texts = quotes.read(papers) if papers else {}
    misquoted = [problem for claim in claims if papers
                 for problem in quotes.problems(claim, texts[claim.paper])]
    misquoted += quotes.miscopied(TABLES, texts) if papers else []
    for problem in misquoted:
        console.print(problem, style="bold red", highlight=False, markup=False)
    without = missing("proofs") if any(claim.machine for claim in claims) else []
    if without:
        console.print(f"{' and '.join(without)} are not installed, so what they prove was not "
                      f"proved again, and nothing is written; {install('proofs')}", highlight=False,
                      markup=False)
    with training_progress("claims", len(claims)) as report:
        records = ledger.run(claims, report, prove=not without)
    if explain:
        for claim, record in zip(claims, records, strict=True):
            console.print(explained(claim, record), soft_wrap=True)
    else:
        console.print(table(records))
    console.print(summary(records), highlight=False)
    failed = ledger.failures(records)
    if not ids and in_clone():
        changed = ledger.restated(records, ledger.stored())
        failed += [f"{name}: stated otherwise ({fields}); if you mean it, --restate {name}"
                   for name, fields in changed.items() if name not in restate]
        for problem in failed:
            console.print(problem, style="bold red", highlight=False, markup=False)
    if not ids and not failed and not misquoted and not without and in_clone():
        written = ledger.write(records) + ([ledger.write_found(claims)] if papers else [])
        console.print(f"written: {len(written)} files, from {written[0].name} to "
                      f"{written[-1].name}", highlight=False)
    return failed + misquoted


def table(records: list[dict[str, Any]]) -> Table:
    """Return the findings as a table, one row per claim."""
    shown = Table(show_lines=True, expand=True)
    shown.add_column("id", no_wrap=True)
    for title, ratio in {"paper, place": 2, "claim, as we read it": 4, "verdict": 2, "seen": 5,
                         "what holds": 4, "stands on": 2}.items():
        shown.add_column(title, ratio=ratio)
    for record in records:
        verdict = Text(record["verdict"], style=COLOURS[Verdict(record["verdict"])])
        if record["contradictions"]:
            verdict.append("\nthe check disagrees", style="bold red")
        shown.add_row(record["id"], Text(f"{record['paper']}, {record['place']}"),
                      Text(record["reading"]), verdict, Text(record["evidence"]),
                      Text(record["repair"] or "-"), strength(record))
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
             "numbers": ", ".join(f"{key} = {value}" for key, value in record["numbers"].items()),
             "weight": record["weight"] or "",
             "stands on": f"{strength(record)}; {name.__module__}.{name.__qualname__}",
             "but": "; ".join(record["contradictions"])}
    text = Text(f"{record['id']}  {record['paper']}, {record['place']}: ", style="bold")
    text.append(record["verdict"], style=COLOURS[Verdict(record["verdict"])])
    text.append("  (the check disagrees)" if record["contradictions"] else "", style="bold red")
    for title, words in facts.items():
        if words:
            body = textwrap.fill(" ".join(words.split()), 100, initial_indent=f"  {title:<14}",
                                 subsequent_indent=" " * 16)
            text.append(f"\n{body}", style="default")
    return text.append("\n")


def summary(records: list[dict[str, Any]]) -> str:
    """Return how many claims have each verdict, how many errors there are, what disagrees."""
    failed = ledger.failures(records)
    disagree = f" The checks disagree on {', '.join(failed)}; nothing written." if failed else ""
    return tally(records) + disagree
