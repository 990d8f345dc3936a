"""The ledger as pages: docs/claims.md, with one row per claim, and docs/errata.md for readers of the papers."""

import re
from typing import Any

from cca_lab.theory.claim import PAPERS, Verdict

TITLES = {
    "CCA": "Core Context Aware Transformers for Long Context Language Modeling (CCA-Attention)",
    "DGA": "Curse of High Dimensionality Issue in Transformer for Long-context Modeling (DGA)",
    "LoCoCo": "LoCoCo: Dropping In Convolutions for Long Context Compression",
}
CLAIMS_HEAD = """# The claims of the papers, verified

Written by `cca-lab verify`; do not edit. `cca-lab verify ID --explain` shows one claim in full.

Every row is judged by a check that can refute it: the tests feed each check the printed statement, the
corrected one, where there is one, which it must accept, and a wrong one, which it must refute. *exact* is
rational arithmetic, exhaustive search or a closed form against it; *proved, spot-checked* is a proof, evaluated
at points; *Monte Carlo* has fixed seeds and states the half-width of its confidence interval.
"""
ERRATA_HEAD = """# Errata

For readers of three papers on long-context attention: what in them does not hold as printed, the smallest
example that shows it, and what holds instead. The ideas of the papers do not stand or fall with this list.
Several entries are slips of an index or a digit that any reader would repair; a few are theorems whose
statement or proof has to change; some hold under a condition, or in one of several readings.

Each entry is a row of the [ledger of claims](claims.md), which also lists what does hold. Each is a program:
`cca-lab verify ID --explain` runs the entry with that id again. We judge the printed text. Statements are
shortened; words in brackets are our reading, and the verdict is on that reading. A few rows compare tables with
each other. Where a symbol may have been lost in typesetting, every reading we could think of was judged. If we
are wrong, the check named by the id is the place to show it.

This page is written by `cca-lab verify`; do not edit.
"""


def claims_page(records: list[dict[str, Any]], counts: dict[str, int]) -> str:
    """Return docs/claims.md: a count of the verdicts, and one row per claim."""
    tally = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    header = ["id", "paper, place", "claim", "verdict", "seen", "corrected statement", "check"]
    rows = [[f"`{found['id']}`", plain(f"{found['paper']}, {found['place']}"), plain(found["statement"]),
             found["verdict"], plain(found["evidence"]), plain(found["repair"]) or "-", strength(found)]
            for found in records]
    table = "".join(f"| {' | '.join(line)} |\n" for line in [header, ["---"] * len(header), *rows])
    return f"{CLAIMS_HEAD}\n{len(records)} claims: {tally}.\n\n{table}"


def errata_page(records: list[dict[str, Any]]) -> str:
    """Return docs/errata.md: every claim that does not hold as printed, paper by paper."""
    parts = [ERRATA_HEAD]
    for paper in PAPERS:
        wrong = [found for found in records if found["paper"] == paper and found["verdict"] != Verdict.HOLDS.value]
        if wrong:
            parts += [f"## {TITLES[paper]}\n", *(erratum(found) for found in wrong)]
    return "\n".join(parts)


def erratum(found: dict[str, Any]) -> str:
    """Return the entry of one claim: place, what is printed, what is wrong, the smallest example, the repair."""
    entry = [
        f"### {plain(found['place'])} (`{found['id']}`)\n",
        f"- **Printed.** {plain(found['statement'])}",
        f"- **Verdict.** {found['verdict'].capitalize()} ({strength(found)}).",
        f"- **Example.** {plain(found['evidence'])}",
        f"- **Repair.** {plain(found['repair'])}",
        f"- **Why.** {plain(found['proof'])}",
    ]
    return "\n".join(entry) + "\n"


def strength(found: dict[str, Any]) -> str:
    """Return how much the check proves, with its error if it is Monte Carlo."""
    return found["strength"] if found["error"] is None else f"{found['strength']}, ± {found['error']:g}"


def plain(text: str) -> str:
    """Return a text on one line, escaped so that Markdown shows every character unchanged."""
    return re.sub(r"([\\*_<|`])", r"\\\1", " ".join(text.split()))
