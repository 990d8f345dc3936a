"""The errata as a page, and short tables of claims for notebooks."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cca_lab.theory import numbers
from cca_lab.theory.claim import PAPERS, Verdict

TITLES = {"CCA": "Core Context Aware Transformers for Long Context Language Modeling",
          "DGA": "Curse of High Dimensionality Issue in Transformer for Long-context Modeling",
          "LoCoCo": "LoCoCo: Dropping In Convolutions for Long Context Compression"}
ERRORS = (Verdict.FALSE.value, Verdict.INCONSISTENT.value)
HEAD = """# Errata

For readers of three papers on long-context attention: what in them does not hold as printed. Errors
that change a conclusion come first in each paper, with a counterexample to paste into Python and
the statement that holds instead; then statements that hold under a condition. Slips, which any
reader would repair, and printed numbers stand in tables at the end. The ideas of the papers do not
stand or fall with this list.

Each entry is a program: `cca-lab verify ID --explain` runs it again. What is printed stands in
quotation marks; how we read it stands below, in our words, and the verdict is on the most
charitable reading that we found. We had the papers' texts as extracted from PDFs, in which a symbol
may be lost. [What one must trust](trust.md) is said on a page of its own.

This page is written by `cca-lab verify --write`; do not edit.
"""


def errata_page(records: Sequence[Mapping[str, Any]]) -> str:
    """Return docs/claims/errata.md: errors by paper, then slips and numbers as tables."""
    sections = [HEAD, tally(records) + "\n"]
    kinds = {"Errors": ERRORS, "Under a condition": (Verdict.HOLDS_IF.value, Verdict.DEPENDS.value)}
    for paper in PAPERS:
        sections.append(f"## {TITLES[paper]}\n")
        for title, verdicts in kinds.items():
            found = [record for record in records if record["paper"] == paper
                     and record["verdict"] in verdicts and not record["slip"]]
            sections += [f"### {title}\n"] * bool(found)
            sections += [entry(record, example=verdicts is ERRORS) for record in found]
    slips = [[_place(record), plain(record["reading"]), f"{record['verdict']}: "
              f"{plain(record['evidence'])}", plain(record["repair"])]
             for record in records if record["slip"]]
    wrong = [[f"{row.paper}, {plain(row.place)}", f"{row.numbers} ({row.relation})",
              plain(row.instead)] for row in numbers.rows() if row.instead]
    words = [[f"{paper}, {place}", plain(said)] for paper, table in numbers.TABLE.items()
             for place, said in table.get("slips", {}).items()]
    holds = [[_place(record), plain(record["reading"])] for record in records
             if record["verdict"] == Verdict.HOLDS]
    return "\n".join([*sections,
                      "## Slips\n",
                      table(["place", "as we read it", "seen", "holds instead"], slips),
                      table(["place", "printed, and what should stand there"], words),
                      "## Printed numbers that do not agree\n",
                      table(["place", "numbers (relation)", "holds instead"], wrong),
                      "## What holds as printed\n", table(["place", "as we read it"], holds)])


def entry(record: Mapping[str, Any], *, example: bool) -> str:
    """Return one claim: quotation, reading, verdict, what was found and what holds instead."""
    quote = " … ".join(f"“{plain(piece)}”" for piece in record["quote"])
    lines = [f"#### {plain(record['place'])} (`{record['id']}`)\n"]
    lines += [f"- **Printed.** {quote}"] * bool(quote)
    lines += [f"- **Read as.** {plain(record['reading'])}",
              f"- **Seen.** {record['verdict'].capitalize()}. {plain(record['evidence'])}"]
    if record["hypothesis"]:
        lines.append(f"- **Holds if** {plain(record['hypothesis'])} (a reader could assume it: "
                     f"{plain(record['assumed'])}): {plain(record['inside'])}")
    lines += [f"- **With {plain(name)}:** {'accepted' if model['accepted'] else 'refuted'}; "
              f"{plain(model['evidence'])}" for name, model in record["models"].items()]
    lines += [f"- **{plain(name)}, by itself.** {plain(seen)}"
              for name, seen in record["sides"].items()]
    if record["machine"]:
        lines.append(f"- **Proved by a program.** {plain(record['machine'])}")
    lines += [f"- **Why.** {plain(record['proof'])}"] * bool(record["proof"])
    if record["repair"]:
        lines += ["\nHolds instead:\n", "```text",
                  textwrap.fill(record["repair"], 100, break_long_words=False), "```"]
    if example and record["example"]:
        lines += ["", "```python", record["example"].strip(), "```"]
    return "\n".join([*lines, ""])


def tally(records: Iterable[Mapping[str, Any]]) -> str:
    """Return how many claims have each verdict."""
    verdicts = [record["verdict"] for record in records]
    counts = ", ".join(f"{verdicts.count(kind.value)} {kind}" for kind in Verdict
                       if kind.value in verdicts)
    return f"{len(verdicts)} claims: {counts}."


def short_table(records: Iterable[Mapping[str, Any]], width: int = 160) -> str:
    """Return a table for a notebook: claims, verdicts, what was seen and what holds, each cut."""
    def cut(text: str) -> str:
        return plain(textwrap.shorten(text, width, placeholder=" ..."))

    rows = [[f"`{record['id']}` {cut(record['reading'])}",
             f"**{record['verdict']}**. {cut(record['evidence'])}",
             cut(record["repair"]) or "as printed"] for record in records]
    return table(["as we read it", "seen", "what holds"], rows)


def plain(text: str) -> str:
    """Return a text on one line, escaped so that Markdown shows every character unchanged."""
    return re.sub(r"([\\*_<|`\[])", r"\\\1", " ".join(text.split()))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows as a table of Markdown."""
    return "".join(f"| {' | '.join(line)} |\n" for line in [header, ["---"] * len(header), *rows])


def _place(record: Mapping[str, Any]) -> str:
    return f"`{record['id']}` {record['paper']}, {plain(record['place'])}"
