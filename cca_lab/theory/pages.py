"""The ledger as pages.

The errata for readers of the papers, and an overview and a page a claim for the site.
"""

import json
import re
import textwrap
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cca_lab.files import results_folder
from cca_lab.theory.claim import PAPERS, Strength, Verdict, Weight

WORDS = tomllib.loads(
    Path(__file__).with_name("claims").joinpath("pages.toml").read_text(encoding="utf-8"))
TITLES: dict[str, str] = WORDS["titles"]


def write(folder: Path, records: list[dict[str, Any]] | None = None) -> list[Path]:
    """Write the overview, ledger.md, and a page for each claim, ID.md, for the site.

    Args:
        folder: where to write; it is made if it is not there.
        records: of the claims; those that `cca-lab verify` stored, if None.

    Returns:
        The paths, the overview first.
    """
    if records is None:
        records = json.loads((results_folder() / "claims.json").read_text(encoding="utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"ledger": claims_page(records)} | {found["id"]: claim_page(found) for found in records}
    for name, text in texts.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8", newline="\n")
    return [folder / f"{name}.md" for name in texts]


def claims_page(records: list[dict[str, Any]]) -> str:
    """Return the overview: counts of verdicts and of errors, and one row per claim."""
    header = ["id", "paper, place", "claim, as we read it", "verdict", "seen", "what holds",
              "stands on"]
    rows = [[f"[`{found['id']}`]({found['id']}.md)", plain(f"{found['paper']}, {found['place']}"),
             plain(found["reading"]), verdict(found), plain(found["evidence"]),
             plain(found["repair"]) or "-", strength(found)] for found in records]
    return f"{WORDS['claims']}\n{tally(records)}\n\n{_table(header, rows)}"


def tally(records: Iterable[dict[str, Any]]) -> str:
    """Return how many claims have each verdict, and how many errors have each weight."""
    records = list(records)
    verdicts = [found["verdict"] for found in records]
    by_verdict = ", ".join(f"{verdicts.count(one.value)} {one}" for one in Verdict
                           if one.value in verdicts)
    roots = distinct(records)
    by_weight = ", ".join(f"{len(roots[one.value])} of {one}" for one in Weight if roots[one.value])
    wrong, refuted = sum(map(len,
                             roots.values())), len(records) - verdicts.count(Verdict.HOLDS.value)
    errors = (f" Behind the {refuted} that do not simply hold stand {wrong} distinct errors or "
              f"conditions: {by_weight}.")
    return f"{len(records)} claims: {by_verdict}." + (errors if wrong else "")


def counted(page: str, records: Iterable[dict[str, Any]]) -> str:
    """Return a page with the counts of today between its marks."""
    begin, end = "<!-- tally -->\n", "<!-- end -->"
    before, mark, rest = page.partition(begin)
    return f"{before}{mark}{tally(records)}\n{end}{rest.partition(end)[2]}" if mark else page


def distinct(records: Iterable[dict[str, Any]]) -> dict[str, set[str]]:
    """Return the roots of the errors by weight.

    Claims with one root count once, by the weight of the root.
    """
    own = {found["root"]: found["weight"] for found in records if found["root"] == found["id"]}
    return {one.value: {name for name, weight in own.items() if weight == one.value}
            for one in Weight}


def errata_page(records: list[dict[str, Any]]) -> str:
    """Return docs/claims/errata.md.

    Every claim that does not hold as printed, paper by paper, the weightiest first.
    """
    parts = [WORDS["errata"]]
    weights = [one.value for one in Weight]
    for paper in PAPERS:
        wrong = [found for found in records if found["paper"] == paper and found["verdict"]
                 != Verdict.HOLDS.value]
        if wrong:
            wrong.sort(key=lambda found: weights.index(found["weight"]))
            parts += [f"## {TITLES[paper]}\n", *(erratum(found) for found in wrong)]
    right = [found for found in records if found["verdict"] == Verdict.HOLDS.value]
    rows = [(f"`{found['id']}`", f"{found['paper']}, {plain(found['place'])}",
             plain(found["reading"])) for found in right]
    listed = _table(["id", "place", "as we read it"], rows)
    return "\n".join([*parts, f"## What holds as printed\n\n{listed}"])


def erratum(found: dict[str, Any]) -> str:
    """Return the entry of one claim.

    Place, what is printed, what is wrong, the smallest example, the repair.
    """
    again = "" if found["root"] == found["id"] else f"- **Same error as** `{found['root']}`.\n"
    head = f"### {plain(found['place'])} (`{found['id']}`)\n"
    return "\n".join([head, *quoted(found), *facts(found)]) + f"\n{again}"


def quoted(found: Mapping[str, Any]) -> list[str]:
    """Return the quotation and the reading as lines of a list."""
    mark = " †" if found["formula"] else ""
    words = " … ".join(f"“{plain(piece)}”" for piece in found["quote"])
    printed = [f"- **Printed.** {words}{mark}"] if words else []
    return [*printed, f"- **Read as.** {plain(found['reading'])}"]


def facts(found: Mapping[str, Any]) -> list[str]:
    """Return the verdict and everything that was found, as lines of a list."""
    lines = [f"- **Verdict.** {verdict(found).capitalize()} ({strength(found)}).",
             f"- **Seen.** {plain(found['evidence'])}"]
    if found["hypothesis"]:
        lines.append(f"- **Holds if** {plain(found['hypothesis'])}: {plain(found['inside'])}")
    lines += [f"- **With {plain(name)}:** {'accepted' if one['accepted'] else 'refuted'}; "
              f"{plain(one['evidence'])}" for name, one in found["models"].items()]
    lines += [f"- **{plain(name)}, by itself.** {plain(words)}" for name,
              words in found["sides"].items()]
    if found["repair"]:
        lines.append(f"- **Holds instead.** {plain(found['repair'])} ({found['repaired']})")
    if found["machine"]:
        lines.append(f"- **Proved by a program.** {plain(found['machine'])}")
    return [*lines, f"- **Why.** {plain(found['proof'])}"]


def short_table(records: Iterable[Mapping[str, Any]], width: int = 160) -> str:
    """Return a table for a notebook: the claim, its verdict with what was seen, what holds.

    Args:
        records: of the claims to show.
        width: characters to keep of each text; the claim's page has all.
    """
    rows = [[f"`{found['id']}` {_cut(found['reading'], width)}", f"**{verdict(found)}**. "
             f"{_cut(found['evidence'], width)}", _cut(found["repair"], width) or "as printed"]
            for found in records]
    return _table(["the paper says", "seen", "what holds"], rows)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in [header, ["---"] * len(header), *rows])


def _cut(text: str, width: int) -> str:
    return plain(textwrap.shorten(text, width, placeholder=" ..."))


def claim_page(found: Mapping[str, Any]) -> str:
    """Return the page of one claim, with everything about it."""
    note = "\n† From text extracted from a PDF; the printed page was not at hand.\n" if found[
        "formula"] else ""
    example = found["example"].strip() or WORDS["example"].format(found["id"])
    root = found["root"]
    repeats = "" if root in (None, found["id"]) else f" Its error is that of [`{root}`]({root}.md)."
    weight = f" Weight: {found['weight']}.{repeats}" if found["weight"] else ""
    return "\n".join([f"# `{found['id']}`\n", f"{plain(TITLES[found['paper']])}, "
                      f"{plain(found['place'])}.{weight}\n", *quoted(found), *facts(found), note,
                      "## To paste into Python\n", "```python", example, "```\n", "[All "
                      "claims](ledger.md), [errata](errata.md).\n"])


def verdict(found: Mapping[str, Any]) -> str:
    """Return the verdict with the weight of the error."""
    return f"{found['verdict']}, {found['weight']}" if found["weight"] else str(found["verdict"])


def strength(found: Mapping[str, Any]) -> str:
    """Return what stands behind the verdict, with its error if it is Monte Carlo."""
    random = found["strength"] == Strength.MONTE_CARLO.value and found["error"] is not None
    return f"{found['strength']}, ± {found['error']:g}" if random else str(found["strength"])


def plain(text: str) -> str:
    """Return a text on one line, escaped so that Markdown shows every character unchanged."""
    return re.sub(r"([\\*_<|`\[])", r"\\\1", " ".join(text.split()))
