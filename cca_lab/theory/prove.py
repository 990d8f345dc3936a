"""`cca-lab prove`: index statements for all integers, from the lab's functions, as a page."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from cca_lab.files import replacing, repository
from cca_lab.reporting import cpu_name
from cca_lab.theory.forall.report import Row, proofs
from cca_lab.theory.pages import plain, table

HEAD = """# Proved for all integers

Written by `cca-lab prove --write`; do not edit. Each line is a statement on indices to which a
solver (z3) finds no exception among *all* integers: lengths, group sizes, windows, rows and
tokens. They are the integers of mathematics; the lab's own settings end at 2^62, so that their
sums are int64, and that no number of the programs overflows is not proved. The statements are not
about copies: the functions in the third column run on symbols in the place of numbers, so a
change of the code breaks the proof. What stands in a proof by hand, since it is not arithmetic,
is said in the last column. Every inequality that a statement concludes is attained: made one
stricter, it has an exception that the solver finds.
[What one must trust](trust.md) says what stands behind the solver.
"""


def prove(*, write: bool = False) -> list[str]:
    """Prove all statements, and print a line for each.

    Args:
        write: whether to write docs/claims/proved.md, if all are proved.

    Returns:
        The names of those that fail.

    Raises:
        ModuleNotFoundError: without z3.
        ValueError: for `write` outside of a clone.
    """
    path = repository() / "docs" / "claims" / "proved.md" if write else None
    console, rows, failed = Console(), [], []
    for row in proofs():
        rows.append(row)
        failed += [] if row.finding.holds else [row.name]
        sign = "[green]proved[/]" if row.finding.holds else "[bold red]FAILS[/]"
        console.print(f"{sign:28} {row.seconds:5.1f} s  {escape(row.name)}", highlight=False)
        if not row.finding.holds:
            console.print(f"        {escape(row.finding.evidence)}", highlight=False)
    console.print(f"{len(rows) - len(failed)} of {len(rows)} proved, "
                  f"{sum(row.seconds for row in rows):.0f} s")
    if path and not failed:
        with replacing(path) as temporary:
            temporary.write_text(page(rows, cpu_name()), encoding="utf-8", newline="\n")
        console.print("written: docs/claims/proved.md", highlight=False)
    return failed


def page(rows: Sequence[Row], cpu: str) -> str:
    """Return docs/claims/proved.md: the statements, with their times on a CPU."""
    header = ["what", "for all integers", "from", "obligations", "seconds", "by hand"]
    lines = []
    for row in rows:
        short = ", ".join(f"`{name.removeprefix('cca_lab.')}`" for name in row.runs) or "-"
        lines.append([plain(row.name), plain(row.says), short,
                      str(row.finding.numbers["obligations"]), f"{row.seconds:.2f}",
                      plain(row.by_hand) or "-"])
    total = sum(row.seconds for row in rows)
    return (f"{HEAD}\n{len(rows)} statements in {total:.0f} s on one core of an {cpu}.\n\n"
            + table(header, lines))
