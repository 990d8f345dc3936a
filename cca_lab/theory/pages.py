"""The ledger as pages: errata for readers of the papers, an overview, and a page for each claim."""

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
    """Write the overview, ledger.md, and a page for each claim, ID.md; return the paths.

    The records are those that `cca-lab verify` stored, if None.
    """
    if records is None:
        records = json.loads((results_folder() / "claims.json").read_text(encoding="utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"ledger": claims_page(records)} | {record["id"]: claim_page(record)
                                                for record in records}
    for name, text in texts.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8", newline="\n")
    return [folder / f"{name}.md" for name in texts]


def claims_page(records: list[dict[str, Any]]) -> str:
    """Return the overview: counts of verdicts and of errors, and one row per claim."""
    header = ["id", "paper, place", "claim, as we read it", "verdict", "seen", "what holds",
              "stands on"]
    rows = [[f"[`{record['id']}`]({record['id']}.md)",
             plain(f"{record['paper']}, {record['place']}"), plain(record["reading"]),
             verdict(record), plain(record["evidence"]), plain(record["repair"]) or "-",
             strength(record)] for record in records]
    return f"{WORDS['claims']}\n{tally(records)}\n\n{_table(header, rows)}"


def tally(records: Iterable[dict[str, Any]]) -> str:
    """Return how many claims have each verdict, and how many errors have each weight."""
    records = list(records)
    verdicts = [record["verdict"] for record in records]
    by_verdict = ", ".join(f"{verdicts.count(verdict.value)} {verdict}" for verdict in Verdict
                           if verdict.value in verdicts)
    # claims with one root count once, by the root's weight
    roots = [record["weight"] for record in records if record["root"] == record["id"]]
    by_weight = ", ".join(f"{roots.count(weight.value)} of {weight}" for weight in Weight
                          if weight.value in roots)
    refuted = len(records) - verdicts.count(Verdict.HOLDS.value)
    errors = (f" Behind the {refuted} that do not simply hold stand {len(roots)} distinct errors "
              f"or conditions: {by_weight}.")
    return f"{len(records)} claims: {by_verdict}." + (errors if roots else "")


def counted(page: str, records: Iterable[dict[str, Any]]) -> str:
    """Return a page with the counts of today between its marks."""
    begin, end = "<!-- tally -->\n", "<!-- end -->"
    before, mark, rest = page.partition(begin)
    return f"{before}{mark}{tally(records)}\n{end}{rest.partition(end)[2]}" if mark else page


def errata_page(records: list[dict[str, Any]]) -> str:
    """Return docs/claims/errata.md: what does not hold, by paper, the weightiest first."""
    sections = [WORDS["errata"]]
    weights = [weight.value for weight in Weight]
    for paper in PAPERS:
        wrong = [record for record in records
                 if record["paper"] == paper and record["verdict"] != Verdict.HOLDS.value]
        if wrong:
            wrong.sort(key=lambda record: weights.index(record["weight"]))
            sections += [f"## {TITLES[paper]}\n", *(erratum(record) for record in wrong)]
    rows = [(f"`{record['id']}`", f"{record['paper']}, {plain(record['place'])}",
             plain(record["reading"]))
            for record in records if record["verdict"] == Verdict.HOLDS.value]
    listed = _table(["id", "place", "as we read it"], rows)
    return "\n".join([*sections, f"## What holds as printed\n\n{listed}"])


def erratum(record: dict[str, Any]) -> str:
    """Return a claim's entry: place, what is printed, what is wrong, smallest example, repair."""
    again = "" if record["root"] == record["id"] else f"- **Same error as** `{record['root']}`.\n"
    head = f"### {plain(record['place'])} (`{record['id']}`)\n"
    return "\n".join([head, *quoted(record), *facts(record)]) + f"\n{again}"


def quoted(record: Mapping[str, Any]) -> list[str]:
    """Return the quotation and the reading as lines of a list."""
    mark = " †" if record["formula"] else ""
    words = " … ".join(f"“{plain(piece)}”" for piece in record["quote"])
    printed = [f"- **Printed.** {words}{mark}"] if words else []
    return [*printed, f"- **Read as.** {plain(record['reading'])}"]


def facts(record: Mapping[str, Any]) -> list[str]:
    """Return the verdict and everything that was found, as lines of a list."""
    lines = [f"- **Verdict.** {verdict(record).capitalize()} ({strength(record)}).",
             f"- **Seen.** {plain(record['evidence'])}"]
    if record["hypothesis"]:
        lines.append(f"- **Holds if** {plain(record['hypothesis'])}: {plain(record['inside'])}")
    lines += [f"- **With {plain(name)}:** {'accepted' if model['accepted'] else 'refuted'}; "
              f"{plain(model['evidence'])}" for name, model in record["models"].items()]
    lines += [f"- **{plain(name)}, by itself.** {plain(words)}"
              for name, words in record["sides"].items()]
    if record["repair"]:
        lines.append(f"- **Holds instead.** {plain(record['repair'])} ({record['repaired']})")
    if record["machine"]:
        lines.append(f"- **Proved by a program.** {plain(record['machine'])}")
    return [*lines, f"- **Why.** {plain(record['proof'])}"]


def short_table(records: Iterable[Mapping[str, Any]], width: int = 160) -> str:
    """Return a table for a notebook: claims, verdicts, what was seen and what holds, each cut."""
    def cut(text: str) -> str:
        return plain(textwrap.shorten(text, width, placeholder=" ..."))

    rows = [[f"`{record['id']}` {cut(record['reading'])}",
             f"**{verdict(record)}**. {cut(record['evidence'])}",
             cut(record["repair"]) or "as printed"] for record in records]
    return _table(["the paper says", "seen", "what holds"], rows)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in [header, ["---"] * len(header), *rows])


def claim_page(record: Mapping[str, Any]) -> str:
    """Return the page of one claim, with everything about it."""
    note = "\n† From text extracted from a PDF; the printed page was not at hand.\n"
    example = record["example"].strip() or WORDS["example"].format(record["id"])
    root = record["root"]
    repeated = root not in (None, record["id"])
    repeats = f" Its error is that of [`{root}`]({root}.md)." if repeated else ""
    weight = f" Weight: {record['weight']}.{repeats}" if record["weight"] else ""
    title = f"{plain(TITLES[record['paper']])}, {plain(record['place'])}.{weight}\n"
    return "\n".join([f"# `{record['id']}`\n", title, *quoted(record), *facts(record),
                      note if record["formula"] else "", "## To paste into Python\n", "```python",
                      example, "```\n", "[All claims](ledger.md), [errata](errata.md).\n"])


def verdict(record: Mapping[str, Any]) -> str:
    """Return the verdict with the weight of the error."""
    weight = f", {record['weight']}" if record["weight"] else ""
    return f"{record['verdict']}{weight}"


def strength(record: Mapping[str, Any]) -> str:
    """Return what stands behind the verdict, with its error if it is Monte Carlo."""
    random = record["strength"] == Strength.MONTE_CARLO.value and record["error"] is not None
    return f"{record['strength']}, ± {record['error']:g}" if random else str(record["strength"])


def plain(text: str) -> str:
    """Return a text on one line, escaped so that Markdown shows every character unchanged."""
    return re.sub(r"([\\*_<|`\[])", r"\\\1", " ".join(text.split()))
