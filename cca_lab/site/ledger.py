"""The ledger of claims as a page: an entry for each claim, at an anchor that is its id."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cca_lab.site.plan import Entry
from cca_lab.theory.claim import PAPERS, Verdict
from cca_lab.theory.pages import TITLES, strength
from cca_lab.walkthrough.pages import environment, markdown_html

SIGNS = {Verdict.HOLDS: "✓", Verdict.HOLDS_IF: "(✓)", Verdict.DEPENDS: "~",
         Verdict.INCONSISTENT: "≠", Verdict.FALSE: "✗"}
KINDS = {Verdict.HOLDS: "ok", Verdict.HOLDS_IF: "ok", Verdict.DEPENDS: "",
         Verdict.INCONSISTENT: "failed", Verdict.FALSE: "failed"}


def records(root: Path) -> list[dict[str, Any]]:
    """Return the findings that `cca-lab verify` stored, in the order of the ledger."""
    return json.loads((root / "data" / "results" / "claims.json").read_text(encoding="utf-8"))


def mentioned(text: str, ids: Iterable[str]) -> list[str]:
    """Return the claims that a text names, in quotes or as code.

    Args:
        text: the source of a notebook's cells.
        ids: of all claims.
    """
    quoted = set(re.findall(r"""["'`]([\w.-]+)["'`]""", text))
    return [one for one in ids if one in quoted]


def body(found: Sequence[dict[str, Any]], page: str, used: Mapping[str, Sequence[Entry]]) -> str:
    """Return the page's body.

    Args:
        found: the records.
        page: docs/claims/ledger.md, whose head is the page's head.
        used: for each claim the notebooks that name it.
    """
    head = markdown_html(page.partition("\n|")[0], Path())
    papers = [(paper, own) for paper in PAPERS if (own := [one for one in found if one["paper"] == paper])]
    template = environment(Path(__file__).parent / "templates").get_template("ledger.html")
    return template.render(head=head, papers=papers, titles=TITLES, signs=SIGNS, kinds=KINDS, strength=strength,
                           used={one["id"]: used.get(one["id"], ()) for one in found})
