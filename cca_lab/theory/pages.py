"""Tables of Markdown for notebooks and articles."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cca_lab.theory import numbers


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


def wrong_numbers(paper: str) -> str:
    """Return a table of a paper's printed numbers that do not stand in the relation claimed."""
    return table(["place", "numbers", "claimed", "instead"],
                 [[plain(row.place), row.numbers, row.relation, plain(row.instead)]
                  for row in numbers.rows() if row.paper == paper and row.instead])
