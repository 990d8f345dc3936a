"""`cca-lab prove`: index statements for all integers, from the lab's functions."""

from rich.console import Console
from rich.markup import escape

from cca_lab.theory.forall.report import proofs


def prove() -> list[str]:
    """Prove all statements, print a line for each, and return the names of those that fail.

    Raises:
        ModuleNotFoundError: without z3.
    """
    console, failed, seconds, count = Console(), [], 0.0, 0
    for row in proofs():
        count, seconds = count + 1, seconds + row.seconds
        sign = "[green]proved[/]" if row.finding.holds else "[bold red]FAILS[/]"
        console.print(f"{sign:28} {row.seconds:5.1f} s  {escape(row.name)}", highlight=False)
        if not row.finding.holds:
            failed.append(row.name)
            console.print(f"        {escape(row.finding.evidence)}", highlight=False)
    console.print(f"{count - len(failed)} of {count} proved, {seconds:.0f} s")
    return failed
