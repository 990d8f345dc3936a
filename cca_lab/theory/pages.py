"""The ledger as pages: errata for readers of the papers, the map, an overview, a page a claim."""

import json
import re
import textwrap
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cca_lab.files import results_folder
from cca_lab.theory import claim_map
from cca_lab.theory.claim import PAPERS, Strength, Verdict, Weight

WORDS = tomllib.loads(
    Path(__file__).with_name("claims").joinpath("pages.toml").read_text(encoding="utf-8"))
TITLES: dict[str, str] = WORDS["titles"]
ERRORS = [Verdict.FALSE.value, Verdict.INCONSISTENT.value]
RANKS = [*(weight.value for weight in Weight), None]  # the weightiest first, then what holds


def write(folder: Path, records: list[dict[str, Any]] | None = None) -> list[Path]:
    """Write the overview, ledger.md, and a page for each claim, ID.md; return the paths.

    The records are those that `cca-lab verify` stored, if None. Where the folder has the map, it
    also writes the map's page again, with the picture in it, so that one can point at a statement.
    """
    if records is None:
        records = json.loads((results_folder() / "claims.json").read_text(encoding="utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"ledger": ledger_page(records)} | {record["id"]: claim_page(record, records)
                                                for record in records}
    if (folder / "map.svg").is_file():
        svg = (folder / "map.svg").read_text(encoding="utf-8").partition("<svg")[2]
        script = WORDS["script"].replace("FALLS", json.dumps(_falls(records)))
        texts["map"] = map_page(records, f"```{{raw}} html\n<svg{svg}{script}```\n")
    for name, text in texts.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8", newline="\n")
    return [folder / f"{name}.md" for name in texts if name != "map"]


def committed(folder: Path, records: list[dict[str, Any]]) -> dict[Path, str]:
    """Return the texts of the pages in a clone; the map's picture is drawn only if it changed."""
    map_, path = claim_map.graph(records), folder / "map.svg"
    old = path.read_text(encoding="utf-8") if path.is_file() else ""
    picture = old if claim_map.digest(map_) in old else claim_map.picture(map_)
    overview = counted((folder / "index.md").read_text(encoding="utf-8"), records)
    return {folder / "errata.md": errata_page(records), folder / "map.md": map_page(records),
            path: picture, folder / "index.md": overview}


def ledger_page(records: list[dict[str, Any]]) -> str:
    """Return the overview: for each paper a row per claim, the weightiest errors first."""
    sections = [counted(WORDS["claims"], records)]
    for paper in PAPERS:
        rows = [[f"[`{record['id']}`]({record['id']}.md)", plain(record["reading"]),
                 verdict(record), letters(record)] for record in _ranked(records, paper)]
        header = ["id", "claim, as we read it", "verdict", "stands on"]
        sections.append(f"## {TITLES[paper]}\n\n{_table(header, rows)}")
    return "\n".join(sections)


def tally(records: Iterable[dict[str, Any]]) -> str:
    """Return how many claims have each verdict, and how many errors there are, by weight.

    An error is false or inconsistent, and counts once if others repeat it.
    """
    records = list(records)
    verdicts = [record["verdict"] for record in records]
    by_verdict = ", ".join(f"{verdicts.count(kind.value)} {kind}" for kind in Verdict
                           if kind.value in verdicts)
    weights = {record["id"]: record["weight"] for record in records}
    errors = {record["root"] for record in records if record["verdict"] in ERRORS}
    others = {record["root"] for record in records if record["root"]} - errors
    each = [weights.get(root) for root in errors]
    by_weight = ", ".join(f"{each.count(weight)} of {weight}" for weight in RANKS if weight in each)
    return f"{len(records)} claims: {by_verdict}." + (
        f" {len(errors)} errors ({by_weight}), counted once where others repeat them, and "
        f"{len(others)} statements that need a hypothesis or a model." if errors or others else "")


def counted(page: str, records: Iterable[dict[str, Any]]) -> str:
    """Return a page with the counts of today between its marks."""
    begin, end = "<!-- tally -->\n", "<!-- end -->"
    before, mark, rest = page.partition(begin)
    return f"{before}{mark}{tally(records)}\n{end}{rest.partition(end)[2]}" if mark else page


def errata_page(records: list[dict[str, Any]]) -> str:
    """Return docs/claims/errata.md: errors of substance by paper; the rest in short tables."""
    sections = [counted(WORDS["errata"], records)]
    kinds = {"Errors of substance": ERRORS,
             "Under a condition": [Verdict.HOLDS_IF.value, Verdict.DEPENDS.value]}
    for paper in PAPERS:
        sections.append(f"## {TITLES[paper]}\n")
        for title, verdicts in kinds.items():
            found = [record for record in _ranked(records, paper)
                     if record["verdict"] in verdicts and record["weight"] == Weight.SUBSTANCE]
            sections += [f"### {title}\n"] * bool(found)
            sections += ["\n".join([f"#### {plain(record['place'])} (`{record['id']}`)\n",
                                    *facts(record, records), *_example(record, verdicts is ERRORS)])
                         for record in found]
    small = [record for record in records if record["weight"] in (Weight.SLIP, Weight.TYPOGRAPHY)]
    rows = [[_place(record), plain(record["reading"]), f"{verdict(record)}: "
             f"{plain(record['evidence'])}", plain(record["repair"])] for record in small]
    holds = [[_place(record), plain(record["reading"])] for record in records
             if record["verdict"] == Verdict.HOLDS]
    header = ["place", "as we read it"]
    return "\n".join([*sections, "## Appendix: slips and typography\n",
                      _table([*header, "seen", "holds instead"], rows),
                      "## What holds as printed\n", _table(header, holds)])


def map_page(records: list[dict[str, Any]], picture: str = "![The map of the claims](map.svg)\n",
             ) -> str:
    """Return docs/claims/map.md: the picture, and what falls with each statement that fails."""
    rows = [[f"`{name}`", *(", ".join(f"`{user}`" for user in found[kind]) or "-"
                            for kind in ("falls", "keeps", "again"))]
            for name, found in _falls(records).items()]
    header = ["fails", "lose a premise", "lose one, and hold by other evidence",
              "stand again, on the repair"]
    words = [[f"`{name}`", says] for name, says in claim_map.WORDS.items()]
    return "\n".join([WORDS["map"], picture, "## What falls with what\n", _table(header, rows),
                      "## Statements that no claim judges\n", _table(["name", "says"], words)])


def facts(record: Mapping[str, Any], records: list[dict[str, Any]]) -> list[str]:
    """Return the quotation, our reading, and everything that was found, as lines of Markdown."""
    quote = " … ".join(f"“{plain(piece)}”" for piece in record["quote"])
    lines = [f"- **Printed.** {quote}{' †' * record['formula']}"] if quote else []
    lines += [f"- **Read as.** {plain(record['reading'])}",
              f"- **Verdict.** {verdict(record).capitalize()} ({strength(record)}).",
              f"- **Seen.** {plain(record['evidence'])}"]
    if record["hypothesis"]:
        lines.append(f"- **Holds if** {plain(record['hypothesis'])} (a reader could assume it: "
                     f"{plain(record['assumed'])}): {plain(record['inside'])}")
    lines += [f"- **With {plain(name)}:** {'accepted' if model['accepted'] else 'refuted'}; "
              f"{plain(model['evidence'])}" for name, model in record["models"].items()]
    lines += [f"- **{plain(name)}, by itself.** {plain(words)}"
              for name, words in record["sides"].items()]
    if record["machine"]:
        lines.append(f"- **Proved by a program.** {plain(record['machine'])}")
    lines += [f"- **Why.** {plain(record['proof'])}", f"- **To trust.** {layers(record)}"]
    for name, words in ((record["id"], "Uses"), (f"{record['id']}'", "The repair uses")):
        if used := claim_map.uses(name):
            lines.append(f"- **{words}** " + "; ".join(f"`{other}` ({plain(source)})"
                                                       for other, source in used.items()) + ".")
    if record["root"] not in (None, record["id"]):
        lines.append(f"- **The same error as** `{record['root']}`.")
    found = _falls(records).get(record["id"], {})
    for kind, words in WORDS["falls"].items():
        if found.get(kind):
            lines.append(f"- **{words}** " + ", ".join(f"`{user}`" for user in found[kind]) + ".")
    if record["repair"]:
        lines += [f"\nHolds instead ({record['repaired']}):\n", "```text",
                  textwrap.fill(record["repair"], 100, break_long_words=False), "```"]
    return [*lines, ""]


def short_table(records: Iterable[Mapping[str, Any]], width: int = 160) -> str:
    """Return a table for a notebook: claims, verdicts, what was seen and what holds, each cut."""
    def cut(text: str) -> str:
        return plain(textwrap.shorten(text, width, placeholder=" ..."))

    rows = [[f"`{record['id']}` {cut(record['reading'])}",
             f"**{verdict(record)}**. {cut(record['evidence'])}",
             cut(record["repair"]) or "as printed"] for record in records]
    return _table(["as we read it", "seen", "what holds"], rows)


def claim_page(record: Mapping[str, Any], records: list[dict[str, Any]]) -> str:
    """Return the page of one claim, with everything about it."""
    title = f"{plain(TITLES[record['paper']])}, {plain(record['place'])}.\n"
    return "\n".join([f"# `{record['id']}`\n", title, *facts(record, records),
                      "## To paste into Python\n", *_example(record, True),
                      "[All claims](ledger.md), [errata](errata.md), [map](map.md), "
                      "[what one must trust](trust.md).\n"])


def verdict(record: Mapping[str, Any]) -> str:
    """Return the verdict with the weight of the error."""
    weight = f", {record['weight']}" if record["weight"] else ""
    return f"{record['verdict']}{weight}"


def strength(record: Mapping[str, Any]) -> str:
    """Return what stands behind the verdict, with its error if it is Monte Carlo."""
    random = record["strength"] == Strength.MONTE_CARLO.value and record["error"] is not None
    return f"{record['strength']}, ± {record['error']:g}" if random else str(record["strength"])


def letters(record: Mapping[str, Any]) -> str:
    """Return the letters of what one must trust, of the verdict and of the repair."""
    seen, repair = claim_map.trusted(record)
    return f"{seen}; {repair}" if repair else seen


def layers(record: Mapping[str, Any]) -> str:
    """Return in words what one must trust beside our reading, of the verdict and of the repair."""
    seen, repair = ("; ".join(f"{claim_map.LAYERS[letter]} ({letter})" for letter in part)
                    for part in claim_map.trusted(record))
    return f"{seen}. Of the repair: {repair}." if repair else f"{seen}."


def plain(text: str) -> str:
    """Return a text on one line, escaped so that Markdown shows every character unchanged."""
    return re.sub(r"([\\*_<|`\[])", r"\\\1", " ".join(text.split()))


def _ranked(records: Iterable[dict[str, Any]], paper: str) -> list[dict[str, Any]]:
    mine = [record for record in records if record["paper"] == paper]
    return sorted(mine, key=lambda record: (RANKS.index(record["weight"]),
                                            record["verdict"] not in ERRORS))


def _falls(records: list[dict[str, Any]]) -> dict[str, dict[str, list[str]]]:
    """Return what falls, by each statement that does not hold and that others use."""
    map_ = claim_map.graph(records)
    found = {record["id"]: claim_map.fall(map_, record["id"]) for record in records
             if record["verdict"] != Verdict.HOLDS}
    return {name: kinds for name, kinds in found.items() if any(kinds.values())}


def _place(record: Mapping[str, Any]) -> str:
    return f"`{record['id']}` {record['paper']}, {plain(record['place'])}"


def _example(record: Mapping[str, Any], shown: bool) -> list[str]:
    example = record["example"].strip() or WORDS["example"].format(record["id"])
    return ["```python", example, "```\n"] if shown else []


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in [header, ["---"] * len(header), *rows])
